//! `tollgate audit`: who changed what.

use clap::Args;
use prost_types::value::Kind;
use tollgate_proto::v1;

use super::names::resource;
use super::table::Table;
use super::when::exact;
use super::{Session, pages, rows};

/// Arguments of `audit`.
#[derive(Args, Clone, Debug)]
pub(crate) struct AuditArgs {
    /// The only resource whose changes are shown, such as schedule/nightly or policy/imports
    #[arg(value_name = "RESOURCE")]
    resource: Option<String>,

    /// The most entries that are shown; 0 means all
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: u32,
}

/// Prints the audit log, latest first.
///
/// # Errors
/// What the service says, or those of writing.
pub(crate) async fn run(session: Session, args: AuditArgs) -> anyhow::Result<()> {
    let about = args.resource.map(|text| format!("resource={}", resource(&session.namespace, &text)));
    let filter = about.unwrap_or_default();
    let (audit_entries, next_page_token) = pages::collect(args.limit, async |page_size, page_token| {
        let parent = session.parent();
        let request = v1::ListAuditEntriesRequest { parent, page_size, page_token, filter: filter.clone() };
        let answer = session.master().list_audit_entries(request).await;
        let page = answer.map_err(|status| session.failure("read the audit log", status))?.into_inner();
        Ok((page.audit_entries, page.next_page_token))
    })
    .await?;
    let answer = v1::ListAuditEntriesResponse { audit_entries, next_page_token };
    session.printer.message(&answer, |answer| table(&answer.audit_entries))
}

fn table(entries: &[v1::AuditEntry]) -> String {
    let mut table = Table::new(["TIME", "ACTOR", "ACTION", "RESOURCE", "GENERATION", "CHANGES"]);
    for entry in entries {
        let mut parts = entry.resource.rsplit('/');
        let (id, collection) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        table.row([
            exact(entry.time.as_ref()),
            entry.actor.clone(),
            entry.action.clone(),
            format!("{collection}/{id}"),
            entry.generation.to_string(),
            changes(entry),
        ]);
    }
    rows::or_none(&table, "no entries")
}

/// Each changed field with its new value, or its path alone where the value is long.
fn changes(entry: &v1::AuditEntry) -> String {
    let Some(difference) = &entry.difference else { return String::new() };
    let texts = difference.fields.iter().map(|(path, change)| {
        let side = |name: &str| match &change.kind {
            Some(Kind::StructValue(sides)) => sides.fields.get(name).and_then(scalar),
            _ => None,
        };
        match (side("old"), side("new")) {
            (Some(old), Some(new)) => format!("{path}: {old} -> {new}"),
            (None, Some(new)) => format!("{path}: {new}"),
            _ => path.clone(),
        }
    });
    texts.collect::<Vec<_>>().join(", ")
}

fn scalar(value: &prost_types::Value) -> Option<String> {
    match value.kind.as_ref()? {
        Kind::StringValue(text) => Some(text.clone()),
        Kind::NumberValue(number) => Some(number.to_string()),
        Kind::BoolValue(truth) => Some(truth.to_string()),
        _ => None,
    }
}
