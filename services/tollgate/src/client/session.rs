//! Decides how the service is reached, and as whom.

use std::io::Write as _;
use std::time::Duration;

use clap::{Args, ColorChoice};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use prost::{Message, Name};
use tollgate_clock::Clock;
use tollgate_commands::Connection;
use tollgate_proto::v1::event_emitter_service_client::EventEmitterServiceClient;
use tollgate_proto::v1::event_handler_service_client::EventHandlerServiceClient;
use tollgate_proto::v1::schedule_master_service_client::ScheduleMasterServiceClient;
use tollgate_proto::v1::worker_service_client::WorkerServiceClient;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status};

use super::failure::CallFailure;
use super::output::{Format, Printer};
use super::table::View;
use super::unreached::Unreachable;
use crate::usage::{Usage, plain, span};

/// A connection is given up after this time, even if the call may take longer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a connection is asked whether the other end is there, while something long is under way; and for how long.
const ALIVE_EVERY: Duration = Duration::from_secs(30);
const ALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// A page of schedules with large payloads is large.
const ANSWER_BYTES_MAX: usize = 512 * 1024 * 1024;
/// The most bytes of a reason, as the service takes it.
const REASON_MAX_BYTES: usize = 4096;

/// Flags of every command that speaks to the service.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Connection and output")]
pub(crate) struct ClientArgs {
    /// The URL of the service
    #[arg(long, env = "TOLLGATE_SERVER", value_name = "URL", default_value = "http://127.0.0.1:7411")]
    server: String,

    /// The namespace of short names, such as nightly and schedule/nightly
    #[arg(short, long, env = "TOLLGATE_NAMESPACE", value_name = "NAME", default_value = "default")]
    namespace: String,

    /// The API key, where the service needs one. Prefer the variable, because lists of processes show flags
    #[arg(long, env = "TOLLGATE_API_KEY", value_name = "KEY", hide_env_values = true)]
    api_key: Option<String>,

    /// A PEM file with the authorities that issue the service's certificate [default: the system's authorities]
    #[arg(long, env = "TOLLGATE_CA", value_name = "FILE")]
    ca: Option<String>,

    /// A PEM file with this client's certificate, where the service needs one
    #[arg(long, env = "TOLLGATE_CLIENT_CERT", value_name = "FILE", requires = "key")]
    cert: Option<String>,

    /// A PEM file with the private key of --cert
    #[arg(long, env = "TOLLGATE_CLIENT_KEY", value_name = "FILE", requires = "cert")]
    key: Option<String>,

    /// The format of the output: table, wide (more columns), json and yaml (as in the REST API), or name (for other commands)
    #[arg(short, long, value_enum, value_name = "FORMAT", hide_possible_values = true, default_value_t)]
    output: Format,

    /// When to use colours. By default, on terminals, unless NO_COLOR is set
    #[arg(long, value_enum, value_name = "WHEN", default_value_t)]
    color: ColorChoice,

    /// Why something is changed, for the audit log and the next operator
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,

    /// The actor for the audit log [default: $USER]
    #[arg(long, env = "TOLLGATE_ACTOR", value_name = "NAME")]
    actor: Option<String>,

    /// The longest time that an answer may take, such as 30s; of `wait`, the longest time to wait
    /// [default: 30s; none for `apply`, `diff`, `submit` and `wait`]
    #[arg(long, value_name = "DURATION", value_parser = span)]
    timeout: Option<Duration>,
}

/// Adds the caller's name, the key and the time limit to each call.
#[derive(Clone)]
pub(crate) struct Caller {
    actor: MetadataValue<Ascii>,
    reason: Option<MetadataValue<Ascii>>,
    bearer: Option<MetadataValue<Ascii>>,
    timeout: Option<Duration>,
}

impl Interceptor for Caller {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("tollgate-actor", self.actor.clone());
        if let Some(reason) = &self.reason {
            request.metadata_mut().insert("tollgate-reason", reason.clone());
        }
        if let Some(bearer) = &self.bearer {
            request.metadata_mut().insert("authorization", bearer.clone());
        }
        if let Some(timeout) = self.timeout {
            request.set_timeout(timeout);
        }
        Ok(request)
    }
}

type Wire = InterceptedService<Channel, Caller>;

/// A connection, and how answers are printed.
pub(crate) struct Session {
    wire: Wire,
    /// The connection itself, for what is no call.
    pub(super) channel: Channel,
    /// Where it is.
    pub(super) server: String,
    /// The namespace of names without a slash.
    pub(crate) namespace: String,
    /// Why something is changed; may be empty.
    pub(crate) reason: String,
    /// Where answers go.
    pub(crate) printer: Printer,
    /// The moment from which relative times are seen.
    pub(crate) now_us: i64,
}

