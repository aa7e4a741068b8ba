//! Decides how many parts a request may have before any of them is decoded: a part of two bytes takes hundreds of bytes of
//! memory as a message.
//!
//! In: the bytes of a message. Out: the message, or a refusal that names the bound. Invariants: what is refused has not
//! been allocated; what a caller may ask for by the protos is never refused here. Not here: how many bytes a message may
//! have (the server), and how many a caller may send at once (the port).

use std::marker::PhantomData;

use prost::bytes::Buf as _;
use prost::encoding::{WireType, decode_key, decode_varint};
use prost::{Message, Name};
use prost_reflect::{Kind, MessageDescriptor};
use tonic::Status;
use tonic::codec::{BufferSettings, DecodeBuf, Decoder};
use tonic_prost::{ProstDecoder, ProstEncoder};

use crate::descriptors;

/// The most parts of a request: messages in it, keys of maps, texts of lists. The largest payload that people write has
/// fewer; as messages this number takes some 30 MB.
pub const PARTS_MAX: usize = 200_000;
/// As [`PARTS_MAX`], of a message with releases, of which 1,000 are allowed, beside what their results hold: one a little too
/// large is refused by the service, which says what is allowed.
pub const RELEASE_PARTS_MAX: usize = 4_000;
/// Smaller messages are not looked at.
const SMALL_BYTES: usize = 16 * 1024;
/// What each direction of a call has for its messages before it needs more. Most messages are smaller, and ten thousand workers
/// that wait have a stream each.
const BUFFER_BYTES: usize = 512;
/// What is gathered of a stream before it is sent.
const GATHERED_BYTES: usize = 32 * 1024;
/// How deep messages are decoded.
const DEPTH_MAX: usize = 100;

/// Messages as Protocol Buffers, requests with a bounded number of parts.
#[derive(Clone, Debug)]
pub struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> tonic::codec::Codec for Codec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Name + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = Bounded<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(buffers())
    }

    fn decoder(&mut self) -> Self::Decoder {
        Bounded(ProstDecoder::new(buffers()))
    }
}

fn buffers() -> BufferSettings {
    BufferSettings::new(BUFFER_BYTES, GATHERED_BYTES)
}

/// Reads messages, requests with a bounded number of parts.
#[derive(Clone, Debug)]
pub struct Bounded<U>(ProstDecoder<U>);

impl<U: Message + Name + Default> Decoder for Bounded<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        if buffer.remaining() > SMALL_BYTES {
            check::<U>(buffer.chunk())?;
        }
        self.0.decode(buffer)
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.0.buffer_settings()
    }
}

/// Refuses a request with too many parts. What a server answers is its own affair.
fn check<M: Name>(bytes: &[u8]) -> Result<(), Status> {
    let max = match M::NAME {
        "BatchReleaseTokensRequest" | "ReleaseTokensRequest" => RELEASE_PARTS_MAX,
        name if name.ends_with("Request") => PARTS_MAX,
        _ => return Ok(()),
    };
    let Some(descriptor) = descriptors::of::<M>() else { return Ok(()) };
    let mut left = Left { parts: max, free: PARTS_MAX.max(max) };
    match count(&descriptor, bytes, &mut left, 0) {
        Ok(()) => Ok(()),
        Err(Stop::TooMany) => {
            let text =
                format!("the message has too many parts: at most {max} messages and texts in it are taken");
            Err(Status::invalid_argument(text))
        }
        Err(Stop::Broken) => {
            Err(Status::invalid_argument("the message is broken: it is no Protocol Buffers message"))
        }
    }
}

/// How many more parts there may be.
struct Left {
    /// Outside free JSON.
    parts: usize,
    /// In free JSON; everywhere, where these are as many.
    free: usize,
}

impl Left {
    fn take(&mut self, is_free: bool) -> Result<(), Stop> {
        self.free = self.free.checked_sub(1).ok_or(Stop::TooMany)?;
        if !is_free {
            self.parts = self.parts.checked_sub(1).ok_or(Stop::TooMany)?;
        }
        Ok(())
    }
}

enum Stop {
    TooMany,
    Broken,
}

