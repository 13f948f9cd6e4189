//! The stored form of a generation: JSON structs of their own, so that a change of a noun cannot change a file.

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::fingerprint::Fingerprint;
use baler_common::model::object::Identity;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Figures, Generation, KeptKey, ListedFile, MadeBy, Proof, SourceFile, SupersededFile, Why};
use crate::plan::PublishMode;
use crate::table::CommitToken;

const FORMAT: &str = "baler.manifest";
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Head {
    format: String,
    version: u32,
    sha256: String,
}

#[derive(Serialize, Deserialize)]
struct Body {
    generation: u64,
    parent: u64,
    table: String,
    source: String,
    compaction: String,
    plan: String,
    created_ms: i64,
    publish: String,
    made_by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    undone: Option<u64>,
    totals: Totals,
    before: Totals,
    listed_before: u64,
    added: u64,
    removed: u64,
    duplicate_rows: u64,
    awaiting_bytes: u64,
    live: Vec<StoredFile>,
    superseded: Vec<StoredSuperseded>,
    kept_keys: Vec<StoredKept>,
}

#[derive(Serialize, Deserialize)]
struct Totals {
    files: u64,
    bytes: u64,
    rows: u64,
}

#[derive(Serialize, Deserialize)]
struct StoredFile {
    key: String,
    path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    object: Option<String>,
    bytes: u64,
    rows: u64,
    chunks: [u64; 2],
    #[serde(default, skip_serializing_if = "Option::is_none")]
    identity: Option<StoredIdentity>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    settled: bool,
    since: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    proof: Option<StoredProof>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sources: Vec<StoredSource>,
}

#[derive(Serialize, Deserialize)]
struct StoredProof {
    job: String,
    fingerprint: String,
    expected: String,
    stored: String,
    verified_by: String,
}

#[derive(Serialize, Deserialize)]
struct StoredSource {
    path: String,
    bytes: u64,
    rows: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    identity: Option<StoredIdentity>,
}

#[derive(Serialize, Deserialize)]
struct StoredSuperseded {
    why: String,
    superseded_in: u64,
    #[serde(flatten)]
    file: StoredFile,
}

#[derive(Serialize, Deserialize)]
struct StoredKept {
    key: String,
    reason: String,
}

/// An object's identity: an entity tag, or what a local file system says.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StoredIdentity {
    Local {
        device: u64,
        inode: u64,
        modified_ns: i64,
        changed_ns: i64,
    },
    Etag {
        etag: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<String>,
    },
}

/// The stored bytes of a generation.
pub fn encode(generation: &Generation) -> Result<Vec<u8>, Failure> {
    let body = serde_json::to_string(&to_body(generation)).map_err(|error| bad(format!("write: {error}")))?;
    let head =
        Head { format: FORMAT.to_owned(), version: VERSION, sha256: hex(&Sha256::digest(body.as_bytes()).into()) };
    let head = serde_json::to_string(&head).map_err(|error| bad(format!("write: {error}")))?;
    let open = head.strip_suffix('}').unwrap_or(&head);
    Ok(format!("{open},\"body\":{body}}}\n").into_bytes())
}

/// The generation in `stored`; refuses what it does not know and what was changed.
pub fn decode(stored: &[u8]) -> Result<Generation, Failure> {
    let text = std::str::from_utf8(stored).map_err(|_| bad("it is not UTF-8: it is no manifest, or it is damaged"))?;
    let (open, rest) =
        text.split_once(",\"body\":").ok_or_else(|| bad("it has no body: it is no manifest, or it is damaged"))?;
    let head: Head = serde_json::from_str(&format!("{open}}}")).map_err(|error| bad(format!("its head: {error}")))?;
    if head.format != FORMAT {
        return Err(bad(format!("it is {:?}, not {FORMAT:?}", head.format)));
    }
    if head.version != VERSION {
        let message = format!(
            "it has version {} and this Baler knows version {VERSION}: use the Baler that wrote it, or a newer one",
            head.version
        );
        return Err(Failure::new(FailureClass::Unsupported, message));
    }
    let body = rest.trim_end().strip_suffix('}').ok_or_else(|| bad("it is cut short"))?;
    if hex(&Sha256::digest(body.as_bytes()).into()) != head.sha256 {
        return Err(bad("its content is not what its digest says: it was changed or damaged, restore it from a copy"));
    }
    let body: Body = serde_json::from_str(body).map_err(|error| bad(format!("its body: {error}")))?;
    from_body(body)
}

