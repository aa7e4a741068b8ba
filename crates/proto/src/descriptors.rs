//! Decides which description of the messages the JSON mapping and the update masks read: the embedded one.

use std::sync::LazyLock;

use prost::{Message, Name};
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};

use crate::FILE_DESCRIPTOR_SET;

#[expect(clippy::expect_used, reason = "the build wrote the set; a test decodes it")]
static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("the embedded descriptors decode"));

/// Every description: the messages and services of the API, their options, and their comments.
pub fn descriptor_pool() -> &'static DescriptorPool {
    &POOL
}

/// The description of `M`, or none for a message that is not part of the API.
pub(crate) fn of<M: Name>() -> Option<MessageDescriptor> {
    POOL.get_message_by_name(&M::full_name())
}

/// `message` by its description.
pub(crate) fn dynamic<M: Message + Name>(message: &M) -> Option<DynamicMessage> {
    let mut dynamic = DynamicMessage::new(of::<M>()?);
    dynamic.transcode_from(message).ok()?;
    Some(dynamic)
}
