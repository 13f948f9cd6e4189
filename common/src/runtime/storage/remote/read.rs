//! Reads whose answers are checked.
//!
//! An answer counts only when it has exactly the bytes that were asked for, of the object that was pinned. Anything
//! else is asked for again a few times; a store that keeps answering wrongly makes the object unreadable.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, ObjectStore};

use super::failures::classify;
use super::{TRIES, bare_tag, pause, wait};
use crate::model::error::{Failure, FailureClass};
use crate::model::object::Identity;

/// A larger read is split into pieces of this size.
const PIECE_BYTES: u64 = 16 << 20;
/// Pieces of one read that are under way at a time.
const PIECES_AT_A_TIME: usize = 4;

/// An object pinned by its size and entity tag.
#[derive(Debug, Clone)]
pub(in super::super) struct RemoteSource {
    store: Arc<dyn ObjectStore>,
    key: Path,
    bytes: u64,
    /// Without quotes; `None` when nothing but the size is pinned.
    etag: Option<String>,
}

impl RemoteSource {
    pub(super) fn new(store: Arc<dyn ObjectStore>, key: Path, bytes: u64, identity: &Identity) -> Self {
        let etag = match identity {
            Identity::Etag { etag, .. } => Some(bare_tag(etag).to_owned()),
            Identity::Unknown | Identity::Local { .. } => None,
        };
        Self { store, key, bytes, etag }
    }

    pub(in super::super) fn read(&self, range: Range<u64>) -> Result<Bytes, Failure> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let source = self.clone();
        if range.end - range.start <= PIECE_BYTES {
            return wait(async move { source.piece(range).await })?;
        }
        wait(async move {
            let starts = range.clone().step_by(PIECE_BYTES as usize);
            let pieces = starts.map(|start| source.piece(start..range.end.min(start + PIECE_BYTES)));
            let mut pieces = futures::stream::iter(pieces).buffered(PIECES_AT_A_TIME);
            let mut whole = BytesMut::new();
            while let Some(piece) = pieces.next().await {
                whole.extend_from_slice(&piece?);
            }
            Ok(whole.freeze())
        })?
    }

    async fn piece(&self, range: Range<u64>) -> Result<Bytes, Failure> {
        let mut attempt = 1;
        loop {
            match self.ask(range.clone()).await {
                Err(Wrong::Answer(why)) if attempt < TRIES => {
                    tracing::warn!(key = %self.key, ?range, attempt, why, "the store answered wrongly: asking again");
                    tokio::time::sleep(pause(attempt)).await;
                    attempt += 1;
                }
                Err(Wrong::Answer(why)) => {
                    let message = format!("the store answered {TRIES} times with other bytes than asked for: {why}");
                    return Err(Failure::new(FailureClass::InputCorrupt, message));
                }
                Err(Wrong::Failed(failure)) => return Err(failure),
                Ok(content) => return Ok(content),
            }
        }
    }

    async fn ask(&self, range: Range<u64>) -> Result<Bytes, Wrong> {
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            if_match: self.etag.as_ref().map(|etag| quoted(etag)),
            ..GetOptions::default()
        };
        let answer = self.store.get_opts(&self.key, options).await.map_err(|error| self.wrong(&error))?;
        let changed = |what: String| {
            let message = format!("the object is not the one that was planned ({what}): plan again");
            Wrong::Failed(Failure::new(FailureClass::InputChanged, message))
        };
        if answer.meta.size != self.bytes {
            return Err(changed(format!("{} bytes now, {} planned", answer.meta.size, self.bytes)));
        }
        if let (Some(pinned), Some(now)) = (&self.etag, &answer.meta.e_tag)
            && pinned != bare_tag(now)
        {
            return Err(changed("its entity tag differs".to_owned()));
        }
        if answer.range != range {
            return Err(Wrong::Answer(format!("range {:?} instead of {range:?}", answer.range)));
        }
        collect(answer.into_stream(), range.end - range.start).await.map_err(|error| match error {
            Collected::Failed(error) => self.wrong(&error),
            Collected::Wrong(why) => Wrong::Answer(why),
        })
    }

    fn wrong(&self, error: &Error) -> Wrong {
        match error {
            Error::NotFound { .. } => {
                let failure = classify(error, "read");
                match failure.class {
                    FailureClass::InputMissing => {
                        Wrong::Failed(Failure::new(FailureClass::InputMissing, "the object is gone"))
                    }
                    _ => Wrong::Failed(failure),
                }
            }
            Error::Precondition { .. } => {
                let message = "the object is not the one that was planned (its entity tag differs): plan again";
                Wrong::Failed(Failure::new(FailureClass::InputChanged, message))
            }
            _ => {
                let failure = classify(error, "read");
                // The client checks the range of an answer itself and says so in words.
                let words = ["Requested", "non-partial", "Content-Range", "CONTENT_RANGE"];
                match words.iter().any(|word| failure.message.contains(word)) {
                    true => Wrong::Answer(failure.message),
                    false => Wrong::Failed(failure),
                }
            }
        }
    }
}

enum Wrong {
    /// The store answered with something else than what was asked for.
    Answer(String),
    Failed(Failure),
}

enum Collected {
    Failed(Error),
    Wrong(String),
}

/// The whole object, or `None` when there is none.
pub(super) fn whole(store: &Arc<dyn ObjectStore>, key: Path) -> Result<Option<Bytes>, Failure> {
    let mut attempt = 1;
    loop {
        let (store, asked) = (store.clone(), key.clone());
        let answered = wait(async move {
            let answer = match store.get_opts(&asked, GetOptions::default()).await {
                Ok(answer) => answer,
                Err(Error::NotFound { .. }) => return Ok(None),
                Err(error) => return Err(Collected::Failed(error)),
            };
            let bytes = answer.meta.size;
            collect(answer.into_stream(), bytes).await.map(Some)
        })?;
        match answered {
            Ok(found) => return Ok(found),
            Err(Collected::Failed(error)) => return Err(classify(&error, "read")),
            Err(Collected::Wrong(_)) if attempt < TRIES => {
                wait(async move { tokio::time::sleep(pause(attempt)).await })?;
                attempt += 1;
            }
            Err(Collected::Wrong(why)) => {
                let message = format!("the store answered {TRIES} times with other bytes than it said: {why}");
                return Err(Failure::new(FailureClass::InputCorrupt, message));
            }
        }
    }
}

/// Exactly `bytes` bytes of a body. Never holds more than that.
async fn collect(
    mut body: impl futures::Stream<Item = Result<Bytes, Error>> + Unpin,
    bytes: u64,
) -> Result<Bytes, Collected> {
    let mut first = Bytes::new();
    let mut rest: Option<BytesMut> = None;
    let mut held = 0;
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(Collected::Failed)?;
        held += piece.len() as u64;
        if held > bytes {
            return Err(Collected::Wrong(format!("more than {bytes} bytes")));
        }
        match &mut rest {
            Some(rest) => rest.extend_from_slice(&piece),
            None if first.is_empty() => first = piece,
            None => {
                let mut whole = BytesMut::with_capacity(bytes.min(PIECE_BYTES) as usize);
                whole.extend_from_slice(&first);
                whole.extend_from_slice(&piece);
                rest = Some(whole);
            }
        }
    }
    if held < bytes {
        return Err(Collected::Wrong(format!("{held} bytes instead of {bytes}")));
    }
    Ok(rest.map_or(first, BytesMut::freeze))
}

/// An entity tag as a header wants it.
fn quoted(etag: &str) -> String {
    if etag.starts_with("W/") { etag.to_owned() } else { format!("\"{etag}\"") }
}