fn bad(message: impl Into<String>) -> Failure {
    Failure::new(FailureClass::InputCorrupt, format!("manifest: {}", message.into()))
}

fn to_body(generation: &Generation) -> Body {
    let totals = |figures: Figures| Totals { files: figures.files, bytes: figures.bytes, rows: figures.rows };
    let (made_by, undone) = match generation.made_by {
        MadeBy::Compaction => ("compaction", None),
        MadeBy::Revert { undone } => ("revert", Some(undone)),
        MadeBy::Swap => ("swap", None),
    };
    Body {
        generation: generation.generation,
        parent: generation.parent,
        table: generation.table.clone(),
        source: generation.source_location.clone(),
        compaction: generation.token.compaction.clone(),
        plan: generation.token.plan.clone(),
        created_ms: generation.created_ms,
        publish: mode_code(generation.publish).to_owned(),
        made_by: made_by.to_owned(),
        undone,
        totals: totals(generation.figures()),
        before: totals(generation.before),
        listed_before: generation.listed_before,
        added: generation.added,
        removed: generation.removed,
        duplicate_rows: generation.duplicate_rows,
        awaiting_bytes: generation.awaiting_bytes(),
        live: generation.live.iter().map(to_file).collect(),
        superseded: generation
            .superseded
            .iter()
            .map(|entry| StoredSuperseded {
                why: why_code(entry.why).to_owned(),
                superseded_in: entry.superseded_in,
                file: to_file(&entry.file),
            })
            .collect(),
        kept_keys: generation
            .kept_keys
            .iter()
            .map(|kept| StoredKept { key: kept.key.clone(), reason: kept.reason.clone() })
            .collect(),
    }
}

fn from_body(body: Body) -> Result<Generation, Failure> {
    let made_by = match (body.made_by.as_str(), body.undone) {
        ("compaction", None) => MadeBy::Compaction,
        ("revert", Some(undone)) => MadeBy::Revert { undone },
        ("swap", None) => MadeBy::Swap,
        (other, _) => return Err(bad(format!("made_by {other:?} is not known to this Baler"))),
    };
    let figures = |totals: &Totals| Figures { files: totals.files, bytes: totals.bytes, rows: totals.rows };
    let (totals, before) = (figures(&body.totals), figures(&body.before));
    let generation = Generation {
        generation: body.generation,
        parent: body.parent,
        table: body.table,
        source_location: body.source,
        token: CommitToken { compaction: body.compaction, plan: body.plan },
        created_ms: body.created_ms,
        publish: mode_of(&body.publish)?,
        made_by,
        before,
        listed_before: body.listed_before,
        added: body.added,
        removed: body.removed,
        duplicate_rows: body.duplicate_rows,
        live: body.live.into_iter().map(from_file).collect::<Result<_, _>>()?,
        superseded: body
            .superseded
            .into_iter()
            .map(|entry| {
                Ok(SupersededFile {
                    why: why_of(&entry.why)?,
                    superseded_in: entry.superseded_in,
                    file: from_file(entry.file)?,
                })
            })
            .collect::<Result<_, Failure>>()?,
        kept_keys: body.kept_keys.into_iter().map(|kept| KeptKey { key: kept.key, reason: kept.reason }).collect(),
    };
    if generation.figures() != totals {
        return Err(bad("its totals are not the sums of its files"));
    }
    Ok(generation)
}

fn to_file(file: &ListedFile) -> StoredFile {
    StoredFile {
        key: file.key.clone(),
        path: file.path.clone(),
        object: (file.object != file.path).then(|| file.object.clone()),
        bytes: file.bytes,
        rows: file.rows,
        chunks: [file.first_chunk, file.last_chunk],
        identity: to_identity(&file.identity),
        sha256: file.sha256.as_ref().map(hex),
        settled: file.settled,
        since: file.since,
        proof: file.proof.as_ref().map(|proof| StoredProof {
            job: hex(&proof.job),
            fingerprint: proof.fingerprint.to_string(),
            expected: proof.expected.to_string(),
            stored: proof.stored.to_string(),
            verified_by: proof.verified_by.clone(),
        }),
        sources: file
            .sources
            .iter()
            .map(|source| StoredSource {
                path: source.path.clone(),
                bytes: source.bytes,
                rows: source.rows,
                identity: to_identity(&source.identity),
            })
            .collect(),
    }
}

