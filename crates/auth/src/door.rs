//! The door through which every call goes, whether it came as gRPC, gRPC-Web or REST: a tower layer around the services.
//!
//! In: a request whose path is an RPC's. Out: the request with its [`Access`] and the caller's true name, or a refusal;
//! DEADLINE_EXCEEDED where the answer takes too long. Invariant: what the caller says of itself (`tollgate-actor`) is
//! never more than an addition to what it has proved.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Extensions, HeaderMap, HeaderValue, Request, Response, header};
use tonic::Status;
use tower_layer::Layer;
use tower_service::Service;

use crate::access::{Access, Principal, no_key};
use crate::directory::Directory;
use crate::key::KeyText;
use crate::scope::{Scope, Scopes};
use crate::table::{Needs, is_stream, needs, waits};

/// The header with the caller's name for the audit log.
const ACTOR: &str = "tollgate-actor";
/// The most characters of what a caller adds to its name.
const ADDED_CHARS_MAX: usize = 64;
/// How long a call may wait before it does something, where it waits at all.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// How callers are asked who they are.
#[derive(Clone)]
pub enum Mode {
    /// Not at all.
    Open,
    /// By a key: the live ones, and the time in microseconds since the epoch.
    Keys(Directory, Arc<dyn Fn() -> i64 + Send + Sync>),
    /// By the connection's certificate, which may do everything; by a key where one is shown.
    Certificates(Directory, Arc<dyn Fn() -> i64 + Send + Sync>),
}

/// A connection; among the extensions of its requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// Where it comes from.
    pub origin: Origin,
    /// Where its other end is: an IPv4 address, or the first 64 bits of an IPv6 address; none inside this process.
    pub address: Option<IpAddr>,
}

impl ConnectionInfo {
    /// The address of a request's connection; none inside this process.
    pub fn address_of(extensions: &Extensions) -> Option<IpAddr> {
        extensions.get::<Self>().and_then(|connection| connection.address)
    }
}

/// Where a connection comes from, as far as it has shown that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nothing.
    Plain,
    /// A certificate that has been verified, for this name.
    Certificate(Arc<str>),
    /// That it comes from this process itself.
    Inside,
}

/// The key that opened a stream, to be checked again while the stream goes on; among the extensions of its request, where a
/// key was shown.
#[derive(Clone)]
pub struct StreamKey {
    directory: Directory,
    now_us: Arc<dyn Fn() -> i64 + Send + Sync>,
    key: String,
}

impl StreamKey {
    /// Whether the key of a stream's request is still good; always where no key was shown.
    ///
    /// # Errors
    /// UNAUTHENTICATED once the key has been revoked, or has expired.
    pub fn check(stream_key: Option<&Self>) -> Result<(), Status> {
        let Some(Self { directory, now_us, key }) = stream_key else { return Ok(()) };
        directory.verify_again(key, now_us()).map_err(|_| bad_key())
    }
}

/// The door; a tower layer, cheap to clone.
#[derive(Clone)]
pub struct Door {
    mode: Mode,
    deadline: Duration,
}

impl Door {
    /// A door. Calls that are no streams are answered within `deadline`.
    pub fn new(mode: Mode, deadline: Duration) -> Self {
        Self { mode, deadline }
    }

    /// Whether anybody is asked who it is.
    pub fn is_open(&self) -> bool {
        matches!(self.mode, Mode::Open)
    }

    /// Whether callers must show keys.
    pub fn asks_for_keys(&self) -> bool {
        matches!(self.mode, Mode::Keys(..))
    }

    /// Who sends a request with these headers over the connection that these extensions describe.
    ///
    /// # Errors
    /// UNAUTHENTICATED for a key that is not good.
    pub fn identify(&self, headers: &HeaderMap, extensions: &Extensions) -> Result<Access, Status> {
        let (directory, now_us, certificates) = match &self.mode {
            Mode::Open => return Ok(Access::Open),
            Mode::Keys(directory, now_us) => (directory, now_us, false),
            Mode::Certificates(directory, now_us) => (directory, now_us, true),
        };
        let mut given = headers.get_all(header::AUTHORIZATION).iter();
        if let Some(first) = given.next() {
            // A proxy before this port may have looked at another one.
            if given.next().is_some() {
                return Err(two_keys());
            }
            let given = first;
            let principal = directory.verify(bearer(given).ok_or_else(no_bearer)?, now_us());
            return principal.map(Access::Holder).map_err(|_| bad_key());
        }
        Ok(match extensions.get::<ConnectionInfo>().map(|connection| &connection.origin) {
            Some(Origin::Certificate(name)) if certificates => everything(name, "certificate"),
            Some(Origin::Inside) if certificates => everything("console", "this process"),
            // Visitors of the console show their own keys; what it notes for all of them it reads by itself.
            Some(Origin::Inside) => own("console", Scopes::from_iter([Scope::Read]), "this process"),
            _ => Access::Nobody,
        })
    }

