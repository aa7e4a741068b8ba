//! `tollgate commands`: a process that takes commands from SQS queues and Kafka topics. What it does with them:
//! `tollgate_commands`.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tollgate_commands::{Connection, Op, QueueConfig};

use crate::client::output::Printer;
use crate::client::{ClientArgs, output};
use crate::config::{LogFormat, logging};
use crate::usage::{Usage, plain};

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Lines {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Arguments of `commands`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CommandsArgs {
    /// The YAML file that says which queues are read, and what each may do
    #[arg(short, long = "file", value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,

    /// Check the file, show its queues, and read none
    #[arg(long)]
    check: bool,

    /// Serve /metrics, /livez and /readyz at this address, such as 127.0.0.1:7412 [default: nowhere]
    #[arg(long, env = "TOLLGATE_LISTEN_METRICS", value_name = "ADDRESS")]
    listen_metrics: Option<SocketAddr>,

    /// What is logged, such as info, or warn,tollgate_commands=debug
    #[arg(long, env = "TOLLGATE_LOG", value_name = "FILTER", default_value = "info")]
    log: String,

    /// How log lines look
    #[arg(long, env = "TOLLGATE_LOG_FORMAT", value_enum, value_name = "FORMAT", default_value_t)]
    log_format: Lines,
}

/// Reads the queues until SIGTERM or Ctrl-C.
///
/// # Errors
/// What is wrong with the file or the flags; an address that cannot be listened on.
pub(crate) fn run(args: &CommandsArgs, client: &ClientArgs) -> anyhow::Result<()> {
    let queues = tollgate_commands::read(&args.file).map_err(|wrong| Usage(wrong.join("\n")))?;
    let connection = client.connection()?;
    if args.check {
        return show(&queues);
    }
    let format = if args.log_format == Lines::Json { LogFormat::Json } else { LogFormat::Text };
    logging::start(&args.log, format).map_err(|error| Usage(format!("--log: {error}")))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let done = runtime.block_on(until_interrupted(queues, connection, args.listen_metrics));
    // What does not come to its end keeps nobody from leaving: it comes again.
    runtime.shutdown_background();
    done
}

fn show(queues: &[QueueConfig]) -> anyhow::Result<()> {
    let printer = Printer::stdout(output::Format::Table);
    for queue in queues {
        let allowed: Vec<&str> = queue.allow.iter().map(|op| Op::word(*op)).collect();
        let QueueConfig { name, source, namespace, .. } = queue;
        printer
            .line(&format!("{name}: {source}, for {} in the namespace {namespace}", allowed.join(", ")))?;
    }
    Ok(())
}

async fn until_interrupted(
    queues: Vec<QueueConfig>,
    connection: Connection,
    listen: Option<SocketAddr>,
) -> anyhow::Result<()> {
    // Before anybody can know that it is there, and end it.
    let terminate = signal(SignalKind::terminate())?;
    let listener = match listen {
        Some(address) => {
            let bound = TcpListener::bind(address).await;
            let listener = bound.map_err(|error| {
                anyhow!("--listen-metrics: cannot listen on {address}: {}", plain(&error))
            })?;
            tracing::info!("metrics at http://{}/metrics", listener.local_addr()?);
            Some(listener)
        }
        None => None,
    };
    let stop = CancellationToken::new();
    tokio::spawn(interrupted(terminate, stop.clone()));
    let done = tollgate_commands::run(queues, connection, listener, stop).await;
    done.map_err(|said| anyhow!("{said}"))?;
    tracing::info!("stopped");
    Ok(())
}

async fn interrupted(mut terminate: Signal, stop: CancellationToken) {
    let name = tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = tokio::signal::ctrl_c() => "SIGINT",
    };
    tracing::info!("{name} received, stopping");
    stop.cancel();
}
