//! The `tollgate.v1` API: messages, clients and servers, the messages' JSON form, and the checks that stand between
//! what a caller sends and what the core works with.
//!
//! - [`v1`]: generated from `proto/tollgate/v1`.
//! - [`codec`]: what of a request is looked at before it is decoded.
//! - [`json`]: messages from and to JSON, for files, the console and the audit log.
//! - [`convert`]: messages to the core's types, with every check, and back.
//! - [`mask`]: updates of some fields; what differs between two JSON objects.
//! - [`filter`], [`order`], [`page`]: the `filter`, `order_by`, `page_size` and `page_token` of list calls.
//! - [`field`]: refusals that name the field, the value and what is allowed.

pub mod codec;
pub mod convert;
mod descriptors;
pub mod field;
pub mod filter;
pub mod json;
pub mod mask;
pub mod order;
pub mod page;
pub mod v1;

pub use descriptors::descriptor_pool;
pub use field::FieldError;

/// The encoded `google.protobuf.FileDescriptorSet` of `tollgate.v1` and all that it imports, for reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = tonic::include_file_descriptor_set!("tollgate.v1");
