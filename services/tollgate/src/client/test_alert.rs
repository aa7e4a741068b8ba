//! `tollgate test-alert`: what an alert's receiver says to a message.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use tollgate_proto::v1;

use super::{Session, complete, names};

/// Arguments of `test-alert`.
#[derive(Args, Clone, Debug)]
pub(crate) struct TestAlertArgs {
    /// The name of the alert
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(complete::named))]
    name: String,
}

/// Sends a message that says it is a test, and prints what the receiver says.
///
/// # Errors
/// What the service or the receiver says, or those of writing.
pub(crate) async fn run(session: Session, args: TestAlertArgs) -> anyhow::Result<()> {
    let name = names::alert(&session.namespace, &args.name);
    let tried = format!("send a test message of {name}");
    let answer = session.handler().send_test_alert(v1::SendTestAlertRequest { name: name.clone() }).await;
    let answer = answer.map_err(|status| session.failure(tried, status))?.into_inner();
    if session.printer.is_json() {
        return session.printer.message(&answer, |_| String::new());
    }
    if !answer.taken {
        anyhow::bail!("the receiver of {name} has not taken the test message: {}", answer.message);
    }
    session.printer.line(&format!("the receiver of {name} has taken the test message {}", answer.message_id))
}