impl Session {
    /// Connects. Calls have a time limit of 30 s where the flags give none.
    ///
    /// # Errors
    /// A URL or name that cannot be used, or a service that is not there.
    pub(crate) async fn open(args: ClientArgs) -> anyhow::Result<Self> {
        let timeout = args.timeout.unwrap_or(Duration::from_secs(30));
        Self::open_within(args, Some(timeout)).await
    }

    /// As [`Session::open`], but without a time limit where the flags give none.
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn open_for_long(args: ClientArgs) -> anyhow::Result<Self> {
        let timeout = args.timeout;
        Self::open_within(args, timeout).await
    }

    /// As [`Session::open`], where the time that the flags give is for what the caller waits for, and not for a call.
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn open_to_wait(mut args: ClientArgs) -> anyhow::Result<(Self, Option<Duration>)> {
        let patience = args.timeout.take();
        Ok((Self::open(args).await?, patience))
    }

    async fn open_within(args: ClientArgs, timeout: Option<Duration>) -> anyhow::Result<Self> {
        use_colours(args.color);
        let printer = Printer::stdout(args.output);
        let (server, mut endpoint) = endpoint(&args)?;
        if timeout.is_none() {
            endpoint = endpoint.http2_keep_alive_interval(ALIVE_EVERY).keep_alive_timeout(ALIVE_TIMEOUT);
        }
        let bearer = bearer(args.api_key.as_deref())?;
        let actor = actor(args.actor)?;
        let reason = reason(&args.reason)?;
        let channel = endpoint.connect().await.map_err(|error| Unreachable::new(&server, &error))?;
        Ok(Self {
            wire: InterceptedService::new(channel.clone(), Caller { actor, reason, bearer, timeout }),
            channel,
            server,
            namespace: args.namespace,
            reason: args.reason,
            printer,
            now_us: Clock::system().wall_us(),
        })
    }

