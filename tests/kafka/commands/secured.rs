//! A topic of a cluster that asks for TLS and a login: commands are read, answered and refused there as elsewhere.

use super::*;
use crate::authority::Authority;
use crate::front::{Front, User};

/// A queue behind a front, with a file of the password.
fn queue(front: &Front, password_file: &str) -> Value {
    json!({"kafka": {
        "bootstrapServers": [front.server()], "topic": "commands", "group": GROUP, "tls": {"caFile": "ca.pem"},
        "login": {"mechanism": "SCRAM-SHA-512", "user": "reader", "passwordFile": password_file},
    }})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_are_read_and_answered_over_tls_once_the_password_is_right() {
    let database = Database::new(Kind::Sqlite).await;
    let service = start(&database).await;
    let (world, authority) = (World::new(), Authority::new("brokers"));
    let folder = world.folder.path();
    authority.write(folder, "ca");
    std::fs::write(folder.join("right"), "let me in\n").unwrap();
    std::fs::write(folder.join("wrong"), "let me out\n").unwrap();
    let user = User::new("SCRAM-SHA-512", "reader", "let me in");
    let front = Front::before(&world.broker, &authority, Some(user), false).await;
    let bad = json!({"version": 1, "op": "apply", "id": "bad", "reply": "bad"});
    world.send(&[apply("good", 1, schedule("nightly", 2)), bad.clone()]).await;
    let commands = world.start(service.url(), queue(&front, "wrong"));
    wait_for("the refused login in the log", 40, async || {
        commands.log().contains("SASL authentication error").then_some(())
    })
    .await;
    let log = commands.log();
    assert!(log.contains("Authentication failed") && !log.contains("let me"), "{log}");
    commands.kill9();
    assert_eq!((front.let_in(), world.committed().await), (0, 0));
    let commands = world.start(service.url(), queue(&front, "right"));
    let answers = by_id(&world.answers(2).await);
    assert_eq!(
        (&answers["good"]["outcome"], &answers["bad"]["outcome"]),
        (&json!("DONE"), &json!("REFUSED"))
    );
    let dead = world.dead(1).await;
    assert_eq!(dead[0].value.as_deref(), Some(bad.to_string().as_str()), "as it came");
    world.done_with(2, 30).await;
    assert_eq!(schedules(&Cli::new(service.url())).len(), 1);
    assert!(front.let_in() > 0 && !commands.log().contains("let me"), "{}", commands.log());
    commands.stop().await;
    service.stop().await;
}
