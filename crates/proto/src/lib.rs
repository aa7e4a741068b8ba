//! The `tollgate.v1` API: messages, clients and servers, the messages' JSON form, and the checks that stand between
//! what a caller sends and what the core works with.
//!
//! - [`v1`]: generated from `proto/tollgate/v1`.

pub mod v1;

/// The encoded `google.protobuf.FileDescriptorSet` of `tollgate.v1` and all that it imports, for reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = tonic::include_file_descriptor_set!("tollgate.v1");
