//! Mistakes that people make in files, in flags, with addresses and with values, and the message that each gets: word for word.
//!
//! The cases are in `tests/cases/mistakes/*.md`: a title; the file that somebody wrote, or what somebody typed, or both; and what
//! they read. With `TOLLGATE_WRITE_CASES=1` the messages are written anew, to be read and judged; otherwise they are compared.
//! What differs between two runs has a name: `SERVER` is a service, `DEAD` a port at which nothing listens, `GUARDED` a service
//! that wants keys, `TLS` one with a certificate, `OTHER` a web server of another kind, `DATABASE` a PostgreSQL that refuses
//! passwords.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tollgate_harness::resources::policy;
use tollgate_harness::{Database, Kind, Service, binary, free_port};

/// How many mistakes there are at least.
const CASES_MIN: usize = 80;

/// One mistake.
#[derive(Debug)]
struct Case {
    title: String,
    /// The file `case.yaml`, where there is one.
    file: Option<String>,
    /// What is typed; `tollgate apply -f case.yaml` where only a file is given.
    typed: Option<String>,
    message: String,
}

impl Case {
    fn command(&self) -> &str {
        self.typed.as_deref().unwrap_or("tollgate apply -f case.yaml")
    }

    fn written(&self) -> String {
        let mut text = format!("## {}\n\n", self.title);
        if let Some(file) = &self.file {
            text.push_str(&format!("```yaml\n{file}```\n\n"));
        }
        if let Some(typed) = &self.typed {
            text.push_str(&format!("```sh\n{typed}\n```\n\n"));
        }
        text + &format!("```text\n{}```\n", self.message)
    }
}

/// The head of a file of cases, and its cases.
fn read(text: &str) -> (String, Vec<Case>) {
    let (head, rest) = text.split_once("\n## ").unwrap_or((text, ""));
    let cases = rest.split("\n## ").filter(|part| !part.is_empty()).map(|part| {
        let (title, body) = part.split_once('\n').unwrap();
        let block = |kind: &str| {
            let (_, rest) = body.split_once(&format!("```{kind}\n"))?;
            rest.split_once("```").map(|(block, _)| block.to_owned())
        };
        let typed = block("sh").map(|typed| typed.trim_end().to_owned());
        Case {
            title: title.to_owned(),
            file: block("yaml"),
            typed,
            message: block("text").unwrap_or_default(),
        }
    });
    (head.trim_end().to_owned(), cases.collect())
}

/// Whom the mistakes are made with.
struct World {
    _services: Vec<Service>,
    _databases: Vec<Database>,
    /// What stands for what.
    names: Vec<(&'static str, String)>,
    folder: TempDir,
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let databases = vec![
            Database::new(Kind::Sqlite).await,
            Database::new(Kind::Sqlite).await,
            Database::new(Kind::Sqlite).await,
        ];
        let open = Service::start(&databases[0]).await;
        open.create_policy("imports", policy(3)).await.unwrap();
        let guarded = Service::join(&databases[1], &["--auth", "keys"]).await;
        let [cert, key] = certificate(folder.path());
        let tls = Service::join(&databases[2], &["--tls-cert", &cert, "--tls-key", &key]).await;
        let place = |url: &str| url.split_once("://").unwrap().1.trim_end_matches('/').to_owned();
        let names = vec![
            ("SERVER", place(open.url())),
            ("GUARDED", place(guarded.url())),
            ("TLS", place(tls.url())),
            ("DEAD", format!("127.0.0.1:{}", free_port().unwrap())),
            ("OTHER", stranger(web).await),
            ("DATABASE", stranger(postgres).await),
        ];
        Self { _services: vec![open, guarded, tls], _databases: databases, names, folder }
    }

    /// Runs the command of a case in a folder of its own; what it wrote, and how it ended.
    fn message(&self, case: &Case) -> String {
        let folder = tempfile::tempdir_in(self.folder.path()).unwrap();
        if let Some(file) = &case.file {
            std::fs::write(folder.path().join("case.yaml"), file).unwrap();
        }
        let typed = self
            .names
            .iter()
            .fold(case.command().to_owned(), |text, (name, place)| text.replace(name, place));
        let path = format!("{}:{}", binary().parent().unwrap().display(), std::env::var("PATH").unwrap());
        let mut command = std::process::Command::new("bash");
        command.args(["--norc", "-c", &typed]).current_dir(folder.path()).stdin(Stdio::null());
        command
            .env_clear()
            .env("PATH", path)
            .env("USER", "ada")
            .env("TOLLGATE_SERVER", format!("http://{}", self.names[0].1));
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        let is_log = |line: &&str| line.contains(" INFO tollgate") || line.contains(" WARN tollgate");
        let text: String = text
            .lines()
            .filter(|line| !is_log(line))
            .map(|line| format!("{}\n", without_now(line)))
            .collect();
        let text = self.names.iter().fold(text, |text, (name, place)| text.replace(place, name));
        // The port of the service, and the next one, where they stand alone.
        let port: u16 = self.names[0].1.rsplit_once(':').unwrap().1.parse().unwrap();
        let text = text.replace(&port.to_string(), "PORT").replace(&(port + 1).to_string(), "NEXT");
        let folder = folder.path().display().to_string();
        let text = text.replace(&format!("{folder}/"), "").replace(&folder, ".");
        format!("{}\nexit status {}\n", text.trim_end(), output.status.code().unwrap_or(-1))
    }
}