    /// The Schedule Master.
    pub(crate) fn master(&self) -> ScheduleMasterServiceClient<Wire> {
        ScheduleMasterServiceClient::new(self.wire.clone()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    /// The Event Emitter.
    pub(crate) fn emitter(&self) -> EventEmitterServiceClient<Wire> {
        EventEmitterServiceClient::new(self.wire.clone()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    /// The Event Handler.
    pub(crate) fn handler(&self) -> EventHandlerServiceClient<Wire> {
        EventHandlerServiceClient::new(self.wire.clone()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    /// What workers speak to.
    pub(crate) fn workers(&self) -> WorkerServiceClient<Wire> {
        WorkerServiceClient::new(self.wire.clone()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    /// What an answer other than OK means for the attempt to `tried`, as in "pause schedule nightly".
    pub(crate) fn failure(&self, tried: impl Into<String>, status: Status) -> anyhow::Error {
        CallFailure::new(tried.into(), &self.server, &status).into()
    }

    /// As [`Self::failure`], of a call whose fields come from flags.
    pub(crate) fn failure_of_flags(
        &self,
        tried: impl Into<String>,
        status: Status,
        flags: &[(&str, &str)],
    ) -> anyhow::Error {
        CallFailure::new(tried.into(), &self.server, &status).with_flags(flags).into()
    }

    /// How much is shown, and seen from when.
    pub(crate) fn view(&self) -> View {
        View { now_us: self.now_us, wide: self.printer.format() == Format::Wide, everywhere: false }
    }

    /// Prints resources: as data, as their names, or what `text` makes of them.
    ///
    /// # Errors
    /// Those of writing.
    pub(crate) fn show<'a, M: Message + Name>(
        &self,
        message: &M,
        resources: impl IntoIterator<Item = &'a str>,
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        if !self.printer.is_name() {
            return self.printer.message(message, |_| text());
        }
        let names = resources.into_iter().map(|name| super::names::usable(&self.namespace, name) + "\n");
        self.printer.text(&names.collect::<String>())
    }

    /// Says something beside the answer, which programs do not read. Nobody may be left to read it.
    pub(crate) fn note(&self, text: &str) {
        let _nobody = writeln!(std::io::stderr(), "{text}");
    }

    /// Sees the clock again.
    pub(crate) fn look_at_the_clock(&mut self) {
        self.now_us = Clock::system().wall_us();
    }

    /// `namespaces/{namespace}`.
    pub(crate) fn parent(&self) -> String {
        super::names::parent(&self.namespace)
    }
}

impl ClientArgs {
    /// How the service is reached by what goes on while it is away, and connects again.
    ///
    /// # Errors
    /// A URL, name, key or file that cannot be used.
    pub(crate) fn connection(&self) -> anyhow::Result<Connection> {
        let (_, endpoint) = endpoint(self)?;
        let endpoint = endpoint
            .http2_keep_alive_interval(ALIVE_EVERY)
            .keep_alive_timeout(ALIVE_TIMEOUT)
            .keep_alive_while_idle(true);
        let mut metadata = MetadataMap::new();
        metadata.insert("tollgate-actor", actor(self.actor.clone())?);
        if let Some(reason) = reason(&self.reason)? {
            metadata.insert("tollgate-reason", reason);
        }
        if let Some(bearer) = bearer(self.api_key.as_deref())? {
            metadata.insert("authorization", bearer);
        }
        Ok(Connection { endpoint, metadata })
    }
}

/// Where the service is, and how it is spoken to there.
fn endpoint(args: &ClientArgs) -> anyhow::Result<(String, Endpoint)> {
    let server = match &args.server {
        server if server.contains("://") => server.clone(),
        server => format!("http://{server}"),
    };
    let expected = "expected http://HOST:PORT or https://HOST:PORT";
    let wrong = || Usage(format!("--server: {server:?} is not allowed, {expected}"));
    if !server.starts_with("http://") && !server.starts_with("https://") {
        return Err(wrong().into());
    }
    let mut endpoint = Endpoint::from_shared(server.clone()).map_err(|_| wrong())?;
    if server.starts_with("https://") {
        endpoint = endpoint.tls_config(tls(args)?).map_err(|error| Unreachable::new(&server, &error))?;
    }
    Ok((server, endpoint.connect_timeout(CONNECT_TIMEOUT)))
}

fn use_colours(choice: ColorChoice) {
    match choice {
        ColorChoice::Auto => anstream::ColorChoice::Auto,
        ColorChoice::Always => anstream::ColorChoice::Always,
        ColorChoice::Never => anstream::ColorChoice::Never,
    }
    .write_global();
}

/// The reason as a header carries it.
fn reason(text: &str) -> Result<Option<MetadataValue<Ascii>>, Usage> {
    let text = text.trim();
    if text.len() > REASON_MAX_BYTES {
        let given = text.len();
        return Err(Usage(format!(
            "--reason: {given} bytes are not allowed, expected at most {REASON_MAX_BYTES}"
        )));
    }
    Ok(utf8_percent_encode(text, NON_ALPHANUMERIC).to_string().parse().ok().filter(|_| !text.is_empty()))
}

/// Whom to believe, and what to show.
fn tls(args: &ClientArgs) -> anyhow::Result<ClientTlsConfig> {
    let read = |flag: &str, file: &str| {
        std::fs::read(file)
            .map_err(|error| Usage(format!("{flag}: {file:?} cannot be read: {}", plain(&error))))
    };
    let mut tls = match &args.ca {
        Some(file) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read("--ca", file)?)),
        None => ClientTlsConfig::new().with_enabled_roots(),
    };
    if let (Some(cert), Some(key)) = (&args.cert, &args.key) {
        tls = tls.identity(Identity::from_pem(read("--cert", cert)?, read("--key", key)?));
    }
    Ok(tls)
}

/// The header that shows a key.
fn bearer(key: Option<&str>) -> Result<Option<MetadataValue<Ascii>>, Usage> {
    let Some(key) = key.map(str::trim).filter(|key| !key.is_empty()) else { return Ok(None) };
    // A wrong key is not repeated in an error.
    let wrong = |_| Usage("--api-key: another text is given, expected tgk_<id>_<secret>".to_owned());
    let mut bearer: MetadataValue<Ascii> = format!("Bearer {key}").parse().map_err(wrong)?;
    bearer.set_sensitive(true);
    Ok(Some(bearer))
}

/// Who asks: the flag or variable, else $USER.
fn actor(given: Option<String>) -> Result<MetadataValue<Ascii>, Usage> {
    let usable =
        |actor: &String| !actor.is_empty() && actor.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let given = given.filter(|actor| !actor.is_empty());
    if let Some(wrong) = given.as_ref().filter(|actor| !usable(actor)) {
        return Err(Usage(format!("--actor: {wrong:?} is not allowed, expected printable ASCII")));
    }
    let actor = given.or_else(|| std::env::var("USER").ok().filter(usable));
    let actor = actor.and_then(|actor| actor.parse().ok());
    Ok(actor.unwrap_or_else(|| MetadataValue::from_static("anonymous")))
}
