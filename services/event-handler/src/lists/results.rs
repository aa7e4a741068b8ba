//! Takes the items of a run out of the results of the run before.
//!
//! In: a run that follows, and the results that the events of the one before it have left. Out: items, in the order of these
//! events. Invariants: the results do not change any more, so that what is wrong with them stays wrong; no more of them is in
//! memory than [`AT_ONCE`]. Not here: what becomes of items ([`super::write`]).

use bytes::Bytes;
use tollgate_core::model::{HttpItems, ItemsFrom, ListFormat, Predecessor, ResultItems, Run};
use tollgate_items::Format;
use tollgate_proto::convert::names;
use tollgate_secrets::result_field;
use tollgate_target::NoPage;

use super::read::PageReader;
use super::write::{Broken, Fetched, Writer};

/// Results that are read at once.
const AT_ONCE: u32 = 16;

/// Where the items of a run are that has them from results: a list that is there when the run falls due.
pub(super) fn list_of(run: &Run) -> Option<ItemsFrom> {
    let before = run.predecessor.as_deref()?;
    let ResultItems { key_field, units_field } = *before.items.clone()?;
    let list = ItemsFrom::http(names::of_run(&run.namespace, before.shard, before.run));
    let http = HttpItems { format: Some(ListFormat::Json), key_field, units_field, ..list.http };
    Some(ItemsFrom { http, fetch_ahead_s: 0, ..list })
}

/// Writes the items.
pub(super) async fn items(
    before: &Predecessor,
    list: &HttpItems,
    mut writer: Writer<'_>,
) -> Result<Fetched, Broken> {
    let mut next = 0;
    // It has gone where its dead events were tried again, if its policy has moved.
    let moved = Box::pin(writer.shared.moved_to((before.shard, before.shard), before.run)).await?;
    let shard = moved.unwrap_or(before.shard);
    loop {
        let store = &writer.shared.store;
        let results = store.results(shard, before.run, next, AT_ONCE).await?;
        let Some((last, _)) = results.last() else { break };
        next = last + 1;
        for (index, stored) in &results {
            let field = result_field(*index);
            let opened = writer.shared.options.keys.open(before.run.0, &field, stored);
            // A process that has the key may read it later.
            let clear = opened.map_err(|error| of_event(*index, NoPage::yet(error.to_string())))?;
            let read = of_one(clear, list, &mut writer).await;
            read.map_err(|broken| match broken {
                Broken::NoPage(no_page) => of_event(*index, NoPage::ever(no_page.message)).into(),
                other => other,
            })?;
        }
    }
    writer.finish().await.map_err(|broken| match broken {
        Broken::NoPage(_) => NoPage::ever("the results of the run before have no items").into(),
        other => other,
    })
}

fn of_event(index: u32, no_page: NoPage) -> NoPage {
    NoPage { message: format!("the result of event {index}: {}", no_page.message), ..no_page }
}

/// Takes the items of one result: a list of them, or one.
async fn of_one(clear: String, list: &HttpItems, writer: &mut Writer<'_>) -> Result<(), Broken> {
    let listed = if clear.trim_start().starts_with('[') { clear } else { format!("[{clear}]") };
    let mut reader = PageReader::new(list, Format::Json)?;
    reader.feed(Bytes::from(listed))?;
    reader.end(list)?;
    writer.take(&mut reader).await
}
