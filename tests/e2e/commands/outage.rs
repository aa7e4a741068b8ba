//! The service is away while commands are sent: nobody who sends waits, and afterwards all is there, and none of it twice.
//!
//! `TOLLGATE_COMMANDS` says how many (220), and `TOLLGATE_OUTAGE_SECONDS` how long they are sent, and the service is away (6).

use std::sync::Arc;
use std::time::Instant;

use tollgate_harness::free_port;

use super::broken::{flood, judged, serve, there};
use super::*;

on_both_stores!(commands_of_an_outage_are_all_there_afterwards_and_none_twice);

/// Who sends at once, each with a connection of its own.
const SENDERS: usize = 4;
/// The longest that a sender may wait for SQS: it answers also where the machine does much else. Who waited for the service would
/// wait for ever.
const SEND_MAX: Duration = Duration::from_secs(60);
/// Commands of a call.
const CALL: usize = 10;
/// Runs of one schedule stand in lists that are read as a whole.
const TRIGGERS_MAX: u64 = 5_000;
/// What the slowest of machines does in a second, with an emulator that has one core for everything.
const COMMANDS_A_SECOND: u64 = 40;

/// How much is sent, and for how long.
struct Size {
    schedules: u64,
    triggers: u64,
    outage: Duration,
}

impl Size {
    fn of_environment() -> Self {
        let number = |name: &str, default: u64| {
            std::env::var(name).map_or(default, |text| {
                text.parse().unwrap_or_else(|error| panic!("{name}: {text:?}: {error}"))
            })
        };
        let commands = number("TOLLGATE_COMMANDS", 220).max(11);
        let schedules = (commands - (commands * 3 / 11).min(TRIGGERS_MAX)) / 2;
        let outage = Duration::from_secs(number("TOLLGATE_OUTAGE_SECONDS", 6));
        Self { schedules, triggers: commands - 2 * schedules, outage }
    }

    fn commands(&self) -> u64 {
        2 * self.schedules + self.triggers
    }

    /// How long it may take until all is done and answered.
    fn patience(&self) -> u64 {
        240 + self.commands() / COMMANDS_A_SECOND
    }
}

/// What senders have seen.
#[derive(Debug, Default)]
struct Sent {
    /// How long the slowest call took.
    slowest: Duration,
    /// How much later than planned the last call was.
    behind: Duration,
}

/// Sends commands, ten in a call, evenly over some time.
async fn send_evenly(world: &World, all: &[Value], over: Duration) -> Sent {
    let bodies: Vec<String> = all.iter().map(Value::to_string).collect();
    let calls: Arc<Vec<Vec<String>>> = Arc::new(bodies.chunks(CALL).map(<[String]>::to_vec).collect());
    let began = Instant::now();
    let senders = (0..SENDERS).map(|sender| {
        let (calls, client, queue) = (calls.clone(), world.emulator.client(), world.queue.clone());
        tokio::spawn(async move {
            let mut seen = Sent::default();
            for at in (sender..calls.len()).step_by(SENDERS) {
                let due = began + over.mul_f64(at as f64 / calls.len() as f64);
                tokio::time::sleep_until(due.into()).await;
                seen.behind = due.elapsed();
                let start = Instant::now();
                send(&client, &queue, &calls[at]).await;
                seen.slowest = seen.slowest.max(start.elapsed());
            }
            seen
        })
    });
    let senders: Vec<_> = senders.collect();
    let mut all = Sent::default();
    for sender in senders {
        let seen = sender.await.unwrap();
        all.slowest = all.slowest.max(seen.slowest);
        all.behind = all.behind.max(seen.behind);
    }
    // The last of them were due before the end.
    tokio::time::sleep_until((began + over).into()).await;
    all
}

#[expect(clippy::print_stdout, reason = "what senders waited")]
async fn commands_of_an_outage_are_all_there_afterwards_and_none_twice(kind: Kind) {
    let size = Size::of_environment();
    let database = Database::new(kind).await;
    let port = free_port().unwrap();
    let url = format!("http://127.0.0.1:{port}");
    let service = serve(&database, port).await;
    there(&service).await;
    service.stop().await;

    let world = World::new().await;
    // Few in hand where there are few, so that there are several batches.
    let more = if size.commands() > 1_000 {
        json!({"visibility": "1m"})
    } else {
        json!({"inHand": 20, "visibility": "4s"})
    };
    let commands = world.start(&url, more);
    let all = flood(size.schedules, size.triggers);
    // Who sends does not wait for the service.
    let sent = send_evenly(&world, &all, size.outage).await;
    println!("{kind:?}: {} commands sent in {:?} of an outage: {sent:?}", all.len(), size.outage);
    assert!(sent.slowest < SEND_MAX, "{sent:?}");
    wait_for("the outage in the log", 30, async || {
        commands.log().contains("the service: UNAVAILABLE").then_some(())
    })
    .await;
    let began = Instant::now();
    let service = serve(&database, port).await;
    let answers = world.every_answer(all.len(), size.patience()).await;
    world.emptied(60).await;
    println!("{kind:?}: all of them were there {:?} after the service began", began.elapsed());
    judged(&service, size.schedules, size.triggers).await;
    let refused: Vec<&Value> = answers.iter().filter(|answer| !answer["error"].is_null()).take(5).collect();
    assert!(refused.is_empty(), "{refused:?}");
    assert_eq!(left(&world.client, &world.dead_letters).await, (0, 0));
    commands.assert_outages_told().await;
    commands.stop().await;
    service.stop().await;
}
