//! Where messages come from and go to: SQS queues, or topics of Kafka. What both do has one name here.
//!
//! In: what becomes of messages. Out: calls to SQS, or steps of a consumer group. Invariant: what batches and settlers do is the
//! same for both; only how a message ends, waits and is given back differs.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use tokio::task::JoinSet;

use crate::config::{QueueConfig, SourceConfig, SqsConfig};
use crate::counts::Counts;
use crate::hands::{Arrived, Hands, MESSAGES_MAX};
use crate::intake::Intake;
#[cfg(feature = "kafka")]
use crate::kafka::{Group, Topic};
use crate::message::{MESSAGE_MAX_BYTES, NotSent, Outgoing, Received};
use crate::receive::{HIDING_MAX, keep_hidden, receive, receivers};
use crate::sqs::Queue;

/// Where messages come from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// A queue, and for how long what is received is hidden.
    Sqs(Queue, Duration),
    #[cfg(feature = "kafka")]
    Kafka(Group),
}

/// Where answers or dead letters go.
#[derive(Clone, Debug)]
pub(crate) enum Outlet {
    Sqs(Queue),
    #[cfg(feature = "kafka")]
    Kafka(Topic),
}

/// All ways of one queue.
pub(crate) struct Ways {
    pub(crate) source: Source,
    pub(crate) replies: Option<Outlet>,
    pub(crate) dead_letters: Option<Outlet>,
    pub(crate) counts: Arc<Counts>,
}

impl Ways {
    /// Those of a queue, of which nothing is read yet.
    ///
    /// # Errors
    /// A queue without a region; Kafka's settings where its client refuses them, or is not there.
    pub(crate) async fn of(config: &QueueConfig) -> Result<Self, String> {
        let hands = Hands::new(config.in_hand);
        let counts = Arc::new(Counts::new(&config.name, config.source.words(), hands));
        match &config.source {
            SourceConfig::Sqs(sqs) => {
                Self::of_sqs(sqs, counts).await.map_err(|said| format!("queue {}: {said}", config.name))
            }
            #[cfg(feature = "kafka")]
            SourceConfig::Kafka(kafka) => {
                Self::of_kafka(kafka, counts).map_err(|said| format!("queue {}: {said}", config.name))
            }
            #[cfg(not(feature = "kafka"))]
            SourceConfig::Kafka(_) => {
                Err(format!("queue {}: kafka: {}", config.name, crate::config::NO_KAFKA))
            }
        }
    }

    async fn of_sqs(config: &SqsConfig, counts: Arc<Counts>) -> Result<Self, String> {
        let (region, endpoint) = (config.region.as_deref(), config.endpoint_url.as_deref());
        let client = tollgate_target::queue_client(&config.url, region, endpoint).await?;
        let outlet = |url: &String| Outlet::Sqs(Queue::new(client.clone(), url));
        Ok(Self {
            source: Source::Sqs(Queue::new(client.clone(), &config.url), config.visibility),
            replies: config.reply_queue.as_ref().map(outlet),
            dead_letters: config.dead_letter_queue.as_ref().map(outlet),
            counts,
        })
    }

    #[cfg(feature = "kafka")]
    fn of_kafka(config: &crate::config::KafkaConfig, counts: Arc<Counts>) -> Result<Self, String> {
        let topic = Topic::new(config, &config.topic)?;
        Ok(Self {
            replies: config.reply_topic.as_ref().map(|name| Outlet::Kafka(topic.other(name))),
            dead_letters: Some(Outlet::Kafka(topic.other(&config.dead_letter_topic))),
            source: Source::Kafka(Group::new(config, topic, counts.clone())),
            counts,
        })
    }
}

impl Source {
    /// Brings messages in, beside what else there is, until the intake's end. Its last sender is dropped after its stop.
    pub(crate) fn start(&self, beside: &mut JoinSet<()>, in_hand: usize, intake: Intake) {
        match self {
            Self::Sqs(queue, visibility) => {
                for _ in 0..receivers(in_hand) {
                    beside.spawn(receive(queue.clone(), intake.clone(), *visibility));
                }
                beside.spawn(keep_hidden(queue.clone(), intake, *visibility));
            }
            #[cfg(feature = "kafka")]
            Self::Kafka(group) => group.start(beside, intake),
        }
    }

