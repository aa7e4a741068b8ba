//! Pages keep themselves up to date without being loaded anew, and leave alone what somebody is doing in them.

use serde_json::json;
use tollgate_harness::{Cli, wait_for};
use tollgate_proto::v1::ReleaseTokenRequest;

use super::world::{World, held};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_happens_now_comes_by_itself() {
    let world = World::start().await;
    let World { browser, service, .. } = &world;
    browser.open("/").await;
    browser.sees("Live.", 20).await;
    browser.run("window.same = true; document.getElementById('dispatch').open = true").await;
    browser.fill("#reason", "half a rea").await;
    let cli = Cli::new(service.url());
    cli.ok(&["pause", "policy", "idle", "--reason", "somebody else"]);
    wait_for("the pause in the page", 20, async || {
        let row = browser.run("return document.getElementById('p-idle').innerText").await;
        row.as_str().unwrap().contains("paused").then_some(())
    })
    .await;
    world.limit("idle", 77).await;
    wait_for("the limit in the page", 20, async || {
        let row = browser.run("return document.getElementById('p-idle').innerText").await;
        row.as_str().unwrap().contains("77").then_some(())
    })
    .await;
    let kept = "return [window.same, document.getElementById('reason').value, document.activeElement.id]";
    assert_eq!(browser.run(kept).await, json!([true, "half a rea", "reason"]), "the page was loaded anew");
    assert!(browser.noise().await.errors.is_empty());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policys_page_follows_and_keeps_open_forms() {
    let world = World::start().await;
    let World { browser, service, .. } = &world;
    let holders = held(service, "batch").await;
    browser.open("/n/default/policies/gentle").await;
    let (gone, stays) = (&holders[0].event_id, &holders[1].event_id);
    let open = format!("window.same = true; document.getElementById('f-{stays}').open = true");
    browser.run(&open).await;
    browser.fill(&format!("#m-{stays}"), "its node").await;
    let release = ReleaseTokenRequest { name: gone.clone(), ..ReleaseTokenRequest::default() };
    service.handler().release_token(release).await.unwrap();
    wait_for("another holder in the page", 30, async || {
        let there = format!("return document.getElementById('h-{gone}') === null");
        (browser.run(&there).await == json!(true)).then_some(())
    })
    .await;
    let kept = format!(
        "return [window.same, document.getElementById('m-{stays}').value, document.getElementById('f-{stays}').open]"
    );
    assert_eq!(browser.run(&kept).await, json!([true, "its node", true]));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_service_is_said_and_found_again() {
    let world = World::start().await;
    let World { browser, service, .. } = &world;
    browser.open("/n/default/policies/gentle").await;
    service.freeze();
    // The page asks again every 5 seconds and is not answered; nothing in it breaks.
    tokio::time::sleep(std::time::Duration::from_secs(6)).await;
    assert!(browser.text().await.contains("Who holds tokens"));
    service.thaw();
    browser.sees("Looked again", 30).await;
    world.stop().await;
}
