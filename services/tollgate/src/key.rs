//! `tollgate key`: makes, lists and revokes API keys, in the store itself, because the first key is made before any can be
//! shown.
//!
//! Invariant: a key's secret is printed once, to standard output, and kept nowhere.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tollgate_auth::{KeyText, Scopes};
use tollgate_clock::Clock;
use tollgate_proto::convert::names;
use tollgate_store::Store;
use tollgate_store::keys::ApiKey;
use tollgate_store::plan::Audit;
use uuid::Uuid;

use crate::client::output::{Format, Printer};
use crate::client::table::Table;
use crate::client::when;
use crate::config::{self, ServeArgs};
use crate::usage::{Usage, span};

/// Live keys of one name: the one in use, and the one that follows it.
const LIVE_MAX: usize = 2;

/// Arguments of `key`.
#[derive(Args, Clone, Debug)]
pub(crate) struct KeyArgs {
    #[command(subcommand)]
    command: KeyCommand,

    /// The store that holds the keys [default: the setting of `serve`]
    #[arg(long, value_name = "URL", global = true)]
    store: Option<String>,

    /// The file with the settings of `serve`
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<String>,

    /// The format of the output
    #[arg(short, long, value_enum, default_value_t, global = true)]
    output: Format,
}

#[derive(Subcommand, Clone, Debug)]
enum KeyCommand {
    /// Create a key, and print it once. Two keys of one name may be live, so that a new one can replace the old one
    Create(CreateArgs),
    /// List the keys, without their secrets, which are not stored
    List,
    /// Revoke a key. Processes stop accepting it within two seconds
    Revoke {
        /// The key's id, as `list` shows it
        id: String,
    },
}

#[derive(Args, Clone, Debug)]
struct CreateArgs {
    /// The name of the key. The audit log notes it as the actor
    name: String,

    /// The scopes of the key: read, schedule:write, token:release, admin (everything)
    #[arg(long, value_name = "LIST")]
    scopes: Scopes,

    /// The only namespace that the key reaches
    #[arg(long, value_name = "NAME", required_unless_present = "all_namespaces")]
    namespace: Option<String>,

    /// The key reaches all namespaces and, with admin, the installation as a whole
    #[arg(long, conflicts_with = "namespace")]
    all_namespaces: bool,

    /// The time after which the key expires, such as 90d
    #[arg(long, value_name = "DURATION", value_parser = span)]
    expires_in: Option<Duration>,

    /// A note for people
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
}

/// Carries out the command.
///
/// # Errors
/// A store that cannot be opened, a name that has two live keys, an id that there is not.
pub(crate) fn run(args: KeyArgs) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(Box::pin(carry_out(args)))
}

async fn carry_out(args: KeyArgs) -> anyhow::Result<()> {
    let flags = args.store.map(|store| ("store", store)).into_iter().collect::<BTreeMap<_, _>>();
    let settings = ServeArgs { file: args.config, flags };
    let url = config::load(&settings, &std::env::vars().collect())?.config.store;
    let printer = Printer::stdout(args.output);
    printer.refuse_names()?;
    let store =
        tollgate_store::open_beside(&url).await.context("cannot open the store that --store names")?;
    let now_us = Clock::system().wall_us();
    let done = match args.command {
        KeyCommand::Create(create) => make(store.as_ref(), &printer, create, now_us).await,
        KeyCommand::List => list(store.as_ref(), &printer, now_us).await,
        KeyCommand::Revoke { id } => revoke(store.as_ref(), &printer, &id, now_us).await,
    };
    store.close().await;
    done
}

