//! `examples/commands`, as it stands there: its file is good, and what its script sends is carried out.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use tollgate_harness::binary;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_of_commands_works() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/commands");
    let checked =
        Command::new(binary()).args(["commands", "--check", "-f"]).arg(folder.join("commands.yaml")).output();
    let checked = checked.unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));

    // Stands for AWS's own client: writes down what it is to send.
    let world = World::new().await;
    let (aws, sent) = (world.folder.path().join("aws"), world.folder.path().join("sent"));
    std::fs::write(&aws, "#!/bin/sh\nprintf '%s\\0' \"$6\" >> \"$SENT\"\n").unwrap();
    std::fs::set_permissions(&aws, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", world.folder.path().display(), std::env::var("PATH").unwrap());
    let mut script = Command::new("bash");
    script.arg(folder.join("send.sh")).arg(&world.queue).env("PATH", path).env("SENT", &sent);
    assert!(script.status().unwrap().success());
    let sent = std::fs::read_to_string(&sent).unwrap();
    let bodies: Vec<String> = sent.split_terminator('\0').map(str::to_owned).collect();
    assert!(bodies.len() >= 3, "{sent}");

    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    send(&world.client, &world.queue, &bodies).await;
    let commands = world.start(service.url(), json!({}));
    wait_for("the end of the example", 60, async || {
        (left(&world.client, &world.queue).await == (0, 0)).then_some(())
    })
    .await;
    assert_eq!(left(&world.client, &world.dead_letters).await, (0, 0), "{}", commands.log());
    assert_eq!(service.runs("hello").await.len(), 1);
    let schedule = Cli::new(service.url()).json(&["get", "schedule", "hello"]);
    assert_eq!(schedule["triggers"][0]["cron"], "0 4 * * *", "the highest revision stays: {schedule}");
    commands.stop().await;
    service.stop().await;
}
