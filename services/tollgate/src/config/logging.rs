//! Decides where log lines go and how they look: to standard error, as the configuration says.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

use super::LogFormat;

/// The database's client logs nothing of its connections: the code that needs the store says that it is away. The
/// setting may ask for more.
const LIBRARIES: &str = "sqlx=error,sqlx_core=error,sqlx_core::pool=off";

/// Starts logging for the rest of the process.
///
/// # Errors
/// A filter that cannot be read, or logging that has been started already.
pub(crate) fn start(filter: &str, format: LogFormat) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(format!("{LIBRARIES},{filter}"))?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_span_events(FmtSpan::NONE)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()));
    let started = match format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("logging cannot be started: {error}"))
}
