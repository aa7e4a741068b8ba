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
    browser.fill("#go", "half a na").await;
    let cli = Cli::new(service.url());
    cli.ok(&["pause", "policy", "idle", "--reason", "somebody else"]);
    wait_for("the pause in the page", 20, async || {
        let row = browser.run("return document.getElementById('p-idle')?.innerText ?? ''").await;
        row.as_str().unwrap().contains("paused").then_some(())
    })
    .await;
    world.limit("idle", 77).await;
    wait_for("the limit in the page", 20, async || {
        let row = browser.run("return document.getElementById('p-idle')?.innerText ?? ''").await;
        row.as_str().unwrap().contains("77").then_some(())
    })
    .await;
    let kept = "return [window.same, document.getElementById('go').value, document.activeElement.id]";
    assert_eq!(browser.run(kept).await, json!([true, "half a na", "go"]), "the page was loaded anew");
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

/// Whether the banner is there, whether the numbers are greyed, and the page's time.
const LOST: &str = "const lost = document.getElementById('lost');\
    return [!lost.hidden, document.body.classList.contains('old'), document.getElementById('page-time').innerText]";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_service_is_said_and_found_again() {
    let world = World::start().await;
    let World { browser, service, .. } = &world;
    // One page hears a stream, the other asks again and again.
    for (path, live) in [("/", "Live."), ("/n/default/policies/gentle", "Looked again")] {
        browser.open(path).await;
        browser.sees(live, 20).await;
        let before = browser.run(LOST).await;
        assert_eq!((&before[0], &before[1]), (&json!(false), &json!(false)), "{path}");
        service.freeze();
        browser.sees("Nothing here is live.", 40).await;
        let after = browser.run(LOST).await;
        assert_eq!((&after[0], &after[1]), (&json!(true), &json!(true)), "{path}");
        assert!(browser.text().await.contains(after[2].as_str().unwrap()), "{path}: of when is it?");
        let name = if path == "/" { "lost-now" } else { "lost-policy" };
        super::pages::picture(browser, name).await;
        service.thaw();
        wait_for("the page to be live again", 60, async || {
            let now = browser.run(LOST).await;
            let is_live = now[0] == json!(false) && now[1] == json!(false) && now[2] != after[2];
            is_live.then_some(())
        })
        .await;
        browser.sees(live, 20).await;
    }
    world.stop().await;
}