/// A line without the moments that nobody wrote: those with fractions of a second.
fn without_now(line: &str) -> String {
    let words = line.split_inclusive(' ').map(|word| {
        let is_now = word.starts_with("20")
            && word.contains('T')
            && word.contains('.')
            && word.trim_end().ends_with('Z');
        if is_now { "NOW".to_owned() + &word[word.trim_end().len()..] } else { word.to_owned() }
    });
    words.collect()
}

/// A certificate for 127.0.0.1 that signs itself, and its key, as files.
pub(crate) fn certificate(folder: &Path) -> [String; 2] {
    let key = rcgen::KeyPair::generate().unwrap();
    let made =
        rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
    [("node.pem", made.pem()), ("node.key", key.serialize_pem())].map(|(name, text)| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    })
}

/// A server of another kind: where it listens.
async fn stranger<F: Future<Output = ()> + Send + 'static>(meet: fn(TcpStream) -> F) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(meet(stream));
        }
    });
    address
}

/// Speaks HTTP/1.1 alone, and knows no page.
async fn web(mut stream: TcpStream) {
    let mut read = [0; 1024];
    let _asked = stream.read(&mut read).await;
    let _told =
        stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
}

/// Takes no TLS, and says of each database `missing` that there is none, and of all others that the password is wrong.
async fn postgres(mut stream: TcpStream) {
    let mut read = [0; 1024];
    loop {
        let Ok(count) = stream.read(&mut read).await else { return };
        let asked = &read[..count];
        if count == 0 {
            return;
        }
        // An SSLRequest.
        if asked.len() == 8 {
            let _told = stream.write_all(b"N").await;
            continue;
        }
        let names_missing = asked.windows(7).any(|part| part == b"missing");
        let (code, said) = match names_missing {
            true => ("3D000", "database \"missing\" does not exist"),
            false => ("28P01", "password authentication failed for user \"tollgate\""),
        };
        let fields = format!("SFATAL\0VFATAL\0C{code}\0M{said}\0\0");
        let mut message = vec![b'E'];
        message.extend(u32::try_from(fields.len() + 4).unwrap().to_be_bytes());
        message.extend(fields.as_bytes());
        let _told = stream.write_all(&message).await;
        return;
    }
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases/mistakes");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_mistake_gets_its_message() {
    let world = World::new().await;
    let writes = std::env::var_os("TOLLGATE_WRITE_CASES").is_some_and(|value| value == "1");
    let (mut count, mut titles, mut wrong) = (0, BTreeSet::new(), Vec::new());
    for path in files() {
        let (head, mut cases) = read(&std::fs::read_to_string(&path).unwrap());
        for case in &mut cases {
            let message = tokio::task::block_in_place(|| world.message(case));
            assert!(message.lines().count() > 1, "{}: nothing is said: {message}", case.title);
            assert!(!message.contains("panicked"), "{}: {message}", case.title);
            if !writes && message != case.message {
                wrong.push(format!(
                    "{}: {}\nexpected\n{}\nread\n{message}",
                    path.display(),
                    case.title,
                    case.message
                ));
            }
            case.message = message;
            count += 1;
            assert!(titles.insert(case.title.clone()), "{}: twice", case.title);
        }
        if writes {
            let cases: Vec<String> = cases.iter().map(Case::written).collect();
            std::fs::write(&path, format!("{head}\n\n{}", cases.join("\n"))).unwrap();
        }
    }
    assert!(wrong.is_empty(), "TOLLGATE_WRITE_CASES=1 writes them anew:\n{}", wrong.join("\n"));
    assert!(count >= CASES_MIN, "{count} mistakes");
}

/// What a message must not be: a dump of what went wrong inside.
#[test]
fn messages_are_in_plain_words() {
    for path in files() {
        for case in read(&std::fs::read_to_string(&path).unwrap()).1 {
            for word in
                ["os error", "Error(", "Error {", "Kind::", "RUST_BACKTRACE", "InvalidContentType", "Some("]
            {
                assert!(!case.message.contains(word), "{}: {}: {}", path.display(), case.title, case.message);
            }
            assert!(!case.message.contains("exit status 0"), "{}: it was no mistake", case.title);
        }
    }
}
