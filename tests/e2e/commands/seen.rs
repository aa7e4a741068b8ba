//! What is to be seen, and what queues do to each other: a flooded one, one with a wrong key, and one that just works.

use std::collections::BTreeSet;
use std::time::Instant;

use super::*;
use crate::security::key;

/// What a page says.
pub(super) async fn page(address: &str) -> String {
    let mut curl = std::process::Command::new("curl");
    curl.args(["-s", "--max-time", "60", address]);
    let output = tokio::task::spawn_blocking(move || curl.output()).await.unwrap().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// How many messages of a queue are in hand, as a page of metrics says.
fn in_hand(text: &str, queue: &str) -> u64 {
    let (_, held) = text.split_once(&format!("tollgate_commands_in_hand{{queue=\"{queue}\"}} ")).unwrap();
    held.lines().next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flooded_queue_and_a_refused_one_stop_no_other() {
    let database = Database::new(Kind::Sqlite).await;
    let good = key(&database, "ops", "admin", None);
    let service = Service::join(&database, &["--auth", "keys"]).await;
    let world = World::new().await;
    std::fs::write(world.folder.path().join("good"), &good).unwrap();
    std::fs::write(world.folder.path().join("wrong"), format!("tgk_0123456789abcdef_{}", "0".repeat(64)))
        .unwrap();
    let mut queues = Vec::new();
    for (name, file) in [("flooded", "good"), ("refused", "wrong"), ("calm", "good")] {
        let url = world.emulator.queue(name).await;
        queues.push(world.queue_with(json!({"url": url, "keyFile": file, "name": name, "inHand": 20})));
    }
    let flood: Vec<String> = (0..400)
        .map(|number| {
            let mut one = apply(&format!("f{number}"), 1, schedule(&format!("f{number}"), 1));
            one.as_object_mut().unwrap().remove("reply");
            one.to_string()
        })
        .collect();
    let to = |at: usize| queues[at]["url"].as_str().unwrap().to_owned();
    send(&world.client, &to(0), &flood).await;
    send(&world.client, &to(1), &flood[..30]).await;
    let file = world.file(&queues);
    let commands = Commands::start(&file, service.url(), &["--listen-metrics", "127.0.0.1:0"]);
    let metrics = commands.metrics().await;
    let is_flooded = async || left(&world.client, &to(0)).await != (0, 0);
    for number in 0..8 {
        let began = Instant::now();
        let one = apply(&format!("c{number}"), 1, schedule(&format!("c{number}"), 1)).to_string();
        send(&world.client, &to(2), &[one]).await;
        let answer = world.answers(1, 20).await.remove(0);
        assert_eq!(
            (answer["outcome"].as_str(), answer["queue"].as_str()),
            (Some("DONE"), Some("calm")),
            "{answer}"
        );
        // It is answered while the others wait; or where they are all done, soon.
        let took = began.elapsed();
        let is_prompt = took < Duration::from_secs(10) || is_flooded().await;
        assert!(is_prompt, "a command of the calm queue took {took:?}");
        let text = page(&metrics).await;
        for name in ["flooded", "refused"] {
            let held = in_hand(&text, name);
            assert!(held <= 20, "{name}: {held}");
        }
    }
    wait_for("the refused queue to be told alone", 30, async || {
        let text = page(&metrics).await;
        let is_away =
            |queue: &str| text.contains(&format!("tollgate_commands_away{{queue=\"{queue}\"}} 1\n"));
        (is_away("refused") && !is_away("calm")).then_some(())
    })
    .await;
    // The key is mended: what was kept is done, without another start.
    std::fs::write(world.folder.path().join("wrong"), &good).unwrap();
    emptied(&world.client, &to(1), 120).await;
    emptied(&world.client, &to(0), 240).await;
    assert_eq!(left(&world.client, &world.dead_letters).await, (0, 0));
    commands.stop().await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_chapter_names_the_metrics_and_no_others() {
    let world = World::new().await;
    let file = world.file(&[world.queue_with(json!({}))]);
    let commands = Commands::start(&file, "http://127.0.0.1:9", &["--listen-metrics", "127.0.0.1:0"]);
    let metrics = commands.metrics().await;
    let text = page(&metrics).await;
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let shown: BTreeSet<&str> = types.map(|rest| rest.split(' ').next().unwrap()).collect();
    let (_, chapter) = include_str!("../../../docs/metrics.md").split_once("## Metrics of commands").unwrap();
    let chapter = chapter.split("\n## ").next().unwrap();
    let rows = chapter.lines().filter_map(|line| line.strip_prefix("| `"));
    let told: BTreeSet<&str> = rows.map(|row| row.split(['`', '{']).next().unwrap()).collect();
    assert_eq!(told, shown);
    let base = metrics.trim_end_matches("/metrics");
    assert_eq!(
        (page(&format!("{base}/livez")).await, page(&format!("{base}/readyz")).await),
        ("ok\n".to_owned(), "ok\n".to_owned())
    );
    commands.stop().await;
}

/// A stop gives back at once what it has in hand, for another process to take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_gives_back_what_has_not_begun() {
    let world = World::new().await;
    let all: Vec<Value> =
        (0..40).map(|number| apply(&format!("c{number}"), 1, schedule(&format!("c{number}"), 1))).collect();
    world.send(&all).await;
    let file = world.file(&[world.queue_with(json!({"name": "q", "visibility": "10m", "inHand": 100}))]);
    // Nothing listens there.
    let commands = Commands::start(&file, "http://127.0.0.1:9", &["--listen-metrics", "127.0.0.1:0"]);
    let metrics = commands.metrics().await;
    // Then no more are asked for.
    wait_for("the outage in the log", 30, async || {
        commands.log().contains("the service: UNAVAILABLE").then_some(())
    })
    .await;
    // What SQS has handed out may still be on its way: until the process says the same, and that lasts.
    let mut last = (0, Instant::now());
    wait_for("the messages in hand", 30, async || {
        let held = in_hand(&page(&metrics).await, "q");
        if held != last.0 || left(&world.client, &world.queue).await != (40 - held, held) {
            last = (held, Instant::now());
        }
        (held > 0 && last.1.elapsed() > Duration::from_secs(1)).then_some(())
    })
    .await;
    commands.stop().await;
    assert_eq!(left(&world.client, &world.queue).await, (40, 0));
}

/// A queue that is FIFO works, too, and so do FIFO queues for answers and dead letters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifo_queues_are_read_and_answered() {
    use aws_sdk_sqs::types::QueueAttributeName as Name;
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    let world = World::new().await;
    let mut urls = Vec::new();
    for name in ["in.fifo", "out.fifo", "dead.fifo"] {
        let made = world
            .client
            .create_queue()
            .queue_name(name)
            .attributes(Name::FifoQueue, "true")
            .send()
            .await
            .unwrap();
        urls.push(made.queue_url.unwrap());
    }
    let more = json!({"url": urls[0], "replyQueue": urls[1], "deadLetterQueue": urls[2]});
    let commands = world.start(service.url(), more);
    for (number, one) in
        [apply("good", 1, schedule("good", 1)), command("aply", "bad", json!({}))].iter().enumerate()
    {
        let call = world.client.send_message().queue_url(&urls[0]).message_body(one.to_string());
        call.message_group_id(format!("g{number}"))
            .message_deduplication_id(format!("d{number}"))
            .send()
            .await
            .unwrap();
    }
    let body = |message: &Message| message.body().map(str::to_owned);
    let answers = taken(&world.client, &urls[1], 2, 30, body).await;
    assert_eq!((answers.len(), taken(&world.client, &urls[2], 1, 30, body).await.len()), (2, 1));
    assert!(schedules(&Cli::new(service.url())).contains_key("good"));
    emptied(&world.client, &urls[0], 30).await;
    commands.stop().await;
    service.stop().await;
}
