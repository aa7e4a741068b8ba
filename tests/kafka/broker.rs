//! Brokers that speak Kafka's protocol over TCP: the mock cluster of librdkafka. And a look at what they have.

use std::time::{Duration, Instant};

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Headers as _, Message as _};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

/// A cluster whose topics have been made.
pub(crate) struct Broker(pub(crate) MockCluster<'static, DefaultProducerContext>);

/// A record as consumers get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) partition: i32,
    pub(crate) key: Option<String>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) value: Option<String>,
}

impl Seen {
    /// The only header of a name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut of_name = self.headers.iter().filter(|(one, _)| one == name);
        let value = of_name.next().map(|(_, value)| value.as_str());
        assert_eq!(of_name.next(), None, "{name}");
        value
    }
}

impl Broker {
    /// A cluster of one broker with one topic of this many partitions.
    pub(crate) fn with(topic: &str, partitions: i32) -> Self {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic(topic, partitions, 1).unwrap();
        Self(cluster)
    }

    pub(crate) fn servers(&self) -> String {
        self.0.bootstrap_servers()
    }

    /// What a topic has, once there are at least so many records; a moment longer, so that what should not be there is seen.
    pub(crate) async fn records(&self, topic: &str, partitions: i32, at_least: usize) -> Vec<Seen> {
        let (servers, topic) = (self.servers(), topic.to_owned());
        tokio::task::spawn_blocking(move || read(&servers, &topic, partitions, at_least)).await.unwrap()
    }

    /// What a topic of one partition has, and will have in a moment.
    pub(crate) async fn records_now(&self, topic: &str) -> Vec<Seen> {
        self.records(topic, 1, 0).await
    }
}

fn read(servers: &str, topic: &str, partitions: i32, at_least: usize) -> Vec<Seen> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", servers).set("group.id", "looker").set("enable.auto.commit", "false");
    let consumer: BaseConsumer = config.create().unwrap();
    let mut all = TopicPartitionList::new();
    for partition in 0..partitions {
        all.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
    }
    consumer.assign(&all).unwrap();
    let mut seen = Vec::new();
    let mut until = Instant::now() + Duration::from_secs(if at_least == 0 { 2 } else { 60 });
    while Instant::now() < until {
        let Some(record) = consumer.poll(Duration::from_millis(100)) else { continue };
        let record = record.unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let headers = record.headers().map(|headers| headers.iter().collect::<Vec<_>>()).unwrap_or_default();
        seen.push(Seen {
            partition: record.partition(),
            key: record.key().map(text),
            headers: headers.iter().map(|one| (one.key.to_owned(), text(one.value.unwrap()))).collect(),
            value: record.payload().map(text),
        });
        if seen.len() == at_least {
            until = Instant::now() + Duration::from_millis(700);
        }
    }
    seen
}
