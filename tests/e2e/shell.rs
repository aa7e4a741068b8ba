//! Completions and manual pages, read by those for whom they are made.

use std::process::Command;

use tollgate_harness::{Cli, Database, Kind, Service, binary, wait_for};

fn output(command: &mut Command) -> String {
    let output =
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; ./tests/run provides it"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What bash itself does when somebody presses the tabulator key behind these words.
fn completed(server: &str, words: &[&str]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("tollgate.bash");
    std::fs::write(&script, Cli::new("http://127.0.0.1:1").ok(&["completions", "bash"])).unwrap();
    let program = r#"source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
        handler=$(complete -p tollgate | sed -E 's/.*-F ([^ ]+).*/\1/')
        "$handler" tollgate "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}""#;
    let mut bash = Command::new("bash");
    let own = binary().parent().unwrap().to_owned();
    bash.env("PATH", format!("{}:{}", own.display(), std::env::var("PATH").unwrap()));
    bash.env("TOLLGATE_SERVER", server);
    bash.args(["--norc", "-c", program, "bash"]).arg(&script).arg("tollgate").args(words);
    output(&mut bash).lines().map(|line| line.trim_end().to_owned()).collect()
}

#[test]
fn bash_completes_commands_and_flags() {
    let complete = |words: &[&str]| completed("http://127.0.0.1:1", words);
    assert_eq!(complete(&["tri"]), ["trigger"]);
    assert_eq!(complete(&["secrets", "rot"]), ["rotate"]);
    assert!(complete(&["serve", "--quota"]).contains(&"--quota-schedules".to_owned()));
    assert!(complete(&["release", "--outcome", "e1", "--a"]).contains(&"--attempt".to_owned()));
    assert_eq!(complete(&["completions", "z"]), ["zsh"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bash_completes_names_that_the_service_knows() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    let cli = Cli::new(service.url());
    let yaml = "kind: Policy\nid: nice\nmaxInFlight: 1\n---\nkind: Schedule\nid: nightly\ntriggers: [{cron: \"0 3 * * *\"}]\n\
                target: {http: {url: \"http://127.0.0.1:9/\"}}\n";
    assert_eq!(cli.apply(yaml).code, 0);
    assert_eq!(cli.run_with(&["-n", "team", "apply", "-f", "-"], &yaml.replace("nightly", "nine")).code, 0);
    // A service that takes more than a second is not waited for: then nothing is said, this time.
    for (words, name) in [
        (&["trigger", "ni"][..], "nightly"),
        (&["describe", "policy", "n"][..], "nice"),
        (&["-n", "team", "pause", "schedule", "n"][..], "nine"),
    ] {
        let alone = async || (completed(service.url(), words) == [name]).then_some(());
        wait_for(name, 20, alone).await;
    }
    wait_for("all policies", 20, async || {
        completed(service.url(), &["describe", "policy", ""]).contains(&"nice".to_owned()).then_some(())
    })
    .await;
    // Without a service, nothing is said, and nobody waits.
    let began = std::time::Instant::now();
    assert_eq!(completed("http://127.0.0.1:1", &["trigger", "ni"]), [""]);
    assert!(began.elapsed().as_secs() < 15, "{:?}", began.elapsed());
    service.stop().await;
}

#[test]
fn every_shell_has_a_script() {
    for (shell, part) in [
        ("zsh", "#compdef tollgate"),
        ("fish", "--command tollgate"),
        ("elvish", "edit:completion"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        let script = Cli::new("http://127.0.0.1:1").ok(&["completions", shell]);
        assert!(script.contains(part) && script.contains("TOLLGATE_COMPLETE"), "{shell}: {script}");
    }
}

#[test]
fn every_command_has_a_page_that_man_takes() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("pages");
    Cli::new("http://127.0.0.1:1").ok(&["man", "--output", pages.to_str().unwrap()]);
    let help = output(Command::new(binary()).arg("--help"));
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let commands = commands.lines().take_while(|line| !line.starts_with("Options:"));
    // Commands stand at the left; what goes on below them stands further in.
    let names: Vec<&str> = commands
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        assert!(pages.join(format!("tollgate-{name}.1")).exists(), "{name} has no page");
    }
    for page in std::fs::read_dir(&pages).unwrap() {
        let page = page.unwrap().path();
        let mut lint = Command::new("mandoc");
        output(lint.args(["-T", "lint", "-W", "unsupp"]).arg(&page));
        let text = strip_overstrikes(&output(Command::new("mandoc").args(["-T", "ascii"]).arg(&page)));
        let name = page.file_stem().unwrap().to_str().unwrap();
        assert!(text.contains("NAME") && text.contains("SYNOPSIS"), "{name}: {text}");
    }
    let text = output(Command::new("mandoc").args(["-T", "ascii"]).arg(pages.join("tollgate-serve.1")));
    let plain: String = strip_overstrikes(&text);
    assert!(plain.contains("--secret-keys-file"), "{plain}");
    // Without a folder, the page of `tollgate` itself.
    assert!(Cli::new("http://127.0.0.1:1").ok(&["man"]).contains(".TH tollgate 1"));
}

/// Bold and underlined letters are each printed twice, with a backspace between.
fn strip_overstrikes(text: &str) -> String {
    let mut plain = String::new();
    for character in text.chars() {
        if character == '\u{8}' {
            plain.pop();
        } else {
            plain.push(character);
        }
    }
    plain
}