/// Takes the parts of a message from what is left.
fn count(
    descriptor: &MessageDescriptor,
    mut bytes: &[u8],
    left: &mut Left,
    depth: usize,
) -> Result<(), Stop> {
    if depth > DEPTH_MAX {
        return Err(Stop::Broken);
    }
    while !bytes.is_empty() {
        let (number, wire) = decode_key(&mut bytes).map_err(|_| Stop::Broken)?;
        let length = match wire {
            WireType::Varint => {
                decode_varint(&mut bytes).map_err(|_| Stop::Broken)?;
                continue;
            }
            WireType::ThirtyTwoBit => 4,
            WireType::SixtyFourBit => 8,
            WireType::LengthDelimited => {
                let length = decode_varint(&mut bytes).map_err(|_| Stop::Broken)?;
                usize::try_from(length).map_err(|_| Stop::Broken)?
            }
            // Proto3 has none.
            WireType::StartGroup | WireType::EndGroup => return Err(Stop::Broken),
        };
        let (part, rest) = bytes.split_at_checked(length).ok_or(Stop::Broken)?;
        bytes = rest;
        let Some(field) = descriptor.get_field(number).filter(|_| wire == WireType::LengthDelimited) else {
            continue;
        };
        let is_message = field.kind().as_message().is_some();
        if is_message || (field.is_list() && matches!(field.kind(), Kind::String | Kind::Bytes)) {
            left.take(descriptor.full_name().starts_with("google.protobuf."))?;
        }
        if let Kind::Message(inner) = field.kind() {
            count(&inner, part, left, depth + 1)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{
        BatchReleaseTokensRequest, CreateScheduleRequest, ReleaseTokenRequest, RetryDeadEventsRequest,
        Schedule,
    };
    use tonic::Code;

    fn refused<M: Message + Name>(message: &M) -> Option<Code> {
        check::<M>(&message.encode_to_vec()).err().map(|status| status.code())
    }

    fn releases(count: usize) -> BatchReleaseTokensRequest {
        let release = ReleaseTokenRequest { cursor: Some("x".to_owned()), ..ReleaseTokenRequest::default() };
        let release =
            ReleaseTokenRequest { next_check_time: Some(prost_types::Timestamp::default()), ..release };
        BatchReleaseTokensRequest { releases: vec![release; count] }
    }

    fn payload(values: usize) -> CreateScheduleRequest {
        let one = prost_types::Value { kind: Some(prost_types::value::Kind::BoolValue(true)) };
        let list = prost_types::ListValue { values: vec![one; values] };
        let payload = prost_types::Value { kind: Some(prost_types::value::Kind::ListValue(list)) };
        let schedule = Schedule { payload: Some(payload), ..Schedule::default() };
        CreateScheduleRequest { schedule: Some(schedule), ..CreateScheduleRequest::default() }
    }

    #[test]
    fn what_the_protos_allow_is_taken() {
        assert_eq!(refused(&releases(1_000)), None);
        assert_eq!(refused(&payload(130_000)), None, "256 KiB of JSON have no more values");
        let events = vec![String::new(); 1_000];
        assert_eq!(refused(&RetryDeadEventsRequest { events, ..RetryDeadEventsRequest::default() }), None);
    }

    #[test]
    fn too_many_parts_are_refused() {
        assert_eq!(refused(&releases(2_100)), Some(Code::InvalidArgument));
        assert_eq!(refused(&payload(PARTS_MAX)), Some(Code::InvalidArgument));
        let events = vec![String::new(); PARTS_MAX + 1];
        let names = RetryDeadEventsRequest { events, ..RetryDeadEventsRequest::default() };
        assert_eq!(refused(&names), Some(Code::InvalidArgument), "texts of a list count");
        let entries = (0..PARTS_MAX).map(|at| (at.to_string(), String::new())).collect();
        let labels = Schedule { labels: entries, ..Schedule::default() };
        let labels = CreateScheduleRequest { schedule: Some(labels), ..CreateScheduleRequest::default() };
        assert_eq!(refused(&labels), Some(Code::InvalidArgument), "keys of a map count");
    }

    #[test]
    fn results_are_counted_apart_from_releases() {
        let one = prost_types::Value { kind: Some(prost_types::value::Kind::BoolValue(true)) };
        let with = |values: usize, count: usize| {
            let values = prost_types::ListValue { values: vec![one.clone(); values] };
            let result = prost_types::Value { kind: Some(prost_types::value::Kind::ListValue(values)) };
            let release = ReleaseTokenRequest { result: Some(result), ..ReleaseTokenRequest::default() };
            BatchReleaseTokensRequest { releases: vec![release; count] }
        };
        assert_eq!(refused(&with(50_000, 2)), None);
        assert_eq!(refused(&with(100, 1_000)), None);
        assert_eq!(refused(&with(0, RELEASE_PARTS_MAX)), Some(Code::InvalidArgument));
        assert_eq!(refused(&with(300, 1_000)), Some(Code::InvalidArgument));
    }

    #[test]
    fn nothing_hides_behind_what_cannot_be_read() {
        let many = BatchReleaseTokensRequest { releases: vec![ReleaseTokenRequest::default(); 10_000] };
        for hidden in [&[0x0b_u8][..], &[0x80; 11], &[0x12, 0xff]] {
            let bytes = [hidden, &many.encode_to_vec()].concat();
            assert!(check::<BatchReleaseTokensRequest>(&bytes).is_err(), "{hidden:?}");
        }
    }

    #[test]
    fn every_request_is_one_by_its_name() {
        for service in descriptors::descriptor_pool().services() {
            for rpc in service.methods() {
                assert!(rpc.input().name().ends_with("Request"), "{}", rpc.full_name());
            }
        }
    }
}
