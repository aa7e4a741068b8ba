//! The messages, clients and servers of `tollgate.v1`, generated from `proto/tollgate/v1/*.proto`, where they are
//! described.
//!
//! Not here: what values are allowed (`convert`), their JSON form (`json`).
#![allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::large_futures,
    reason = "generated; which of these it needs changes with the generator"
)]

tonic::include_proto!("tollgate.v1");

impl std::fmt::Debug for HttpTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpTarget")
            .field("url", &self.url)
            .field("headers", &self.headers.keys())
            .field("has_secret", &(self.has_secret || !self.secret.is_empty()))
            .field("deadline", &self.deadline)
            .finish()
    }
}

impl PullTarget {
    /// As the core tells of it: the queue, and the labels that it requires.
    pub fn address(&self) -> String {
        let core = tollgate_core::model::PullTarget::new(self.queue.clone(), self.requires.clone(), 0);
        core.address().to_owned()
    }
}

impl KafkaTarget {
    /// As the core tells of it: its brokers.
    pub fn address(&self) -> String {
        self.bootstrap_servers.join(",")
    }

    /// For people: the topic, and its brokers.
    pub fn shown(&self) -> String {
        format!("{} at {}", self.topic, self.address())
    }
}

impl std::fmt::Debug for KafkaTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaTarget")
            .field("bootstrap_servers", &self.bootstrap_servers)
            .field("topic", &self.topic)
            .field("key", &self.key)
            .field("headers", &self.headers.keys())
            .field("content_mode", &self.content_mode)
            .field("deadline", &self.deadline)
            .finish()
    }
}

impl std::fmt::Debug for HttpItems {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpItems")
            .field("url", &self.url)
            .field("headers", &self.headers.keys())
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for SlackTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlackTarget").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}
