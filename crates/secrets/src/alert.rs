//! The secret parts of an alert: signing secret, header values, a Slack webhook's URL.

use tollgate_core::model::{AlertTarget, HttpTarget, Payload, ReleaseMode, Target};
use uuid::Uuid;

use crate::keys::{Keys, SecretError};
use crate::parts::{Resealed, has_sealed};

/// Does something with the secret parts as those of a target; a Slack webhook's URL stands as a secret there.
fn with<T>(target: &mut AlertTarget, act: impl FnOnce(&mut Target, &mut Payload) -> T, none: T) -> T {
    let http = match target {
        AlertTarget::Http { http } => http.clone(),
        AlertTarget::Slack { slack } => HttpTarget {
            secret: Some(slack.url.clone()),
            ..HttpTarget::plain(String::new(), slack.deadline_ms)
        },
        AlertTarget::Sqs { .. } => return none,
    };
    let mut parts = Target::Http { http, release: ReleaseMode::default() };
    let done = act(&mut parts, &mut Payload::default());
    match (target, parts) {
        (AlertTarget::Http { http }, Target::Http { http: new, .. }) => *http = new,
        (AlertTarget::Slack { slack }, Target::Http { http: new, .. }) => {
            slack.url = new.secret.unwrap_or_default();
        }
        _ => {}
    }
    done
}

/// Whether any part is an envelope.
pub fn is_alert_sealed(target: &AlertTarget) -> bool {
    with(&mut target.clone(), |target, payload| has_sealed(target, payload), false)
}

impl Keys {
    /// Opens every part of an alert's target.
    ///
    /// # Errors
    /// As [`Keys::open_parts`].
    pub fn open_alert(&self, alert: Uuid, target: &mut AlertTarget) -> Result<(), SecretError> {
        with(target, |target, payload| self.open_parts(alert, target, payload), Ok(()))
    }

    /// Seals every part of an alert's target, all of which are in clear; what is as it is in `before` keeps its envelope.
    ///
    /// # Errors
    /// As [`Keys::seal_parts`].
    pub fn seal_alert(
        &self,
        alert: Uuid,
        target: &mut AlertTarget,
        before: Option<&AlertTarget>,
    ) -> Result<(), SecretError> {
        let seal = |target: &mut Target, payload: &mut Payload| match before {
            None => self.seal_parts(alert, target, payload, None),
            Some(before) => with(
                &mut before.clone(),
                |old, nothing| self.seal_parts(alert, target, payload, Some((old, nothing))),
                Ok(()),
            ),
        };
        // Of a queue nothing is kept: what comes after it is sealed anew.
        let before_is_queue = matches!(before, Some(AlertTarget::Sqs { .. }));
        if before_is_queue {
            return with(target, |target, payload| self.seal_parts(alert, target, payload, None), Ok(()));
        }
        with(target, seal, Ok(()))
    }

    /// Brings every part of an alert's target under the first key.
    ///
    /// # Errors
    /// As [`Keys::reseal_parts`].
    pub fn reseal_alert(&self, alert: Uuid, target: &mut AlertTarget) -> Result<Resealed, SecretError> {
        with(target, |target, payload| self.reseal_parts(alert, target, payload), Ok(Resealed::Unchanged))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tollgate_core::model::{SlackTarget, SqsTarget};

    use super::*;
    use crate::{generate_line, is_sealed};

    const UID: Uuid = Uuid::from_u128(9);

    #[test]
    fn every_secret_of_an_alert_is_sealed_and_opens_again() {
        let keys = Keys::parse(&generate_line("k").unwrap()).unwrap();
        let slack = SlackTarget { url: "https://a.example/T0/secret".to_owned(), deadline_ms: 1 };
        let http = HttpTarget {
            url: "https://a.example/".to_owned(),
            headers: [("Authorization".to_owned(), "Bearer secret".to_owned())].into(),
            secret: Some("whsec_secret".to_owned()),
            deadline_ms: 1,
            http2: Default::default(),
            batch: None,
        };
        let sqs = SqsTarget {
            queue_url: "https://sqs.example/1/q".to_owned(),
            region: None,
            endpoint_url: None,
            message_group_id: None,
            group_by_key: false,
            deadline_ms: 1,
        };
        let (slack, http, sqs) =
            (AlertTarget::Slack { slack }, AlertTarget::Http { http }, AlertTarget::Sqs { sqs });
        for (clear, is_secret) in [(&slack, true), (&http, true), (&sqs, false)] {
            let mut sealed = clear.clone();
            keys.seal_alert(UID, &mut sealed, Some(&sqs)).unwrap();
            assert_eq!(is_alert_sealed(&sealed), is_secret);
            let sealed_parts = match &sealed {
                AlertTarget::Http { http } => {
                    http.headers.values().chain(&http.secret).map(|text| is_sealed(text)).collect()
                }
                AlertTarget::Slack { slack } => vec![is_sealed(&slack.url)],
                AlertTarget::Sqs { .. } => Vec::new(),
            };
            assert!(sealed_parts.iter().all(|is_sealed| *is_sealed), "{sealed:?}");
            let mut again = clear.clone();
            keys.seal_alert(UID, &mut again, Some(&sealed)).unwrap();
            assert_eq!(again, sealed, "it did not change");
            assert_eq!(keys.reseal_alert(UID, &mut again), Ok(Resealed::Unchanged));
            keys.open_alert(UID, &mut again).unwrap();
            assert_eq!(again, *clear);
        }
    }
}