fn from_file(stored: StoredFile) -> Result<ListedFile, Failure> {
    let object = stored.object.unwrap_or_else(|| stored.path.clone());
    for path in [&stored.path, &object] {
        safe_path(path)?;
    }
    let digest = |text: &str| unhex(text).ok_or_else(|| bad(format!("{text:?} is not a SHA-256")));
    let fingerprint = |text: &str| text.parse::<Fingerprint>().map_err(bad);
    Ok(ListedFile {
        key: stored.key,
        bytes: stored.bytes,
        rows: stored.rows,
        identity: from_identity(stored.identity),
        first_chunk: stored.chunks[0],
        last_chunk: stored.chunks[1],
        sha256: stored.sha256.as_deref().map(digest).transpose()?,
        settled: stored.settled,
        since: stored.since,
        proof: match stored.proof {
            None => None,
            Some(proof) => Some(Proof {
                job: digest(&proof.job)?,
                fingerprint: fingerprint(&proof.fingerprint)?,
                expected: fingerprint(&proof.expected)?,
                stored: fingerprint(&proof.stored)?,
                verified_by: proof.verified_by,
            }),
        },
        sources: stored
            .sources
            .into_iter()
            .map(|source| {
                safe_path(&source.path)?;
                Ok(SourceFile {
                    path: source.path,
                    bytes: source.bytes,
                    rows: source.rows,
                    identity: from_identity(source.identity),
                })
            })
            .collect::<Result<_, Failure>>()?,
        path: stored.path,
        object,
    })
}

/// A manifest must not be able to name anything outside its table.
fn safe_path(path: &str) -> Result<(), Failure> {
    let unsafe_segment = |segment: &str| matches!(segment, "" | "." | "..");
    if path.split('/').any(unsafe_segment) || path.contains('\0') {
        return Err(bad(format!("{path:?} is not a path below the table")));
    }
    Ok(())
}

fn to_identity(identity: &Identity) -> Option<StoredIdentity> {
    Some(match identity.clone() {
        Identity::Unknown => return None,
        Identity::Etag { etag, version } => StoredIdentity::Etag { etag, version },
        Identity::Local { device, inode, modified_ns, changed_ns } => {
            StoredIdentity::Local { device, inode, modified_ns, changed_ns }
        }
    })
}

fn from_identity(stored: Option<StoredIdentity>) -> Identity {
    match stored {
        None => Identity::Unknown,
        Some(StoredIdentity::Etag { etag, version }) => Identity::Etag { etag, version },
        Some(StoredIdentity::Local { device, inode, modified_ns, changed_ns }) => {
            Identity::Local { device, inode, modified_ns, changed_ns }
        }
    }
}

/// An identity as other records of the control folder carry it.
pub fn identity_to_json(identity: &Identity) -> serde_json::Value {
    to_identity(identity).and_then(|stored| serde_json::to_value(stored).ok()).unwrap_or(serde_json::Value::Null)
}

/// The opposite of [`identity_to_json`].
pub fn identity_from_json(value: &serde_json::Value) -> Identity {
    from_identity(serde_json::from_value(value.clone()).ok())
}

fn mode_code(mode: PublishMode) -> &'static str {
    match mode {
        PublishMode::Destination => "destination",
        PublishMode::InPlace => "in_place",
        PublishMode::TornReads => "torn_reads",
    }
}

fn mode_of(code: &str) -> Result<PublishMode, Failure> {
    [PublishMode::Destination, PublishMode::InPlace, PublishMode::TornReads]
        .into_iter()
        .find(|mode| mode_code(*mode) == code)
        .ok_or_else(|| bad(format!("publish {code:?} is not known to this Baler")))
}

fn why_code(why: Why) -> &'static str {
    match why {
        Why::Compacted => "compacted",
        Why::Replaced => "replaced",
        Why::Foreign => "foreign",
        Why::Reverted => "reverted",
    }
}

fn why_of(code: &str) -> Result<Why, Failure> {
    [Why::Compacted, Why::Replaced, Why::Foreign, Why::Reverted]
        .into_iter()
        .find(|why| why_code(*why) == code)
        .ok_or_else(|| bad(format!("why {code:?} is not known to this Baler")))
}

/// Lower-case hexadecimal.
pub fn hex(digest: &[u8; 32]) -> String {
    digest.iter().fold(String::with_capacity(64), |text, byte| text + &format!("{byte:02x}"))
}

/// The opposite of [`hex`].
pub fn unhex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut digest = [0; 32];
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(at * 2..at * 2 + 2)?, 16).ok()?;
    }
    Some(digest)
}
