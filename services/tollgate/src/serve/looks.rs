//! Lets the Schedule Master look at addresses as deliveries will, so that it can warn of those that are refused.

use tollgate_schedule_master::{Address, AddressFault, AddressLook};
use tollgate_target::{Fault, Look, TargetOptions};

/// By the guard of targets with these options.
pub(super) fn of(targets: &TargetOptions) -> AddressLook {
    let look = Look::new(targets);
    AddressLook::by(move |address| {
        let look = look.clone();
        Box::pin(async move {
            let Address { url, is_sqs_endpoint, namespace } = address;
            let fault = match is_sqs_endpoint {
                true => look.at_endpoint(&url, &namespace).await,
                false => look.at(&url, &namespace).await,
            };
            fault.map(|fault| match fault {
                Fault::Refused(why) => AddressFault::Refused(why),
                Fault::Unknown(why) => AddressFault::Unknown(why),
            })
        })
    })
}
