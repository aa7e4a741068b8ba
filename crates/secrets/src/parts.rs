//! The secret parts of a schedule: signing secret, header values (of its target, and of the request for its list), payload,
//! items.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_core::model::{ItemsFrom, Payload, Target};
use uuid::Uuid;

use crate::keys::{Keys, SecretError, is_sealed};

/// The name under which the items of a schedule, and of its runs' specs, are sealed.
pub const ITEMS: &str = "items";

/// The name under which a header of the request for a list is sealed.
fn list_header_field(name: &str) -> String {
    format!("items_from.http.headers.{name}")
}

/// What became of a schedule's secret parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resealed {
    /// They are as they should be.
    Unchanged,
    /// Some were brought under the first key.
    Changed,
}

/// Visits every part that is a secret, with its path.
fn visit<E>(
    target: &mut Target,
    payload: &mut Payload,
    mut visit: impl FnMut(&str, &mut String) -> Result<(), E>,
) -> Result<(), E> {
    if let Target::Http { http, .. } = target {
        if let Some(secret) = &mut http.secret {
            visit("target.http.secret", secret)?;
        }
        for (name, value) in &mut http.headers {
            visit(&format!("target.http.headers.{name}"), value)?;
        }
    }
    if let Target::Kafka { kafka, .. } = target {
        for (name, value) in &mut kafka.headers {
            visit(&format!("target.kafka.headers.{name}"), value)?;
        }
    }
    if let Some(from) = payload.from.as_mut().filter(|from| !from.http.headers.is_empty()) {
        for (name, value) in &mut Arc::make_mut(from).http.headers {
            visit(&list_header_field(name), value)?;
        }
    }
    if !payload.json.is_empty() {
        visit("payload", &mut payload.json)?;
    }
    if !payload.items.is_empty() {
        let mut items = payload.items.as_ref().to_owned();
        visit(ITEMS, &mut items)?;
        payload.items = items.into();
    }
    Ok(())
}

/// Whether any part is an envelope.
pub fn has_sealed(target: &Target, payload: &Payload) -> bool {
    let sealed_target = match target {
        Target::Http { http, .. } => {
            http.secret.as_deref().is_some_and(is_sealed)
                || http.headers.values().any(|value| is_sealed(value))
        }
        Target::Kafka { kafka, .. } => kafka.headers.values().any(|value| is_sealed(value)),
        Target::Sqs { .. } | Target::Pull { .. } => false,
    };
    let has_sealed = |headers: &BTreeMap<String, String>| headers.values().any(|value| is_sealed(value));
    let sealed_list = payload.from.as_ref().is_some_and(|from| has_sealed(&from.http.headers));
    sealed_target || sealed_list || is_sealed(&payload.json) || is_sealed(&payload.items)
}

impl Keys {
    /// Opens every part.
    ///
    /// # Errors
    /// The first that cannot be opened; the others may be open then.
    pub fn open_parts(
        &self,
        schedule: Uuid,
        target: &mut Target,
        payload: &mut Payload,
    ) -> Result<(), SecretError> {
        if !has_sealed(target, payload) {
            return Ok(());
        }
        visit(target, payload, |field, text| {
            *text = self.open(schedule, field, text)?;
            Ok(())
        })
    }

    /// Opens the headers of the request for a list.
    ///
    /// # Errors
    /// The first that cannot be opened.
    pub fn open_list(&self, schedule: Uuid, from: &ItemsFrom) -> Result<ItemsFrom, SecretError> {
        let mut opened = from.clone();
        for (name, value) in &mut opened.http.headers {
            *value = self.open(schedule, &list_header_field(name), value)?;
        }
        Ok(opened)
    }

    /// Seals every part, all of which are in clear. A part that is the same as in `before` keeps its envelope, under
    /// the key that it has: so what did not change looks unchanged.
    ///
    /// # Errors
    /// [`SecretError::NoRandom`].
    pub fn seal_parts(
        &self,
        schedule: Uuid,
        target: &mut Target,
        payload: &mut Payload,
        before: Option<(&Target, &Payload)>,
    ) -> Result<(), SecretError> {
        if self.is_empty() {
            return Ok(());
        }
        let mut kept = BTreeMap::new();
        if let Some((target, payload)) = before {
            let note = |field: &str, text: &mut String| {
                if is_sealed(text)
                    && let Ok(clear) = self.open(schedule, field, text)
                {
                    kept.insert(field.to_owned(), (clear, std::mem::take(text)));
                }
                Ok::<(), SecretError>(())
            };
            visit(&mut target.clone(), &mut payload.clone(), note)?;
        }
        visit(target, payload, |field, text| {
            *text = match kept.remove(field) {
                Some((clear, envelope)) if clear == *text => envelope,
                _ => self.seal(schedule, field, text)?,
            };
            Ok(())
        })
    }

