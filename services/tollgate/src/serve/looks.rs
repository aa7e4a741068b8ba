//! Lets the Schedule Master look at addresses as deliveries will, so that it can warn of those that are refused.

use tollgate_schedule_master::{Address, AddressFault, AddressKind, AddressLook};
use tollgate_target::{Fault, Look, TargetOptions};

/// By the guard of targets with these options.
pub(super) fn of(targets: &TargetOptions) -> AddressLook {
    let look = Look::new(targets);
    AddressLook::by(move |address| {
        let look = look.clone();
        Box::pin(async move {
            let Address { url, kind, namespace } = address;
            let fault = match kind {
                AddressKind::Url => look.at(&url, &namespace).await,
                AddressKind::SqsEndpoint => look.at_endpoint(&url, &namespace).await,
                AddressKind::KafkaServer => look.at_kafka(&url, &namespace).await,
            };
            fault.map(|fault| match fault {
                Fault::Refused(why) => AddressFault::Refused(why),
                Fault::Unknown(why) => AddressFault::Unknown(why),
            })
        })
    })
}
