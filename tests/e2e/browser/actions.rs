//! Every action, by keyboard, and its effect as any other client sees it.

use tollgate_harness::browser::{ENTER, LOOKS};
use tollgate_harness::resources::{PARENT, policy_name, schedule_name};
use tollgate_harness::{Cli, wait_for};
use tollgate_proto::v1::{
    Event, EventState, GetEventRequest, GetHandlerStatusRequest, GetPolicyRequest, GetScheduleRequest,
    ListAuditEntriesRequest, Policy, Run, RunKind, RunState, Schedule,
};

use super::world::{World, held, page_of, short};

impl World {
    async fn policy(&self, id: &str) -> Policy {
        let request = GetPolicyRequest { name: policy_name(id) };
        self.service.master().get_policy(request).await.unwrap().into_inner()
    }

    async fn schedule(&self, id: &str) -> Schedule {
        let request = GetScheduleRequest { name: schedule_name(id) };
        self.service.master().get_schedule(request).await.unwrap().into_inner()
    }

    /// The run of `nightly` that was made so: at half past two in Berlin there is another one.
    async fn made(&self, kind: RunKind) -> Option<Run> {
        self.service.runs("nightly").await.into_iter().find(|run| run.kind() == kind)
    }

    async fn event_now(&self, name: &str) -> Event {
        let request = GetEventRequest { name: name.to_owned() };
        self.service.handler().get_event(request).await.unwrap().into_inner()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_is_steered() {
    let world = World::start().await;
    let browser = &world.browser;
    browser.look(LOOKS[0]).await;
    browser.open("/n/default/you").await;
    browser.fill("#name", "ann@ops").await;
    browser.press_and_go("form[method=post] button").await;
    browser.sees("Your name will stand in the audit log.", 10).await;

    browser.open("/n/default/policies/gentle").await;
    browser.fill("#max_in_flight", "3").await;
    browser.press_and_go("button[value=limit]").await;
    browser.sees("1 event may start at once", 10).await;
    assert!(browser.axe().await.is_empty());
    assert_eq!(world.policy("gentle").await.max_in_flight, Some(2), "changed before it was confirmed");
    browser.confirm("the host is larger now").await;
    browser.sees("The policy's limits have been changed.", 10).await;
    assert_eq!(world.policy("gentle").await.max_in_flight, Some(3));
    wait_for("a third token", 20, async || {
        let status = world.service.handler().get_handler_status(GetHandlerStatusRequest::default()).await;
        let gauges = status.unwrap().into_inner().policies;
        gauges
            .iter()
            .any(|gauge| gauge.policy == policy_name("gentle") && gauge.held_count == 3)
            .then_some(())
    })
    .await;
    browser.fill("#max_in_flight", "0").await;
    browser.press_and_go("button[value=limit]").await;
    browser.sees("max_in_flight", 10).await;
    assert_eq!(world.policy("gentle").await.max_in_flight, Some(3), "a limit of none was taken");

    browser.open("/n/default/policies/gentle").await;
    browser.press_and_go("button[value=pause]").await;
    browser.sees("all that falls due stand still", 10).await;
    browser.confirm("the import host is being moved").await;
    browser.sees("Nothing under it starts.", 10).await;
    let pause = world.policy("gentle").await.pause.unwrap();
    assert_eq!((pause.reason.as_str(), pause.actor.as_str()), ("the import host is being moved", "ann@ops"));

    let event = held(&world.service, "batch").await.remove(0);
    let id = &event.event_id;
    browser.press(&format!("#f-{id} summary")).await;
    browser.fill(&format!("#m-{id}"), "its consumer died").await;
    browser.choose(&format!("#o-{id}"), "SUCCEEDED").await;
    browser.press_and_go(&format!("#f-{id} button")).await;
    browser.sees("The token is free.", 10).await;
    let ended = world.event_now(&event.name).await;
    assert_eq!(
        (ended.state(), ended.message.as_str()),
        (EventState::Succeeded, "freed by ann@ops: its consumer died")
    );

    browser.press_and_go("button[value=resume]").await;
    browser.confirm("").await;
    assert_eq!(world.policy("gentle").await.pause, None);
    assert!(Cli::new(world.service.url()).ok(&["audit"]).contains("ann@ops"));
    assert!(browser.noise().await.errors.iter().all(|error| error.contains("422")));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schedule_is_steered() {
    let world = World::start().await;
    let browser = &world.browser;
    browser.look(LOOKS[0]).await;
    browser.open("/n/default/schedules/nightly").await;
    browser.fill("#events", "7").await;
    browser.press_and_go("button[value=trigger]").await;
    browser.confirm("by hand").await;
    browser.sees("This run was made just now.", 10).await;
    let run = world.made(RunKind::Manual).await.unwrap();
    assert_eq!(run.events, 7);
    assert!(browser.path().await.starts_with(&page_of(&run.name)));

    browser.press_and_go("button[value=cancel]").await;
    browser.sees("This cannot be undone.", 10).await;
    browser.confirm("a mistake").await;
    wait_for("the end of what had not started", 20, async || {
        let run = world.service.run(&run.name).await;
        (run.waiting_count == 0 && run.state() != RunState::Waiting).then_some(())
    })
    .await;

    browser.open("/n/default/schedules/nightly").await;
    browser.press_and_go("button[value=pause]").await;
    browser.confirm("holidays").await;
    browser.sees("holidays", 10).await;
    assert_eq!(world.schedule("nightly").await.pause.unwrap().reason, "holidays");
    browser.press_and_go("button[value=resume]").await;
    browser.confirm("").await;
    assert_eq!(world.schedule("nightly").await.pause, None);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_is_submitted() {
    let world = World::start().await;
    let browser = &world.browser;
    for look in LOOKS {
        browser.look(look).await;
        browser.open("/n/default/schedules/nightly").await;
        browser.press_and_go("a[href$='/submit']").await;
        browser
            .run(
                "const list = new DataTransfer();
                 list.items.add(new File(['tenant,n\\nacme,1\\nglobex,' + 'long'.repeat(100) + '\\n'], 'list.csv'));
                 document.querySelector('#file').files = list.files;",
            )
            .await;
        browser.fill("#key_field", "tenant").await;
        browser.press_and_go("form.edit button.main").await;
        browser.sees("Submit 2 items to nightly?", 10).await;
        browser.sees("globex", 10).await;
        assert!(browser.axe().await.is_empty());
        assert_eq!(browser.overflow().await, 0, "{}", look.name);
        super::pages::picture(browser, &format!("submit-asked-{}", look.name)).await;
    }
    assert_eq!(world.made(RunKind::Submitted).await, None, "made before it was confirmed");
    browser.confirm("the list of november").await;
    browser.sees("This run was made just now.", 10).await;
    let run = world.made(RunKind::Submitted).await.unwrap();
    assert_eq!(run.events, 2);
    assert!(browser.noise().await.errors.is_empty());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schedule_is_edited() {
    let world = World::start().await;
    let browser = &world.browser;
    browser.look(LOOKS[0]).await;
    browser.open("/n/default/schedules/nightly").await;
    browser.press_and_go("a[href$='/edit']").await;
    // What is wrong is said at its field, and what was typed stays.
    browser.fill("#time_zone", "Europe/Berlim").await;
    browser.fill("#priority", "12").await;
    browser.fill("#cron", "15 2 * * *").await;
    browser.press_and_go("form.whole-form button[value=save]").await;
    let wrong = browser
        .run("return [...document.querySelectorAll('[aria-invalid=true]')].map((field) => field.id)")
        .await;
    assert_eq!(wrong, serde_json::json!(["time_zone", "priority"]), "{}", browser.text().await);
    let said = browser.run("return document.getElementById('error-time_zone').innerText").await;
    assert!(said.as_str().unwrap().contains("Europe/Berlim"), "{said}");
    let kept = browser.run("return document.getElementById('cron').value").await;
    assert_eq!(kept, serde_json::json!("15 2 * * *"));
    assert!(browser.axe().await.is_empty());
    assert_eq!(world.schedule("nightly").await.time_zone, "Europe/Berlin");
    browser.fill("#priority", "").await;
    browser.fill("#cron", "61 2 * * *").await;
    browser.fill("#time_zone", "Europe/Berlin").await;
    browser.press_and_go("form.whole-form button[value=save]").await;
    let said = browser.run("return document.getElementById('error-cron').innerText").await;
    assert!(said.as_str().unwrap().contains("61"), "{said}");
    // A check changes nothing and says what would be.
    browser.fill("#time_zone", "America/New_York").await;
    browser.fill("#cron", "45 4 * * MON-FRI").await;
    browser.fill("#events", "12").await;
    browser.fill("#finish_by", "2h").await;
    browser.press_and_go("form.whole-form button[value=check]").await;
    browser.sees("every weekday at 04:45 in New York", 10).await;
    assert_eq!(world.schedule("nightly").await.events, Some(500));
    // Other launch times are asked once more.
    browser.press_and_go("form.whole-form button[value=save]").await;
    browser.sees("Change nightly?", 10).await;
    browser.sees("12 events every weekday at 04:45 in New York", 10).await;
    assert!(browser.axe().await.is_empty());
    super::pages::picture(browser, "confirm-edit").await;
    assert_eq!(world.schedule("nightly").await.events, Some(500), "changed before it was confirmed");
    browser.confirm("the office moves").await;
    browser.sees("The schedule has been changed.", 10).await;
    let stored = world.schedule("nightly").await;
    assert_eq!((stored.time_zone.as_str(), stored.events), ("America/New_York", Some(12)));
    assert_eq!(stored.finish_by.map(|by| by.seconds), Some(7_200));
    assert!(stored.target.is_some() && stored.policy.ends_with("/gentle"), "{stored:?}");
    as_json(&world).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedules_and_policies_are_made_and_deleted() {
    let world = World::start().await;
    let browser = &world.browser;
    browser.look(LOOKS[0]).await;
    browser.open("/n/default/policies").await;
    browser.press_and_go("a[href$='/new/policy']").await;
    browser.fill("#id", "fresh").await;
    browser.fill("#max_in_flight", "many").await;
    browser.press_and_go("form.whole-form button[value=save]").await;
    let said = browser.run("return document.getElementById('error-max_in_flight').innerText").await;
    assert!(said.as_str().unwrap().contains("many"), "{said}");
    browser.fill("#max_in_flight", "7").await;
    browser.fill("#reason", "for the new host").await;
    browser.press_and_go("form.whole-form button[value=save]").await;
    browser.sees("It has been made.", 10).await;
    assert_eq!(world.policy("fresh").await.max_in_flight, Some(7));
    edit_a_policy(&world).await;

    browser.open("/n/default/new/schedule").await;
    browser.fill("#id", "by-form").await;
    browser.fill("#intervals", "6h from 2026-01-01T03:00:00Z").await;
    browser.fill("#policy", "fresh").await;
    browser.fill("#target-http-url", "http://127.0.0.1:9/none").await;
    // What it would come to is shown while it is typed.
    browser.sees("would fire", 10).await;
    browser.fill("#time_zone", "Europe/Berlim").await;
    browser.sees("Not yet:", 10).await;
    browser.fill("#time_zone", "Europe/Berlin").await;
    browser.sees("Nothing is wrong with it", 10).await;
    assert!(browser.axe().await.is_empty());
    super::pages::picture(browser, "new-schedule").await;
    browser.press_and_go("form.whole-form button[value=save]").await;
    browser.sees("It has been made.", 10).await;
    let made = world.schedule("by-form").await;
    assert!(made.triggers.len() == 1 && made.policy.ends_with("/fresh"), "{made:?}");

    // What it would have done is made up for.
    browser.press_and_go("a[href$='/backfill']").await;
    let midnight = |days: i64| {
        let day = chrono::Utc::now().date_naive() - chrono::TimeDelta::days(days);
        format!("{day}T00:00:00Z")
    };
    browser.fill("#from", &midnight(3)).await;
    browser.fill("#to", &midnight(2)).await;
    browser.press_and_go("form.edit button").await;
    browser.sees("4 runs of 4 events in all", 10).await;
    super::pages::picture(browser, "confirm-backfill").await;
    browser.confirm("the first day").await;
    browser.sees("The runs have been made.", 10).await;
    // It may fall due by itself at this very hour.
    let made = world.service.runs("by-form").await.into_iter().filter(|run| run.kind() == RunKind::Backfill);
    assert_eq!(made.count(), 4);
    browser.press_and_go("button[value=delete]").await;
    browser.sees("It never fires again.", 10).await;
    browser.confirm("it was a test").await;
    browser.sees("Deleted.", 10).await;
    world.stop().await;
}

/// Of the policy `fresh`, whose page is open.
async fn edit_a_policy(world: &World) {
    let browser = &world.browser;
    browser.press_and_go("a[href$='/edit']").await;
    browser.run("document.getElementById('description').value = 'the new host\\n- of ann'").await;
    browser.press_and_go("form.whole-form button[value=save]").await;
    browser.sees("The policy has been changed.", 10).await;
    assert_eq!(world.policy("fresh").await.description, "the new host\n- of ann");
    // A new limit is asked once more, and what else was typed is saved with it.
    browser.press_and_go("a[href$='/edit']").await;
    browser.fill("#max_in_flight", "9").await;
    // Its group is folded.
    browser.run("document.getElementById('token_ttl').value = '20m'").await;
    browser.press_and_go("form.whole-form button[value=save]").await;
    browser.sees("Change the limits of fresh?", 10).await;
    assert_eq!(world.policy("fresh").await.max_in_flight, Some(7), "changed before it was confirmed");
    browser.confirm("it is larger now").await;
    browser.sees("The policy has been changed.", 10).await;
    let stored = world.policy("fresh").await;
    assert_eq!((stored.max_in_flight, stored.token_ttl.map(|ttl| ttl.seconds)), (Some(9), Some(1_200)));
    assert_eq!(stored.description, "the new host\n- of ann");
}

async fn as_json(world: &World) {
    let browser = &world.browser;
    browser.open("/n/default/schedules/nightly/edit").await;
    browser.press("#whole summary").await;
    let change = "const field = document.getElementById('json'); const all = JSON.parse(field.value);\
                  all.priority = 12; all.labels = { team: 'storage' };\
                  field.value = JSON.stringify(all, null, 2);";
    browser.run(change).await;
    browser.press_and_go("#whole button[value=save]").await;
    let said = browser.run("return document.getElementById('error-json').innerText").await;
    assert!(
        said.as_str().unwrap().contains("priority") && said.as_str().unwrap().contains("Line "),
        "{said}"
    );
    browser.run("const field = document.getElementById('json'); field.value = field.value.replace('\"priority\": 12', '\"priority\": 8')").await;
    browser.press_and_go("#whole button[value=save]").await;
    browser.sees("The schedule has been changed.", 10).await;
    let stored = world.schedule("nightly").await;
    assert_eq!((stored.priority, stored.labels.get("team").map(String::as_str)), (Some(8), Some("storage")));
    // The secret was not shown, and has stayed.
    let shown = format!("{:?}", stored.target);
    assert!(shown.contains("has_secret: true"), "{shown}");
    // Somebody else is faster.
    browser.open("/n/default/schedules/nightly/edit").await;
    Cli::new(world.service.url()).ok(&["pause", "schedule", "nightly", "--reason", "meanwhile"]);
    browser.fill("#events", "99").await;
    browser.press_and_go("form.whole-form button[value=save]").await;
    browser.sees("Somebody else changed it in the meantime.", 10).await;
    assert_eq!(world.schedule("nightly").await.events, Some(12));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_events_and_dispatch_are_steered() {
    let world = World::start().await;
    let browser = &world.browser;
    browser.look(LOOKS[2]).await;
    // Dead events are tried again; they die again, one attempt later.
    let dead = world.event("hopeless", EventState::Dead).await;
    browser.open(&page_of(&world.run("hopeless").await.name)).await;
    browser.sees("What went wrong", 10).await;
    browser.press_and_go("#failures button[value=retry]").await;
    browser.sees("3 dead events", 10).await;
    browser.confirm("").await;
    browser.sees("The dead events will be tried again.", 10).await;
    wait_for("another attempt", 30, async || {
        (world.event_now(&dead.name).await.attempt > dead.attempt).then_some(())
    })
    .await;

    let held = held(&world.service, "batch").await.remove(0);
    browser.open(&page_of(&held.name)).await;
    browser.choose("#o-event", "FAILED").await;
    browser.fill("#reason", "lost its disk").await;
    browser.press_and_go("section.actions button").await;
    browser.sees("The token is free.", 10).await;
    assert_eq!(world.event_now(&held.name).await.state(), EventState::Failed);

    browser.open("/").await;
    browser.press("#dispatch summary").await;
    browser.press_and_go("#dispatch button[value=pause]").await;
    browser.sees("Nothing starts any more, in no namespace", 10).await;
    browser.confirm("fire drill").await;
    browser.sees("Dispatch is paused", 20).await;
    let paused = async || {
        let status = world.service.handler().get_handler_status(GetHandlerStatusRequest::default()).await;
        status.unwrap().into_inner().shards.iter().all(|shard| shard.paused)
    };
    assert!(paused().await);
    browser.press("#dispatch summary").await;
    browser.press_and_go("#dispatch button[value=resume]").await;
    browser.confirm("").await;
    assert!(!paused().await);
    found(&world).await;
    world.stop().await;
}

/// Names lead to their pages, filters narrow, audit tells.
async fn found(world: &World) {
    let browser = &world.browser;
    browser.open("/").await;
    browser.fill("#go", &world.run("batch").await.name).await;
    browser.run("window.before = true").await;
    browser.tab_to("#go").await;
    browser.keys(ENTER).await;
    browser.sees("Run due", 10).await;
    browser.open("/").await;
    // The key / leads to the search, a part of a name to what has it.
    browser.keys("/").await;
    browser.keys("ight").await;
    browser.keys(ENTER).await;
    browser.sees("every day at 02:30 in Berlin", 10).await;
    assert!(browser.path().await.starts_with("/n/default/schedules/nightly"));
    browser.fill("#go", "st").await;
    browser.tab_to("#go").await;
    browser.keys(ENTER).await;
    browser.sees("stuck", 10).await;
    let text = browser.text().await;
    assert!(text.contains("stopped") && text.contains("resting"), "{text}");
    // The beginning of a run's id is enough; its first letters are the moment, which others share.
    let id = short(&world.run("batch").await.name).to_owned();
    browser.fill("#go", &id[..24]).await;
    browser.tab_to("#go").await;
    browser.keys(ENTER).await;
    browser.sees("Run due", 10).await;
    // So is a whole id of an event, which depends on case.
    let event = world.event("hopeless", EventState::Dead).await;
    browser.fill("#go", &event.event_id).await;
    browser.tab_to("#go").await;
    browser.keys(ENTER).await;
    browser.sees("Timeline", 10).await;
    assert!(browser.path().await.starts_with(&page_of(&event.name)), "{}", browser.path().await);
    browser.open("/n/default/namespaces").await;
    browser.sees("Events waiting", 10).await;
    browser.open("/n/default/runs").await;
    browser.choose("#state", "RUNNING").await;
    browser.press_and_go("form.filters button").await;
    let text = browser.text().await;
    assert!(text.contains("batch") && !text.contains("hopeless"), "{text}");
    browser.choose("#order", "launch_time").await;
    browser.press_and_go("form.filters button").await;
    let kept = browser.run("return location.search + ' ' + document.getElementById('order').value").await;
    assert!(
        kept.as_str().unwrap().contains("state=RUNNING") && kept.as_str().unwrap().ends_with(" launch_time"),
        "{kept}"
    );
    assert!(browser.axe().await.is_empty());
    browser.open("/n/default/calendar").await;
    browser.sees("Where most will wait", 20).await;
    browser.press_and_go("#live .marks a").await;
    browser.sees("The hour after", 20).await;
    let request = ListAuditEntriesRequest { parent: PARENT.to_owned(), ..ListAuditEntriesRequest::default() };
    let entries =
        world.service.master().list_audit_entries(request).await.unwrap().into_inner().audit_entries;
    let run = world.run("hopeless").await.name;
    assert!(
        entries.iter().any(|entry| entry.action == "retry" && short(&entry.resource) == short(&run)),
        "{entries:?}"
    );
}