    /// Brings every part, sealed or not, under the first key.
    ///
    /// # Errors
    /// The first that cannot be opened or sealed; the parts are of no use then.
    pub fn reseal_parts(
        &self,
        schedule: Uuid,
        target: &mut Target,
        payload: &mut Payload,
    ) -> Result<Resealed, SecretError> {
        let mut done = Resealed::Unchanged;
        visit(target, payload, |field, text| {
            if !self.is_current(text) {
                *text = self.seal(schedule, field, &self.open(schedule, field, text)?)?;
                done = Resealed::Changed;
            }
            Ok(())
        })?;
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tollgate_core::model::{ContentMode, HttpTarget, KafkaTarget, ReleaseMode};

    use super::*;
    use crate::generate_line;

    const UID: Uuid = Uuid::from_u128(7);

    fn parts() -> (Target, Payload) {
        let http = HttpTarget {
            url: "https://a.example/".to_owned(),
            headers: [("Authorization".to_owned(), "Bearer abc".to_owned())].into(),
            secret: Some("whsec_c2VjcmV0".to_owned()),
            deadline_ms: 1_000,
            http2: Default::default(),
            batch: None,
        };
        let target = Target::Http { http, release: ReleaseMode::Explicit };
        let items = "acme\t7\t{\"pin\":\"veiled\"}\n";
        let mut from = ItemsFrom::http("https://l.example/".to_owned());
        from.http.headers = [("X-Api-Key".to_owned(), "listed".to_owned())].into();
        let payload = Payload { from: Some(Arc::new(from)), ..Payload::of(r#"{"token":"hidden"}"#) };
        (target, payload.with_items(items))
    }

    fn text(target: &Target, payload: &Payload) -> String {
        let Target::Http { http, .. } = target else { panic!("not HTTP") };
        let list = &payload.from.as_ref().unwrap().http.headers;
        format!("{:?} {:?} {list:?} {} {}", http.secret, http.headers, payload.json, payload.items)
    }

    #[test]
    fn every_part_is_sealed_and_opens_again() {
        let keys = Keys::parse(&generate_line("k").unwrap()).unwrap();
        let (mut target, mut payload) = parts();
        keys.seal_parts(UID, &mut target, &mut payload, None).unwrap();
        let sealed = text(&target, &payload);
        assert_eq!(sealed.matches("enc:v1:k:").count(), 5, "{sealed}");
        for secret in ["whsec", "Bearer", "hidden", "veiled", "acme", "listed"] {
            assert!(!sealed.contains(secret), "{sealed}");
        }
        assert!(has_sealed(&target, &payload) && !has_sealed(&parts().0, &parts().1));
        assert_eq!(payload.units_max, 7, "what is sealed does not say it");
        let opened = keys.open_list(UID, payload.from.as_ref().unwrap()).unwrap();
        assert_eq!(Some(&opened), parts().1.from.as_deref());
        keys.open_parts(UID, &mut target, &mut payload).unwrap();
        assert_eq!((target, payload), parts());
    }

    #[test]
    fn headers_of_records_are_sealed_as_those_of_requests() {
        let keys = Keys::parse(&generate_line("k").unwrap()).unwrap();
        let kafka = KafkaTarget {
            bootstrap_servers: "a:9092".to_owned(),
            topic: "t".to_owned(),
            key: None,
            headers: [("x-api-key".to_owned(), "hidden".to_owned())].into(),
            content_mode: ContentMode::Structured,
            deadline_ms: KafkaTarget::DEADLINE_DEFAULT_MS,
        };
        let clear = Target::Kafka { kafka, release: ReleaseMode::Explicit };
        let (mut target, mut payload) = (clear.clone(), Payload::default());
        keys.seal_parts(UID, &mut target, &mut payload, None).unwrap();
        assert!(has_sealed(&target, &payload) && !has_sealed(&clear, &payload));
        let Target::Kafka { kafka, .. } = &target else { panic!("not Kafka") };
        assert!(kafka.headers.values().all(|value| value.starts_with("enc:v1:k:")), "{:?}", kafka.headers);
        keys.open_parts(UID, &mut target, &mut payload).unwrap();
        assert_eq!(target, clear);
    }

    #[test]
    fn what_did_not_change_keeps_its_envelope() {
        let keys = Keys::parse(&generate_line("k").unwrap()).unwrap();
        let (mut before, mut before_payload) = parts();
        keys.seal_parts(UID, &mut before, &mut before_payload, None).unwrap();
        let (mut after, mut payload) = parts();
        let Target::Http { http, .. } = &mut after else { panic!("not HTTP") };
        http.secret = Some("whsec_b3RoZXI=".to_owned());
        keys.seal_parts(UID, &mut after, &mut payload, Some((&before, &before_payload))).unwrap();
        let (Target::Http { http: old, .. }, Target::Http { http: new, .. }) = (&before, &after) else {
            panic!("not HTTP")
        };
        assert_eq!((&old.headers, &before_payload), (&new.headers, &payload));
        assert_ne!(old.secret, new.secret);
    }

    #[test]
    fn resealing_takes_what_is_in_clear_and_what_is_under_another_key() {
        let (one, two) = (generate_line("one").unwrap(), generate_line("two").unwrap());
        let (old, new) = (Keys::parse(&one).unwrap(), Keys::parse(&format!("{two},{one}")).unwrap());
        let (mut target, mut payload) = parts();
        assert_eq!(old.reseal_parts(UID, &mut target, &mut payload), Ok(Resealed::Changed));
        assert_eq!(old.reseal_parts(UID, &mut target, &mut payload), Ok(Resealed::Unchanged));
        assert_eq!(new.reseal_parts(UID, &mut target, &mut payload), Ok(Resealed::Changed));
        assert_eq!(text(&target, &payload).matches("enc:v1:two:").count(), 5);
        assert_eq!(old.open_parts(UID, &mut target, &mut payload).unwrap_err().key(), Some("two"));
        new.open_parts(UID, &mut target, &mut payload).unwrap();
        assert_eq!((target, payload), parts());
    }
}
