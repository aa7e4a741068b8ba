//! `tollgate secrets`: keys that seal what is secret at rest, and bringing everything under a new one.
//!
//! Where a process finds its keys is decided here for `serve` as well.

use std::fs;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use chrono::DateTime;
use clap::{Args, Subcommand};
use tollgate_clock::Clock;
use tollgate_schedule_master::reseal;
use tollgate_secrets::{Keys, generate_line, is_installation_clear};
use tollgate_store::Store;

use crate::client::output::{Format, Printer};
use crate::config::{self, SECRET_KEYS_VARIABLE, ServeArgs, ServeConfig};
use crate::usage::Usage;

/// Arguments of `secrets`.
#[derive(Args, Debug)]
pub(crate) struct SecretsArgs {
    #[command(subcommand)]
    command: SecretsCommand,
}

#[derive(Subcommand, Debug)]
enum SecretsCommand {
    /// Print a new key, as a line for the file that --secret-keys-file names
    GenerateKey {
        /// The id of the key; today's date by default
        id: Option<String>,
    },
    /// Seal everything that is stored under the first key. The command may run beside the service, be interrupted and be repeated
    Rotate(Box<ServeArgs>),
}

/// Carries out a command.
///
/// # Errors
/// Why it could not be done, for people.
pub(crate) fn run(args: SecretsArgs) -> anyhow::Result<()> {
    match args.command {
        SecretsCommand::GenerateKey { id } => {
            let id = id.unwrap_or_else(|| {
                let now = DateTime::from_timestamp_micros(Clock::system().wall_us()).unwrap_or_default();
                now.format("%Y-%m-%d").to_string()
            });
            let line = generate_line(&id).map_err(Usage)?;
            Printer::stdout(Format::Table).text(&format!("{line}\n"))
        }
        SecretsCommand::Rotate(args) => {
            let config = config::load(&args, &std::env::vars().collect())?.config;
            config::logging::start(&config.log, config.log_format)?;
            tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(rotate(&config))
        }
    }
}

/// The keys of a process; none where none are configured.
///
/// # Errors
/// A file that cannot be read, a line that is no key, and two places at once.
pub(crate) fn keys(config: &ServeConfig) -> anyhow::Result<Keys> {
    let Some(file) = &config.secret_keys_file else { return Ok(config.secret_keys.clone()) };
    if !config.secret_keys.is_empty() {
        bail!("secret_keys_file and {SECRET_KEYS_VARIABLE} are both set; keep one of them");
    }
    let text = fs::read_to_string(file).with_context(|| format!("secret_keys_file: cannot read {file:?}"))?;
    warn_of_readers(file);
    let keys = Keys::parse(&text).with_context(|| format!("secret_keys_file: {file:?}"))?;
    if keys.is_empty() {
        bail!("secret_keys_file: {file:?} holds no key; `tollgate secrets generate-key` prints one");
    }
    Ok(keys)
}

/// The installation's secret in clear. It is sealed before anything is made with it: until a queue shard has had an owner.
/// Later that is for [`rotate`], as processes of an older version may be at work, which could not read it when they start again.
///
/// # Errors
/// A secret that these keys do not open, and those of the store.
pub(crate) async fn of_installation(store: &Arc<dyn Store>, keys: &Keys) -> anyhow::Result<[u8; 32]> {
    let installation = store.installation().await?;
    let (id, stored) = (installation.id, &installation.secret);
    let secret = keys.open_installation(id, stored)?;
    if !keys.is_empty() && is_installation_clear(stored) {
        if store.leases().await?.iter().all(|lease| lease.epoch == 0)
            && let Some(sealed) = keys.reseal_installation(id, stored)?
        {
            // Another process that starts now has sealed it as well as this one.
            store.replace_installation_secret(stored, &sealed).await?;
            store.scrub().await?;
            return Ok(secret);
        }
        tracing::warn!(
            "the installation's secret, which seals event ids, is stored in clear; once all processes are of this version, \
             `tollgate secrets rotate` seals it"
        );
    }
    Ok(secret)
}

#[cfg(unix)]
fn warn_of_readers(file: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = fs::metadata(file).map_or(0, |metadata| metadata.permissions().mode());
    if mode & 0o007 != 0 {
        tracing::warn!("secret_keys_file: everybody on this machine may read {file:?}; chmod o= {file}");
    }
}

#[cfg(not(unix))]
fn warn_of_readers(_: &str) {}

/// Of each queue shard so much of what is to move is looked at.
const MOVING_MAX: usize = 1_000;

async fn rotate(config: &ServeConfig) -> anyhow::Result<()> {
    let keys = keys(config)?;
    let Some(first) = keys.ids().next().map(str::to_owned) else {
        return Err(Usage(format!(
            "no secret keys: name a file with --secret-keys-file, or set {SECRET_KEYS_VARIABLE}"
        ))
        .into());
    };
    let store = tollgate_store::open_beside(&config.store).await.context("cannot open the store")?;
    let to_move = async || store.residents_to_move(MOVING_MAX).await.context("cannot read what is to move");
    let before = to_move().await?;
    let done = reseal(&*store, &keys).await;
    let after = to_move().await;
    store.close().await;
    let (done, after) = (done?, after?);
    let mut text =
        format!("{} rows hold secrets; {} were brought under key {first:?}\n", done.rows, done.resealed);
    if !done.rewritten {
        text.push_str(
            "the database is in use or a server's: what the file, backups and logs held before is still there\n",
        );
    }
    Printer::stdout(Format::Table).text(&text)?;
    if before != after {
        // What goes from a shard that is still to be looked through to one that has been keeps its old key.
        bail!("policies or schedules moved to other queue shards meanwhile; run the command again");
    }
    if done.overtaken > 0 {
        bail!("{} rows changed while they were read; run the command again", done.overtaken);
    }
    if !done.failed.is_empty() {
        bail!(
            "{} rows could not be sealed and stay as they were:\n  {}",
            done.failed.len(),
            done.failed.join("\n  ")
        );
    }
    Ok(())
}
