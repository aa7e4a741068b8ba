//! Opening, closing, the schema, the installation.

use tollgate_store::StoreError;

use super::place::Place;

pub(crate) async fn identity_is_made_once_and_stays(place: &Place) {
    let store = place.open().await;
    let first = store.installation().await.unwrap();
    assert_eq!(first.shards, 64);
    assert!(first.secret.iter().any(|byte| *byte != 0));
    store.close().await;
    drop(store);
    let again = place.open().await;
    assert!(again.installation().await.unwrap() == first);
}

pub(crate) async fn several_may_open_at_once_or_are_told(place: &Place) {
    let opened = futures::future::join_all((0..4).map(|_| tollgate_store::open(&place.url, 2))).await;
    let (open, refused): (Vec<_>, Vec<_>) = opened.into_iter().partition(Result::is_ok);
    if place.is_postgres() {
        assert!(refused.is_empty(), "{:?}", refused.into_iter().filter_map(Result::err).collect::<Vec<_>>());
        let mut ids = Vec::new();
        for store in open.into_iter().flatten() {
            ids.push(store.installation().await.unwrap().id);
        }
        ids.dedup();
        assert_eq!(ids.len(), 1, "all see the same installation");
    } else {
        assert_eq!(open.len(), 1);
        for error in refused.into_iter().filter_map(Result::err) {
            assert!(matches!(&error, StoreError::Locked { path } if path.ends_with("store.db")), "{error}");
        }
    }
}

const FUTURE: &str = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
                      VALUES (9999, 'from the future', true, '', 0)";

/// A newer version has been here, and says that this one can work beside it.
pub(crate) async fn newer_schema_that_this_version_can_live_with_is_taken(place: &Place) {
    let store = place.open().await;
    place.sql(FUTURE).await;
    store.ping().await.unwrap();
    store.close().await;
    drop(store);
    let store = place.open().await;
    assert_eq!(store.leases().await.unwrap().len(), 64);
    store.close().await;
    let newest = "SELECT CAST(max(version) AS bigint) FROM _sqlx_migrations";
    assert_eq!(place.number(newest).await, 9999, "and it is left as it is");
}

pub(crate) async fn newer_schema_is_refused(place: &Place) {
    let store = place.open().await;
    store.close().await;
    drop(store);
    place.sql(FUTURE).await;
    place.sql("UPDATE schema_compatibility SET oldest = 9999").await;
    let error = tollgate_store::open(&place.url, 2).await.err().expect("a newer schema is refused");
    assert!(matches!(error, StoreError::WrongSchema { found: 9999, known } if known < 100), "{error}");
}

pub(crate) async fn modified_identity_is_named(place: &Place) {
    let store = place.open().await;
    store.close().await;
    drop(store);
    place.sql("UPDATE installation SET shards = 0").await;
    let error = tollgate_store::open(&place.url, 2).await.err().expect("no shards");
    assert!(matches!(error, StoreError::Corrupt { table: "installation", .. }), "{error}");
}

/// The secret may be sealed, which is for others to open; once only, whoever tries.
pub(crate) async fn the_secret_may_be_stored_in_another_form(place: &Place) {
    let store = place.open().await;
    let first = store.installation().await.unwrap();
    let sealed = b"enc:v1:k1:AAAA";
    assert!(store.replace_installation_secret(&first.secret, sealed).await.unwrap());
    assert!(!store.replace_installation_secret(&first.secret, b"enc:v1:k2:").await.unwrap());
    assert!(store.stored_installation().await.unwrap() == (first.id, sealed.to_vec()));
    store.close().await;
    drop(store);
    let again = place.open().await.installation().await.unwrap();
    assert!(again.id == first.id && again.secret == sealed);
}

pub(crate) async fn sixty_four_shards_have_no_owner(place: &Place) {
    let store = place.open().await;
    let leases = store.leases().await.unwrap();
    let shards: Vec<u16> = leases.iter().map(|lease| lease.shard).collect();
    assert_eq!(shards, (0..64).collect::<Vec<_>>());
    assert!(leases.iter().all(|lease| lease.owner.is_empty() && lease.epoch == 0));
}

/// SQLite keeps text in integer columns where nobody forbids it.
pub(crate) async fn every_table_is_strict(place: &Place) {
    if place.is_postgres() {
        return;
    }
    place.open().await;
    let of_ours = "FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite%' \
                   AND name <> '_sqlx_migrations'";
    assert!(place.number(&format!("SELECT count(*) {of_ours}")).await > 20);
    assert_eq!(place.number(&format!("SELECT count(*) {of_ours} AND NOT strict")).await, 0);
}

/// A commit writes each page that it touches, so pages are small. Those of a file that was made with others stay as they are.
pub(crate) async fn pages_are_small_and_others_are_taken(place: &Place) {
    if place.is_postgres() {
        return;
    }
    let store = place.open().await;
    let first = store.installation().await.unwrap();
    store.close().await;
    drop(store);
    let page = "SELECT page_size FROM pragma_page_size";
    assert_eq!(place.number(page).await, 1_024);
    place.sql("PRAGMA journal_mode = DELETE; PRAGMA page_size = 4096; VACUUM").await;
    let store = place.open().await;
    assert!(store.installation().await.unwrap() == first);
    assert_eq!(place.number(page).await, 4_096);
}

pub(crate) async fn ping_answers(place: &Place) {
    place.open().await.ping().await.unwrap();
}

pub(crate) async fn closed_store_is_unreachable(place: &Place) {
    let store = place.open().await;
    store.close().await;
    let error = store.ping().await.expect_err("it is closed");
    assert!(matches!(error, StoreError::Unreachable(_)), "{error}");
}