async fn make(store: &dyn Store, printer: &Printer, args: CreateArgs, now_us: i64) -> anyhow::Result<()> {
    let id = |flag: &str, text: &str| names::id(flag, text).map_err(|error| Usage(error.to_string()));
    let name = id("NAME", &args.name)?;
    let namespace = args.namespace.as_deref().map(|namespace| id("--namespace", namespace)).transpose()?;
    let expires_us = match args.expires_in {
        None => None,
        Some(span) => {
            ensure!(
                !span.is_zero(),
                Usage("--expires-in: 0s is not allowed, expected a time to come".to_owned())
            );
            Some(now_us.saturating_add(i64::try_from(span.as_micros()).unwrap_or(i64::MAX)))
        }
    };
    let text = KeyText::generate();
    let key = ApiKey {
        id: text.id().to_owned(),
        name,
        namespace,
        scopes: args.scopes.words(),
        hash: text.hash(),
        note: args.note,
        created_us: now_us,
        expires_us,
        revoked_us: None,
    };
    let difference = json!({"scopes": {"new": key.scopes}, "id": {"new": key.id}});
    store
        .create_key(&key, LIVE_MAX, note(&key, "create", now_us, difference))
        .await
        .context("the key is not created")?;
    if printer.is_json() {
        let mut shown = row_json(&key, now_us);
        shown["key"] = Value::String(text.reveal());
        return printer.json(&shown);
    }
    let place =
        key.namespace.as_ref().map_or("all namespaces".to_owned(), |own| format!("the namespace {own}"));
    // What is printed beside the key must not get into a file of keys.
    let _nobody = writeln!(
        std::io::stderr(),
        "a key for {} with {} in {place}; it is shown this once:",
        key.name,
        key.scopes.join(", ")
    );
    printer.line(&text.reveal())
}

async fn list(store: &dyn Store, printer: &Printer, now_us: i64) -> anyhow::Result<()> {
    let keys = store.keys().await.context("cannot read the keys")?;
    if printer.is_json() {
        return printer.json(&keys.iter().map(|key| row_json(key, now_us)).collect());
    }
    let mut table = Table::new(["ID", "NAME", "NAMESPACE", "SCOPES", "STATE", "CREATED", "EXPIRES", "NOTE"]);
    for key in keys {
        table.row([
            key.id.clone(),
            key.name.clone(),
            key.namespace.clone().unwrap_or_else(|| "(all)".to_owned()),
            key.scopes.join(","),
            state(&key, now_us).to_owned(),
            moment(Some(key.created_us)),
            moment(key.expires_us),
            key.note,
        ]);
    }
    printer.text(&table.to_string())
}

async fn revoke(store: &dyn Store, printer: &Printer, id: &str, now_us: i64) -> anyhow::Result<()> {
    let keys = store.keys().await.context("cannot read the keys")?;
    let key = keys.into_iter().find(|key| key.id == id);
    let key = key.with_context(|| format!("there is no key {id:?}; `tollgate key list` shows them"))?;
    let difference = json!({"id": {"old": key.id}});
    let key = store
        .revoke_key(id, now_us, note(&key, "revoke", now_us, difference))
        .await
        .context("the key is not revoked")?;
    if printer.is_json() {
        return printer.json(&row_json(&key, now_us));
    }
    printer.line(&format!("key {id} of {} is revoked", key.name))
}

fn note(key: &ApiKey, action: &str, at_us: i64, difference: Value) -> Audit {
    let user = std::env::var("USER").ok().filter(|user| !user.is_empty());
    Audit {
        id: Uuid::now_v7(),
        at_us,
        actor: format!("tollgate key/{}", user.unwrap_or_else(|| "anonymous".to_owned())),
        namespace: key.namespace.clone().unwrap_or_default(),
        resource: format!("keys/{}", key.name),
        action: action.to_owned(),
        difference,
    }
}

fn state(key: &ApiKey, now_us: i64) -> &'static str {
    match key.revoked_us {
        Some(_) => "REVOKED",
        None if key.is_live(now_us) => "LIVE",
        None => "EXPIRED",
    }
}

fn moment(us: Option<i64>) -> String {
    when::exact(us.map(tollgate_proto::convert::timestamp).as_ref())
}

fn row_json(key: &ApiKey, now_us: i64) -> Value {
    json!({
        "id": key.id,
        "name": key.name,
        "namespace": key.namespace,
        "scopes": key.scopes,
        "state": state(key, now_us),
        "createTime": moment(Some(key.created_us)),
        "expireTime": key.expires_us.map(|us| moment(Some(us))),
        "revokeTime": key.revoked_us.map(|us| moment(Some(us))),
        "note": key.note,
    })
}
