//! A message as a file or object: magic, kind, version, length, body, SHA-256 of the body.
//!
//! A reader refuses another kind, an unknown version, a wrong digest and trailing bytes, so that half a file or another
//! program's file is never taken for a plan or a receipt.

use baler_common::model::error::{Failure, FailureClass};
use prost::Message;
use sha2::{Digest, Sha256};

const MAGIC: &[u8; 4] = b"BALE";
const VERSION: u8 = 1;
const HEAD_BYTES: usize = 14;
const DIGEST_BYTES: usize = 32;

/// What a framed message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Plan = 1,
    Receipt = 2,
    SavedPlan = 3,
    Assignment = 4,
    Outcome = 5,
}

/// The message framed.
pub fn encode(kind: Kind, message: &impl Message) -> Vec<u8> {
    let body = message.encode_to_vec();
    let mut framed = Vec::with_capacity(HEAD_BYTES + body.len() + DIGEST_BYTES);
    framed.extend_from_slice(MAGIC);
    framed.push(kind as u8);
    framed.push(VERSION);
    framed.extend_from_slice(&(body.len() as u64).to_le_bytes());
    framed.extend_from_slice(&body);
    framed.extend_from_slice(&Sha256::digest(&body));
    framed
}

/// The message of a frame of this kind.
///
/// # Errors
/// [`FailureClass::InputCorrupt`] when it is not such a frame, [`FailureClass::Unsupported`] for another version.
pub fn decode<M: Message + Default>(kind: Kind, framed: &[u8]) -> Result<M, Failure> {
    let corrupt =
        |what: &str| Failure::new(FailureClass::InputCorrupt, format!("{what}: it is not a whole {kind:?} record"));
    let (head, rest) = framed.split_at_checked(HEAD_BYTES).ok_or_else(|| corrupt("it is too short"))?;
    if &head[..4] != MAGIC || head[4] != kind as u8 {
        return Err(corrupt("it begins with other bytes"));
    }
    if head[5] != VERSION {
        let message = format!("version {} is unknown, this program reads version {VERSION}", head[5]);
        return Err(Failure::new(FailureClass::Unsupported, message));
    }
    let length = u64::from_le_bytes(head[6..HEAD_BYTES].try_into().map_err(|_| corrupt("its head is short"))?);
    let length = usize::try_from(length).map_err(|_| corrupt("its length is absurd"))?;
    let (body, digest) = rest.split_at_checked(length).ok_or_else(|| corrupt("it was cut off"))?;
    if Sha256::digest(body)[..] != *digest {
        return Err(corrupt("its SHA-256 does not match"));
    }
    M::decode(body).map_err(|error| corrupt(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::KeyValue;

    #[test]
    fn every_changed_or_missing_byte_is_refused() {
        let value = KeyValue { key: "k".into(), value: Some("v".into()) };
        let framed = encode(Kind::Plan, &value);
        assert_eq!(decode::<KeyValue>(Kind::Plan, &framed), Ok(value));
        assert!(decode::<KeyValue>(Kind::Receipt, &framed).is_err());
        for cut in 0..framed.len() {
            assert!(decode::<KeyValue>(Kind::Plan, &framed[..cut]).is_err(), "cut at {cut}");
            let mut changed = framed.clone();
            changed[cut] ^= 1;
            assert!(decode::<KeyValue>(Kind::Plan, &changed).is_err(), "changed at {cut}");
        }
    }
}
