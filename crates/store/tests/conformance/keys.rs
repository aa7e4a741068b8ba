//! API keys.

use tollgate_store::StoreError;
use tollgate_store::keys::ApiKey;

use super::place::Place;
use super::samples::{NOON_US, SECOND_US, audit};

fn key(id: &str, name: &str) -> ApiKey {
    ApiKey {
        id: id.to_owned(),
        name: name.to_owned(),
        namespace: Some("team".to_owned()),
        scopes: vec!["read".to_owned(), "token:release".to_owned()],
        hash: [7; 32],
        note: "Übung\0".to_owned(),
        created_us: NOON_US,
        expires_us: None,
        revoked_us: None,
    }
}

pub(crate) async fn keys_are_read_as_written(place: &Place) {
    let store = place.open().await;
    let one = ApiKey { note: "Übung".to_owned(), ..key("b", "ci") };
    let two = ApiKey {
        namespace: None,
        scopes: vec!["admin".to_owned()],
        expires_us: Some(NOON_US + 1),
        ..key("a", "ops")
    };
    for key in [&one, &two] {
        store.create_key(key, 2, audit("keys/x")).await.unwrap();
    }
    let two = ApiKey { note: "Übung\u{fffd}".to_owned(), ..two };
    assert_eq!(store.keys().await.unwrap(), [one.clone(), two.clone()], "by name");
    assert_eq!(store.live_keys(NOON_US).await.unwrap(), [two, one.clone()], "by age and id");
    assert_eq!(store.live_keys(NOON_US + 1).await.unwrap(), [one], "one has expired");
    assert_eq!(store.audit("default", &Default::default(), None, 10).await.unwrap().len(), 2);
}

pub(crate) async fn a_name_has_so_many_live_keys(place: &Place) {
    let store = place.open().await;
    let create = async |key: ApiKey| store.create_key(&key, 2, audit("keys/ci")).await;
    create(key("a", "ci")).await.unwrap();
    create(ApiKey { expires_us: Some(NOON_US + SECOND_US), ..key("b", "ci") }).await.unwrap();
    create(key("c", "other")).await.unwrap();
    let third = create(key("d", "ci")).await.unwrap_err();
    assert!(matches!(&third, StoreError::Conflict { what } if what.contains("a, b")), "{third}");
    let foreign = create(ApiKey { namespace: None, ..key("d", "other") }).await.unwrap_err();
    assert!(
        matches!(&foreign, StoreError::Conflict { what } if what.contains("all namespaces")),
        "{foreign}"
    );
    let taken = create(key("c", "new")).await.unwrap_err();
    assert!(matches!(&taken, StoreError::Conflict { .. }), "{taken}");
    // One has expired by then.
    create(ApiKey { created_us: NOON_US + SECOND_US, ..key("d", "ci") }).await.unwrap();
    assert_eq!(
        store.audit("default", &Default::default(), None, 10).await.unwrap().len(),
        4,
        "refusals leave no trace"
    );
}

pub(crate) async fn a_revoked_key_stays_revoked(place: &Place) {
    let store = place.open().await;
    store.create_key(&key("a", "ci"), 2, audit("keys/ci")).await.unwrap();
    let revoke = async |id: &'static str, at_us| store.revoke_key(id, at_us, audit("keys/ci")).await;
    assert_eq!(revoke("a", NOON_US + 5).await.unwrap().revoked_us, Some(NOON_US + 5));
    assert_eq!(revoke("a", NOON_US + 9).await.unwrap().revoked_us, Some(NOON_US + 5), "once");
    assert!(store.live_keys(NOON_US).await.unwrap().is_empty());
    assert!(!store.keys().await.unwrap()[0].is_live(NOON_US));
    let missing = revoke("b", NOON_US).await.unwrap_err();
    assert!(matches!(missing, StoreError::NotFound { .. }), "{missing}");
    assert_eq!(
        store.audit("default", &Default::default(), None, 10).await.unwrap().len(),
        2,
        "made and revoked, once each"
    );
}

pub(crate) async fn a_corrupt_key_is_no_key(place: &Place) {
    let store = place.open().await;
    for id in ["a", "b"] {
        store.create_key(&key(id, id), 2, audit("keys/ci")).await.unwrap();
    }
    let short = if place.is_postgres() { "'\\x01'" } else { "x'01'" };
    place.sql(&format!("UPDATE api_keys SET hash = {short} WHERE id = 'a'")).await;
    let live: Vec<String> = store.live_keys(NOON_US).await.unwrap().into_iter().map(|key| key.id).collect();
    assert_eq!(live, ["b"]);
}

pub(crate) async fn keys_are_kept_beside_an_open_store(place: &Place) {
    let store = place.open().await;
    let beside = tollgate_store::open_beside(&place.url).await.unwrap();
    beside.create_key(&key("a", "ci"), 2, audit("keys/ci")).await.unwrap();
    beside.close().await;
    assert_eq!(store.live_keys(NOON_US).await.unwrap().len(), 1);
    store.close().await;
    drop(store);
    // Where nobody has it open, it is opened, and made, as by anybody.
    tollgate_store::open_beside(&place.url).await.unwrap().close().await;
}
