//! Records are read however their producer has compressed them.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_are_read_however_they_are_compressed() {
    let database = Database::new(Kind::Sqlite).await;
    let service = start(&database).await;
    let world = World::new();
    let commands = world.start(service.url(), json!({}));
    let kinds = ["none", "gzip", "snappy", "lz4", "zstd"];
    for kind in kinds {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", world.broker.servers()).set("compression.type", kind);
        let producer: FutureProducer = config.create().unwrap();
        for number in 0..3 {
            let id = format!("{kind}{number}");
            // What does not become smaller is sent as it is; blanks are of no account in JSON.
            let text = format!("{}{}", apply(&id, 1, schedule(&id, 1)), " ".repeat(20_000));
            let record = FutureRecord::to("commands").key(&id).payload(&text);
            producer.send(record, Duration::from_secs(20)).await.unwrap();
        }
    }
    let count = 3 * kinds.len();
    let answers = by_id(&world.answers(count).await);
    assert!(answers.values().all(|answer| answer["outcome"] == "DONE"), "{answers:?}");
    assert_eq!(answers.len(), count);
    world.done_with(count, 20).await;
    assert_eq!(schedules(&Cli::new(service.url())).len(), count);
    assert_eq!(world.broker.records_now("dead").await, []);
    commands.stop().await;
    service.stop().await;
}
