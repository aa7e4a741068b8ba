//! One alert's life through the API: what is stored, shown, kept and refused.
#![expect(clippy::unwrap_used, reason = "tests")]

use tollgate_proto::v1;
use tollgate_proto::v1::alert_target::Target;
use tonic::Code;

use crate::world::{PARENT, World, as_alice};

const SECRET: &str = "whsec_YS1zZWNyZXQtdGhhdC1ldmVyeWJvZHkta25vd3M=";

fn alert() -> v1::Alert {
    let http = v1::HttpTarget {
        url: "https://a.example/hook".to_owned(),
        headers: [("authorization".to_owned(), "Bearer hidden".to_owned())].into(),
        secret: SECRET.to_owned(),
        ..Default::default()
    };
    v1::Alert {
        troubles: Some(v1::AlertTroubles::default()),
        schedules: vec!["nightly".to_owned()],
        target: Some(v1::AlertTarget { target: Some(Target::Http(http)) }),
        ..Default::default()
    }
}

fn http(alert: &v1::Alert) -> v1::HttpTarget {
    match alert.target.clone().unwrap().target.unwrap() {
        Target::Http(http) => http,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_alert_is_made_changed_and_deleted_and_its_secrets_stay_its_own() {
    let mut world = World::new().await;
    let name = format!("{PARENT}/alerts/on-call");
    let create = v1::CreateAlertRequest {
        parent: PARENT.to_owned(),
        alert_id: "on-call".to_owned(),
        alert: Some(alert()),
        validate_only: true,
    };
    world.client.create_alert(as_alice(create.clone())).await.unwrap();
    let get = v1::GetAlertRequest { name: name.clone() };
    assert_eq!(world.client.get_alert(get.clone()).await.unwrap_err().code(), Code::NotFound);
    let create = v1::CreateAlertRequest { validate_only: false, ..create };
    let made = world.client.create_alert(as_alice(create.clone())).await.unwrap().into_inner();
    assert_eq!(world.client.create_alert(as_alice(create)).await.unwrap_err().code(), Code::AlreadyExists);
    assert_eq!((made.name.as_str(), made.etag.as_str()), (name.as_str(), "1"));
    assert_eq!(made.schedules, [format!("{PARENT}/schedules/nightly")]);
    assert_eq!(made.group_wait.unwrap().seconds, 30);
    assert_eq!((made.repeat_interval.unwrap().seconds, made.send_resolved), (4 * 3_600, Some(true)));
    let shown = http(&made);
    assert!(shown.has_secret && shown.secret.is_empty() && shown.headers["authorization"] == "***");

    let mask = |path: &str| Some(prost_types::FieldMask { paths: vec![path.to_owned()] });
    let change = |alert: v1::Alert, path: &str| {
        as_alice(v1::UpdateAlertRequest { alert: Some(alert), update_mask: mask(path), validate_only: false })
    };
    let disabled = v1::Alert { name: name.clone(), disabled: true, ..Default::default() };
    let changed = world.client.update_alert(change(disabled.clone(), "disabled")).await.unwrap().into_inner();
    assert!(changed.disabled && changed.etag == "2" && http(&changed).has_secret);
    let same = world.client.update_alert(change(disabled, "disabled")).await.unwrap().into_inner();
    assert_eq!(same.etag, "2", "nothing is written");
    let elsewhere = v1::Alert { name: name.clone(), ..alert() };
    let mut target = http(&elsewhere);
    (target.url, target.secret, target.has_secret) = ("https://b.example/".to_owned(), String::new(), true);
    let target = Some(v1::AlertTarget { target: Some(Target::Http(target)) });
    let moved = v1::Alert { target, ..elsewhere };
    let refused = world.client.update_alert(change(moved, "target")).await.unwrap_err();
    assert!(refused.message().contains("alert.target.http.secret"), "{refused}");
    let stale = v1::Alert { name: name.clone(), etag: "1".to_owned(), ..Default::default() };
    assert_eq!(world.client.update_alert(change(stale, "labels")).await.unwrap_err().code(), Code::Aborted);

    let list = v1::ListAlertsRequest {
        parent: PARENT.to_owned(),
        filter: "state=DISABLED AND name=on*".to_owned(),
        ..Default::default()
    };
    assert_eq!(world.client.list_alerts(list).await.unwrap().into_inner().alerts.len(), 1);
    let delete = v1::DeleteAlertRequest { name: name.clone(), etag: "2".to_owned(), ..Default::default() };
    world.client.delete_alert(as_alice(delete)).await.unwrap();
    assert_eq!(world.client.get_alert(get).await.unwrap_err().code(), Code::NotFound);
    let audit = v1::ListAuditEntriesRequest { parent: PARENT.to_owned(), ..Default::default() };
    let entries = world.client.list_audit_entries(audit).await.unwrap().into_inner().audit_entries;
    let actions: Vec<&str> = entries.iter().map(|entry| entry.action.as_str()).collect();
    assert_eq!(actions, ["delete", "update", "create"]);
    let text = format!("{entries:?}");
    assert!(!text.contains("hidden") && !text.contains("YS1zZWNy"), "{text}");
}

#[tokio::test]
async fn when_an_alert_was_enabled_is_kept() {
    let mut world = World::new().await;
    let create = v1::CreateAlertRequest {
        parent: PARENT.to_owned(),
        alert_id: "on-call".to_owned(),
        alert: Some(alert()),
        validate_only: false,
    };
    world.client.create_alert(as_alice(create)).await.unwrap();
    let mut enabled_us = Vec::new();
    for disabled in [false, true, true, false, false] {
        let name = format!("{PARENT}/alerts/on-call");
        let description = enabled_us.len().to_string();
        let alert = Some(v1::Alert { name, description, disabled, ..Default::default() });
        let paths = ["description", "disabled"].map(str::to_owned).into();
        let update_mask = Some(prost_types::FieldMask { paths });
        let change = v1::UpdateAlertRequest { alert, update_mask, validate_only: false };
        world.client.update_alert(as_alice(change)).await.unwrap();
        let stored = world.store.alert("default", "on-call").await.unwrap().unwrap();
        enabled_us.push(stored.enabled_us);
        assert_eq!(stored.enabled_us == stored.updated_us, enabled_us.len() == 4, "{stored:?}");
    }
    assert!(enabled_us[..3].iter().all(|us| *us == enabled_us[0] && *us > 0), "{enabled_us:?}");
    assert!(enabled_us[3] > enabled_us[0] && enabled_us[4] == enabled_us[3], "{enabled_us:?}");
}