    /// Whether a message is still this process's. One of a queue is as long as it is hidden, which nobody knows better than SQS.
    pub(crate) fn is_ours(&self, message: &Received) -> bool {
        match (self, &message.origin) {
            (Self::Sqs(..), _) => true,
            #[cfg(feature = "kafka")]
            (Self::Kafka(group), _) => group.is_ours(message),
        }
    }

    /// Whether what cannot be sent on waits here, rather than to go back.
    pub(crate) fn holds_on(&self) -> bool {
        match self {
            Self::Sqs(..) => false,
            #[cfg(feature = "kafka")]
            Self::Kafka(_) => true,
        }
    }

    /// Messages, ten at most, have come to their end. Gives the places of those for which that is to be said again.
    pub(crate) async fn end(&self, messages: &[&Received]) -> Result<Vec<usize>, String> {
        match self {
            Self::Sqs(queue, _) => {
                let receipts: Vec<String> =
                    messages.iter().map(|message| message.receipt().to_owned()).collect();
                queue.delete(&receipts).await
            }
            #[cfg(feature = "kafka")]
            Self::Kafka(group) => {
                messages.iter().for_each(|message| group.ended(message));
                Ok(Vec::new())
            }
        }
    }

    /// Messages, ten at most, are to come again, each after its time.
    pub(crate) async fn put_off(&self, messages: Vec<(Arrived, Duration)>) -> Result<(), String> {
        match self {
            Self::Sqs(queue, _) => {
                let hidden: Vec<(String, Duration)> = messages
                    .iter()
                    .map(|((message, _), span)| (message.receipt().to_owned(), *span))
                    .collect();
                // Their places are free after that, and they come again when they are no longer hidden.
                queue.hide(&hidden).await.map(drop)
            }
            #[cfg(feature = "kafka")]
            Self::Kafka(group) => {
                for (arrived, span) in messages {
                    group.put_off(arrived, span);
                }
                Ok(())
            }
        }
    }

    /// Gives back what is left in hand, by its receipts; of a topic, waits until its group has been left.
    pub(crate) async fn give_back(&self, receipts: Vec<String>) {
        match self {
            Self::Sqs(queue, _) => {
                let chunks: Vec<Vec<(String, Duration)>> = receipts
                    .chunks(MESSAGES_MAX)
                    .map(|some| some.iter().map(|receipt| (receipt.clone(), Duration::ZERO)).collect())
                    .collect();
                // Those for which it fails are there again when they are no longer hidden.
                let show = |some: Vec<_>| async move { drop(queue.hide(&some).await) };
                futures::stream::iter(chunks).for_each_concurrent(HIDING_MAX, show).await;
            }
            #[cfg(feature = "kafka")]
            Self::Kafka(group) => group.left().await,
        }
    }

    /// Whether it is there, and may be used.
    pub(crate) async fn look(&self) -> Result<(), String> {
        match self {
            Self::Sqs(queue, _) => queue.look().await,
            #[cfg(feature = "kafka")]
            Self::Kafka(group) => group.look().await,
        }
    }
}

impl Outlet {
    /// Sends messages. Says of each whether it was sent.
    pub(crate) async fn send(&self, messages: &[Outgoing]) -> Vec<Result<(), NotSent>> {
        match self {
            Self::Sqs(queue) => queue.send(messages).await,
            #[cfg(feature = "kafka")]
            Self::Kafka(topic) => topic.send(messages).await,
        }
    }

    /// Whether a message is not too large for it, as far as that is known here.
    pub(crate) fn has_room_for(&self, message: &Outgoing) -> bool {
        match self {
            Self::Sqs(_) => message.bytes() <= MESSAGE_MAX_BYTES,
            #[cfg(feature = "kafka")]
            Self::Kafka(_) => true,
        }
    }

    /// Whether it is there, and may be used.
    pub(crate) async fn look(&self) -> Result<(), String> {
        match self {
            Self::Sqs(queue) => queue.look().await,
            #[cfg(feature = "kafka")]
            Self::Kafka(topic) => topic.look().await,
        }
    }
}