    /// What the key of a request with these headers, which has been identified, has to be asked again while its stream goes on.
    fn stream_key(&self, headers: &HeaderMap) -> Option<StreamKey> {
        let (Mode::Keys(directory, now_us) | Mode::Certificates(directory, now_us)) = &self.mode else {
            return None;
        };
        let key = KeyText::parse(bearer(headers.get(header::AUTHORIZATION)?)?).ok()?;
        Some(StreamKey { directory: directory.clone(), now_us: now_us.clone(), key: key.id().to_owned() })
    }

    /// Who calls the RPC of this path with this head, where it may: asked before a body is read.
    ///
    /// # Errors
    /// UNAUTHENTICATED, PERMISSION_DENIED.
    pub fn admit(&self, path: &str, headers: &HeaderMap, extensions: &Extensions) -> Result<Access, Status> {
        let access = self.identify(headers, extensions)?;
        let (needs, principal) = match (needs(path), &access) {
            (Some(Needs::Nothing | Needs::Peer | Needs::Token), _) | (_, Access::Open) => return Ok(access),
            (_, Access::Nobody) => return Err(no_key()),
            // It ends as UNIMPLEMENTED.
            (None, Access::Holder(_)) => return Ok(access),
            (Some(needs), Access::Holder(principal)) => (needs, principal),
        };
        let (scope, everywhere) = match needs {
            Needs::Key(scope) => (scope, false),
            Needs::Everywhere(scope) => (scope, true),
            Needs::Nothing | Needs::Peer | Needs::Token => return Ok(access),
        };
        let Principal { name, credential, scopes, namespace } = principal.as_ref();
        if !scopes.allow(scope) {
            return Err(Status::permission_denied(format!("{name} ({credential}) lacks the scope {scope}")));
        }
        match namespace {
            Some(own) if everywhere => {
                let about = "this call is about all namespaces";
                Err(Status::permission_denied(format!(
                    "{name} ({credential}) reaches the namespace {own} only; {about}"
                )))
            }
            _ => Ok(access),
        }
    }
}

fn two_keys() -> Status {
    Status::unauthenticated("authorization: several are given, expected one")
}

fn no_bearer() -> Status {
    Status::unauthenticated("authorization: another form is given, expected Bearer tgk_…")
}

/// The same for a key that never was, one with another secret, and one that has ended.
fn bad_key() -> Status {
    Status::unauthenticated("authorization: the key is not good: it is unknown, wrong, revoked or expired")
}

fn bearer(given: &HeaderValue) -> Option<&str> {
    let (scheme, key) = given.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
}

fn everything(name: &str, credential: &str) -> Access {
    own(name, Scopes::all(), credential)
}

fn own(name: &str, scopes: Scopes, credential: &str) -> Access {
    let (name, credential) = (name.to_owned(), credential.to_owned());
    Access::Holder(Arc::new(Principal { name, namespace: None, scopes, credential }))
}

/// Puts the caller's true name into the header from which the services take it.
fn name_actor(access: &Access, headers: &mut HeaderMap) {
    let proved = match access {
        Access::Open => return,
        Access::Nobody => "anonymous",
        Access::Holder(principal) => principal.name.as_str(),
    };
    let added = headers.remove(ACTOR).and_then(|added| Some(added.to_str().ok()?.trim().to_owned()));
    let added: String = added.unwrap_or_default().chars().take(ADDED_CHARS_MAX).collect();
    let name = match access {
        Access::Holder(_) if !added.is_empty() => format!("{proved}/{added}"),
        _ => proved.to_owned(),
    };
    let printable = name.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let name = HeaderValue::from_str(&name).ok().filter(|_| printable);
    headers.insert(ACTOR, name.unwrap_or(HeaderValue::from_static("unnamed")));
}

impl<S> Layer<S> for Door {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded { inner, door: self.clone() }
    }
}

/// A service behind a [`Door`].
#[derive(Clone)]
pub struct Guarded<S> {
    inner: S,
    door: Door,
}

