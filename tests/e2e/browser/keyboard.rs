//! Everything that can be used can be reached by Tab alone, and shows that it has been.

use serde_json::{Value, json};
use tollgate_harness::browser::{Browser, LOOKS, TAB};
use tollgate_proto::v1::EventState;

use super::world::{World, page_of};

/// Numbers what can be used, and notes what the focus comes to and whether it shows there.
const WATCH: &str = "\
    const usable = [...document.querySelectorAll(\
        'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex=\"0\"]')]\
      .filter((element) => element.checkVisibility({ visibilityProperty: true }) && !element.disabled);\
    usable.forEach((element, place) => element.setAttribute('data-place', place));\
    window.reached = []; window.plain = [];\
    document.addEventListener('focusin', (event) => {\
      const style = getComputedStyle(event.target);\
      window.reached.push(event.target.getAttribute('data-place'));\
      const rect = event.target.querySelector('rect');\
      const drawn = rect && getComputedStyle(rect).strokeWidth !== '0px';\
      if (style.outlineStyle === 'none' && !drawn) window.plain.push(event.target.outerHTML.slice(0, 120));\
    });\
    return usable.length;";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_reached_by_tab() {
    let world = World::start().await;
    world.browser.look(LOOKS[0]).await;
    let held = world.event("batch", EventState::Held).await;
    let paths = [
        "/".to_owned(),
        "/n/default/policies/gentle".to_owned(),
        "/n/default/schedules".to_owned(),
        "/n/default/schedules/nightly".to_owned(),
        "/n/default/schedules/done".to_owned(),
        "/n/default/schedules/nightly/edit".to_owned(),
        "/n/default/new/policy".to_owned(),
        "/n/default/schedules/nightly/backfill".to_owned(),
        "/n/default/namespaces".to_owned(),
        "/n/default/failures".to_owned(),
        "/n/default/alerts".to_owned(),
        "/n/default/alerts/on-call".to_owned(),
        "/n/default/new/alert".to_owned(),
        "/n/default/history?span=6h".to_owned(),
        page_of(&world.run("hopeless").await.name),
        page_of(&held.name),
        "/n/default/calendar".to_owned(),
        "/n/default/audit".to_owned(),
        "/n/default/you".to_owned(),
    ];
    for path in paths {
        check(&world.browser, &path).await;
    }
    world.stop().await;
}

async fn check(browser: &Browser, path: &str) {
    browser.open(path).await;
    // What keeps itself up to date would number anew what has come since.
    browser.run("for (const live of document.querySelectorAll('#live')) live.dataset.refresh = ''").await;
    let usable = browser.run(WATCH).await.as_u64().unwrap();
    assert!(usable > 8, "{path}: only {usable} things can be used");
    let keys = TAB.repeat(usize::try_from(usable).unwrap() + 3);
    browser.keys(&keys).await;
    let missed = "const seen = new Set(window.reached);\
                  return [...document.querySelectorAll('[data-place]')]\
                    .filter((element) => !seen.has(element.getAttribute('data-place')) && element.isConnected)\
                    .map((element) => element.outerHTML.slice(0, 160))";
    assert_eq!(browser.run(missed).await, json!([]), "{path}: Tab does not come to these");
    assert_eq!(
        browser.run("return window.plain").await,
        Value::Array(Vec::new()),
        "{path}: no sign of focus"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_tab_leads_past_the_head() {
    let world = World::start().await;
    world.browser.open("/n/default/schedules").await;
    world.browser.keys(TAB).await;
    let first = world.browser.run("return document.activeElement.textContent").await;
    assert_eq!(first, json!("Skip to content"));
    world.browser.keys(tollgate_harness::browser::ENTER).await;
    let focus = world.browser.run("return document.activeElement.id").await;
    assert_eq!(focus, json!("main"));
    world.stop().await;
}