impl<S, B, R> Service<Request<B>> for Guarded<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    R: Default + Send + 'static,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let access = match self.door.admit(request.uri().path(), request.headers(), request.extensions()) {
            Ok(access) => access,
            Err(refusal) => return Box::pin(std::future::ready(Ok(refusal.into_http()))),
        };
        name_actor(&access, request.headers_mut());
        if access != Access::Open {
            request.extensions_mut().insert(access);
        }
        let bounded = !is_stream(request.uri().path());
        if (!bounded || waits(request.uri().path()))
            && let Some(stream_key) = self.door.stream_key(request.headers())
        {
            request.extensions_mut().insert(stream_key);
        }
        let wait = if waits(request.uri().path()) { WAIT_MAX } else { Duration::ZERO };
        let (answer, deadline) = (self.inner.call(request), self.door.deadline + wait);
        if !bounded {
            return Box::pin(answer);
        }
        Box::pin(async move {
            match tokio::time::timeout(deadline, answer).await {
                Ok(answered) => answered,
                Err(_) => {
                    let text = format!(
                        "no answer within {} s, this server's request_timeout",
                        deadline.as_secs_f64()
                    );
                    Ok(Status::deadline_exceeded(text).into_http())
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use std::convert::Infallible;

    use tonic::Code;

    use super::*;
    use crate::directory::KeyEntry;

    const GET: &str = "/tollgate.v1.ScheduleMasterService/GetSchedule";
    const RELEASE: &str = "/tollgate.v1.EventHandlerService/ReleaseToken";
    const PAUSE_ALL: &str = "/tollgate.v1.EventHandlerService/PauseDispatch";

    /// Answers with what it got.
    #[derive(Clone)]
    struct Echo(Duration);

    impl Service<Request<()>> for Echo {
        type Response = Response<()>;
        type Error = Infallible;
        type Future = Pin<Box<dyn Future<Output = Result<Response<()>, Infallible>> + Send>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<()>) -> Self::Future {
            let late = self.0;
            Box::pin(async move {
                tokio::time::sleep(late).await;
                let mut response = Response::new(());
                *response.headers_mut() = request.headers().clone();
                *response.extensions_mut() = request.extensions().clone();
                Ok(response)
            })
        }
    }

    fn key(namespace: Option<&str>, scopes: &str) -> (KeyText, KeyEntry) {
        let key = KeyText::generate();
        let entry = KeyEntry {
            id: key.id().to_owned(),
            name: "ci".to_owned(),
            namespace: namespace.map(str::to_owned),
            scopes: scopes.parse().unwrap(),
            hash: key.hash(),
            expires_us: None,
        };
        (key, entry)
    }

    fn keys(entries: Vec<KeyEntry>) -> Door {
        let directory = Directory::default();
        directory.replace(entries);
        Door::new(Mode::Keys(directory, Arc::new(|| 0)), Duration::from_secs(60))
    }

    async fn call(door: &Door, path: &str, headers: &[(&str, &str)], origin: Origin) -> Response<()> {
        let connection = ConnectionInfo { origin, address: None };
        let mut request = Request::builder().uri(path).extension(connection);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        door.layer(Echo(Duration::ZERO)).call(request.body(()).unwrap()).await.unwrap()
    }

    fn code(response: &Response<()>) -> Code {
        Status::from_header_map(response.headers()).map_or(Code::Ok, |status| status.code())
    }

    #[tokio::test]
    async fn a_key_opens_what_its_scopes_allow() {
        let (reader, entry) = key(Some("team"), "read");
        let door = keys(vec![entry]);
        let bearer = format!("Bearer {}", reader.reveal());
        let given = [("authorization", bearer.as_str()), ("tollgate-actor", "ann")];
        let answer = call(&door, GET, &given, Origin::Plain).await;
        assert_eq!(code(&answer), Code::Ok);
        assert_eq!(answer.headers()["tollgate-actor"], "ci/ann", "the key's name cannot be shed");
        assert_eq!(Access::of(answer.extensions()).namespace(), Some("team"));
        let apply = "/tollgate.v1.ScheduleMasterService/ApplyResources";
        for path in [apply, PAUSE_ALL, "/tollgate.v1.EventEmitterService/ListWindows"] {
            assert_eq!(
                code(&call(&door, path, &given, Origin::Plain).await),
                Code::PermissionDenied,
                "{path}"
            );
        }
    }

    #[tokio::test]
    async fn without_a_good_key_only_tokens_count() {
        let (one, entry) = key(None, "admin");
        let door = keys(vec![entry]);
        let (other, _) = key(None, "admin");
        let (good, bad) = (format!("Bearer {}", one.reveal()), format!("Bearer {}", other.reveal()));
        for (path, header, expected) in [
            (GET, None, Code::Unauthenticated),
            ("/tollgate.v1.EventHandlerService/Unknown", None, Code::Unauthenticated),
            (RELEASE, None, Code::Ok),
            ("/grpc.health.v1.Health/Check", None, Code::Ok),
            (GET, Some(good.as_str()), Code::Ok),
            (PAUSE_ALL, Some(good.as_str()), Code::Ok),
            (GET, Some(bad.as_str()), Code::Unauthenticated),
            (RELEASE, Some(bad.as_str()), Code::Unauthenticated),
            (GET, Some("Basic YTpi"), Code::Unauthenticated),
            (GET, Some(one.reveal().as_str()), Code::Unauthenticated),
            (GET, Some("Bearer "), Code::Unauthenticated),
        ] {
            let headers: Vec<(&str, &str)> =
                header.map(|header| ("authorization", header)).into_iter().collect();
            let answer = call(&door, path, &headers, Origin::Plain).await;
            assert_eq!(code(&answer), expected, "{path} {header:?}");
        }
        assert_eq!(code(&call(&door, GET, &[], Origin::Inside).await), Code::Ok, "the console looks");
        assert_eq!(code(&call(&door, PAUSE_ALL, &[], Origin::Inside).await), Code::PermissionDenied);
        let stranger = call(&door, GET, &[], Origin::Certificate("x".into())).await;
        assert_eq!(code(&stranger), Code::Unauthenticated, "certificates do not count where keys do");
        let answer = call(&door, RELEASE, &[("tollgate-actor", "root")], Origin::Plain).await;
        assert_eq!(answer.headers()["tollgate-actor"], "anonymous");
        assert_eq!(Access::of(answer.extensions()), Access::Nobody);
    }

    #[tokio::test]
    async fn two_keys_are_none() {
        let (one, first) = key(None, "admin");
        let (two, second) = key(Some("team"), "read");
        let door = keys(vec![first, second]);
        let (one, two) = (format!("Bearer {}", one.reveal()), format!("Bearer {}", two.reveal()));
        for (first, second) in [(&one, &two), (&two, &one), (&one, &one)] {
            let given = [("authorization", first.as_str()), ("authorization", second.as_str())];
            for path in [GET, RELEASE] {
                assert_eq!(code(&call(&door, path, &given, Origin::Plain).await), Code::Unauthenticated);
            }
        }
    }

    #[tokio::test]
    async fn a_stream_s_key_is_asked_again() {
        let (writer, entry) = key(None, "schedule:write");
        let directory = Directory::default();
        directory.replace(vec![entry]);
        let door = Door::new(Mode::Keys(directory.clone(), Arc::new(|| 0)), Duration::from_secs(60));
        let bearer = format!("Bearer {}", writer.reveal());
        let given = [("authorization", bearer.as_str())];
        let apply = "/tollgate.v1.ScheduleMasterService/ApplyResources";
        let answer = call(&door, apply, &given, Origin::Plain).await;
        let stream_key = answer.extensions().get::<StreamKey>();
        assert!(stream_key.is_some() && StreamKey::check(stream_key).is_ok());
        directory.replace(Vec::new());
        let refused = StreamKey::check(stream_key).err().map(|status| status.code());
        assert_eq!(refused, Some(Code::Unauthenticated));
        assert!(StreamKey::check(None).is_ok(), "no key was shown");
    }

    #[tokio::test]
    async fn a_certificate_may_do_everything_unless_a_key_says_less() {
        let (reader, entry) = key(Some("team"), "read");
        let directory = Directory::default();
        directory.replace(vec![entry]);
        let door = Door::new(Mode::Certificates(directory, Arc::new(|| 0)), Duration::from_secs(60));
        let certificate = || Origin::Certificate("ops.example".into());
        let answer = call(&door, PAUSE_ALL, &[("tollgate-actor", "ann")], certificate()).await;
        assert_eq!(code(&answer), Code::Ok);
        assert_eq!(answer.headers()["tollgate-actor"], "ops.example/ann");
        let bearer = format!("Bearer {}", reader.reveal());
        let narrowed = call(&door, PAUSE_ALL, &[("authorization", &bearer)], certificate()).await;
        assert_eq!(code(&narrowed), Code::PermissionDenied);
        assert_eq!(code(&call(&door, GET, &[], Origin::Plain).await), Code::Unauthenticated);
        assert_eq!(code(&call(&door, GET, &[], Origin::Inside).await), Code::Ok);
    }

    #[tokio::test]
    async fn an_open_door_changes_nothing() {
        let door = Door::new(Mode::Open, Duration::from_secs(60));
        let answer = call(&door, PAUSE_ALL, &[("tollgate-actor", "ann")], Origin::Plain).await;
        assert_eq!((code(&answer), Access::of(answer.extensions())), (Code::Ok, Access::Open));
        assert_eq!(answer.headers()["tollgate-actor"], "ann");
    }

    #[tokio::test]
    async fn calls_have_a_deadline_and_streams_have_none() {
        let door = Door::new(Mode::Open, Duration::from_millis(20));
        let slow = |path: &'static str| {
            let request = Request::builder().uri(path).body(()).unwrap();
            door.layer(Echo(Duration::from_millis(200))).call(request)
        };
        assert_eq!(code(&slow(GET).await.unwrap()), Code::DeadlineExceeded);
        let stream = slow("/tollgate.v1.EventHandlerService/ReleaseTokens").await.unwrap();
        assert_eq!(code(&stream), Code::Ok);
    }
}
