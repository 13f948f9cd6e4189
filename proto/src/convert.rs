//! Model to wire and back. What comes from outside is refused with the path of the field that is wrong, such as
//! `spec.inputs[3].object.path`.
//!
//! Checked is what a message alone can show: enums are known, paths stay beneath their root, sizes can be added up, fields
//! of fixed size have it. Whether a job or an attempt is the one that was meant is not the wire's concern.

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::fingerprint::{FINGERPRINT_VERSION, Fingerprint};
use baler_common::model::id::{AttemptId, CompactionId, Epoch, JobId};
use baler_common::model::job::{Assignment, ColumnMap, InputFile, JobSpec, RowMode};
use baler_common::model::object::{Identity, ObjectRef};
use baler_common::model::options::{BloomFilter, Codec, ContentDefinedChunking, WriteOptions};
use baler_common::model::outcome::{Outcome, OutputFile, Progress, Receipt};
use prost::Message;
use sha2::{Digest, Sha256};

use crate::v1;

/// Longest path of an object, in bytes: what object stores allow.
const PATH_BYTES_MAX: usize = 1024;
/// Longest segment of a path, in bytes: what file systems allow.
const SEGMENT_BYTES_MAX: usize = 255;

/// A failure about one field of a message.
fn wrong(field: &str, what: impl std::fmt::Display) -> Failure {
    Failure::new(FailureClass::Policy, format!("message field {field}: {what}"))
}

/// The same failure, seen from the message that holds `outer`.
pub fn within(outer: impl std::fmt::Display) -> impl FnOnce(Failure) -> Failure {
    move |mut failure| {
        if let Some(inner) = failure.message.strip_prefix("message field ") {
            failure.message = format!("message field {outer}.{inner}");
        }
        failure
    }
}

/// The messages of a list; a failure names the place.
pub fn each<W, M: TryFrom<W, Error = Failure>>(field: &str, messages: Vec<W>) -> Result<Vec<M>, Failure> {
    let one = |(n, message): (usize, W)| message.try_into().map_err(within(format_args!("{field}[{n}]")));
    messages.into_iter().enumerate().map(one).collect()
}

/// Adds sizes or counts up; a sum that no file system can hold is refused.
fn summed(field: &str, what: &str, values: impl Iterator<Item = u64>) -> Result<u64, Failure> {
    let sum = values.into_iter().try_fold(0u64, u64::checked_add).filter(|sum| i64::try_from(*sum).is_ok());
    sum.ok_or_else(|| wrong(field, format_args!("{what} add up to more than can be stored")))
}

fn chunk_range(first: u64, last: u64) -> Result<(), Failure> {
    if first > last {
        return Err(wrong("first_chunk", format_args!("{first} is above the last chunk {last}")));
    }
    Ok(())
}

fn required<T>(field: &str, value: Option<T>) -> Result<T, Failure> {
    value.ok_or_else(|| wrong(field, "is missing"))
}

/// Checks a relative object path: no empty, `.` or `..` segment, no control byte, within the usual limits.
pub fn check_path(field: &str, path: &str) -> Result<(), Failure> {
    if path.is_empty() {
        return Err(wrong(field, "is empty"));
    }
    if path.len() > PATH_BYTES_MAX {
        return Err(wrong(field, format_args!("the path has {} bytes, {PATH_BYTES_MAX} are allowed", path.len())));
    }
    for segment in path.split('/') {
        if segment.is_empty() || segment == "." || segment == ".." {
            return Err(wrong(field, format_args!("{path:?} has an empty, \".\" or \"..\" segment")));
        }
        if segment.len() > SEGMENT_BYTES_MAX {
            return Err(wrong(field, format_args!("a segment of {path:?} has more than {SEGMENT_BYTES_MAX} bytes")));
        }
        if segment.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
            return Err(wrong(field, format_args!("{path:?} has a control character")));
        }
    }
    Ok(())
}

impl From<&ObjectRef> for v1::ObjectRef {
    fn from(object: &ObjectRef) -> Self {
        Self { store: object.store.clone(), path: object.path.clone() }
    }
}

fn object_ref(field: &str, object: Option<v1::ObjectRef>) -> Result<ObjectRef, Failure> {
    let v1::ObjectRef { store, path } = required(field, object)?;
    // `NAME`, or `NAME/FOLDER` for the part of a store beneath a folder.
    let (name, folder) = store.split_once('/').map_or((store.as_str(), None), |(name, folder)| (name, Some(folder)));
    if let Some(folder) = folder {
        check_path(&format!("{field}.store"), folder)?;
    }
    if name.is_empty() || name.contains(':') {
        return Err(wrong(&format!("{field}.store"), format_args!("{store:?} is not the alias of a store")));
    }
    check_path(&format!("{field}.path"), &path)?;
    Ok(ObjectRef { store, path })
}

impl From<&Identity> for v1::Identity {
    fn from(identity: &Identity) -> Self {
        use v1::identity::Kind;
        let kind = match identity {
            Identity::Unknown => None,
            Identity::Etag { etag, version } => {
                Some(Kind::Etag(v1::Etag { etag: etag.clone(), version: version.clone() }))
            }
            Identity::Local { device, inode, modified_ns, changed_ns } => Some(Kind::Local(v1::LocalFile {
                device: *device,
                inode: *inode,
                modified_ns: *modified_ns,
                changed_ns: *changed_ns,
            })),
        };
        Self { kind }
    }
}

impl From<v1::Identity> for Identity {
    fn from(identity: v1::Identity) -> Self {
        use v1::identity::Kind;
        match identity.kind {
            None => Identity::Unknown,
            Some(Kind::Etag(v1::Etag { etag, version })) => Identity::Etag { etag, version },
            Some(Kind::Local(v1::LocalFile { device, inode, modified_ns, changed_ns })) => {
                Identity::Local { device, inode, modified_ns, changed_ns }
            }
        }
    }
}

impl From<RowMode> for v1::RowMode {
    fn from(mode: RowMode) -> Self {
        match mode {
            RowMode::Copy => Self::Copy,
            RowMode::Verbatim => Self::Verbatim,
            RowMode::Distinct => Self::Distinct,
        }
    }
}

fn row_mode(mode: i32) -> Result<RowMode, Failure> {
    match v1::RowMode::try_from(mode) {
        Ok(v1::RowMode::Copy) => Ok(RowMode::Copy),
        Ok(v1::RowMode::Verbatim) => Ok(RowMode::Verbatim),
        Ok(v1::RowMode::Distinct) => Ok(RowMode::Distinct),
        Ok(v1::RowMode::Unspecified) | Err(_) => Err(wrong("mode", format_args!("{mode} is unknown"))),
    }
}

impl From<&WriteOptions> for v1::WriteOptions {
    fn from(options: &WriteOptions) -> Self {
        let (codec, codec_level) = match options.codec {
            Codec::Uncompressed => (v1::CodecKind::Uncompressed, 0),
            Codec::Snappy => (v1::CodecKind::Snappy, 0),
            Codec::Lz4Raw => (v1::CodecKind::Lz4Raw, 0),
            Codec::Gzip { level } => (v1::CodecKind::Gzip, level.cast_signed()),
            Codec::Brotli { level } => (v1::CodecKind::Brotli, level.cast_signed()),
            Codec::Zstd { level } => (v1::CodecKind::Zstd, level),
        };
        let bloom_filter = |filter: &BloomFilter| v1::BloomFilter {
            leaf: filter.leaf,
            false_positives_ppm: filter.false_positives_ppm,
            distinct_max: filter.distinct_max,
        };
        Self {
            codec: codec.into(),
            codec_level,
            row_group_bytes: options.row_group_bytes,
            page_bytes: options.page_bytes,
            dictionary_bytes: options.dictionary_bytes,
            chunking: options.chunking.map(|chunking| v1::Chunking {
                min_bytes: chunking.min_bytes,
                max_bytes: chunking.max_bytes,
                norm_level: chunking.norm_level,
            }),
            bloom_filters: options.bloom_filters.iter().map(bloom_filter).collect(),
            statistics_truncate_bytes: options.statistics_truncate_bytes,
        }
    }
}

fn codec(kind: i32, level: i32) -> Result<Codec, Failure> {
    let unsigned = || u32::try_from(level).map_err(|_| wrong("codec_level", "is negative"));
    match v1::CodecKind::try_from(kind) {
        Ok(v1::CodecKind::Uncompressed) => Ok(Codec::Uncompressed),
        Ok(v1::CodecKind::Snappy) => Ok(Codec::Snappy),
        Ok(v1::CodecKind::Lz4Raw) => Ok(Codec::Lz4Raw),
        Ok(v1::CodecKind::Gzip) => Ok(Codec::Gzip { level: unsigned()? }),
        Ok(v1::CodecKind::Brotli) => Ok(Codec::Brotli { level: unsigned()? }),
        Ok(v1::CodecKind::Zstd) => Ok(Codec::Zstd { level }),
        Ok(v1::CodecKind::Unspecified) | Err(_) => Err(wrong("codec", format_args!("{kind} is unknown"))),
    }
}

impl TryFrom<v1::WriteOptions> for WriteOptions {
    type Error = Failure;

    fn try_from(options: v1::WriteOptions) -> Result<Self, Failure> {
        for (field, bytes) in [("row_group_bytes", options.row_group_bytes), ("page_bytes", options.page_bytes)] {
            if bytes == 0 {
                return Err(wrong(field, "is 0"));
            }
        }
        if let Some(cut) = &options.chunking
            && (cut.min_bytes == 0 || cut.min_bytes > cut.max_bytes)
        {
            let what = format_args!("{} is 0 or above max_bytes {}", cut.min_bytes, cut.max_bytes);
            return Err(wrong("chunking.min_bytes", what));
        }
        Ok(Self {
            codec: codec(options.codec, options.codec_level)?,
            row_group_bytes: options.row_group_bytes,
            page_bytes: options.page_bytes,
            dictionary_bytes: options.dictionary_bytes,
            chunking: options.chunking.map(|chunking| ContentDefinedChunking {
                min_bytes: chunking.min_bytes,
                max_bytes: chunking.max_bytes,
                norm_level: chunking.norm_level,
            }),
            bloom_filters: options
                .bloom_filters
                .into_iter()
                .map(|filter| BloomFilter {
                    leaf: filter.leaf,
                    false_positives_ppm: filter.false_positives_ppm,
                    distinct_max: filter.distinct_max,
                })
                .collect(),
            statistics_truncate_bytes: options.statistics_truncate_bytes,
        })
    }
}

impl From<&InputFile> for v1::InputFile {
    fn from(input: &InputFile) -> Self {
        let leaves = match &input.columns {
            ColumnMap::Same => None,
            ColumnMap::Leaves(leaves) => Some(v1::LeafMap {
                leaf_plus_one: leaves.iter().map(|leaf| leaf.map_or(0, |leaf| leaf.saturating_add(1))).collect(),
            }),
        };
        Self {
            object: Some((&input.object).into()),
            bytes: input.bytes,
            rows: input.rows,
            identity: Some((&input.identity).into()),
            first_chunk: input.first_chunk,
            last_chunk: input.last_chunk,
            leaves,
        }
    }
}

impl TryFrom<v1::InputFile> for InputFile {
    type Error = Failure;

    fn try_from(input: v1::InputFile) -> Result<Self, Failure> {
        chunk_range(input.first_chunk, input.last_chunk)?;
        Ok(Self {
            object: object_ref("object", input.object)?,
            bytes: input.bytes,
            rows: input.rows,
            identity: input.identity.unwrap_or_default().into(),
            first_chunk: input.first_chunk,
            last_chunk: input.last_chunk,
            columns: match input.leaves {
                None => ColumnMap::Same,
                Some(map) => ColumnMap::Leaves(map.leaf_plus_one.into_iter().map(|leaf| leaf.checked_sub(1)).collect()),
            },
        })
    }
}

impl From<&JobSpec> for v1::JobSpec {
    fn from(spec: &JobSpec) -> Self {
        Self {
            job: spec.job.0,
            table: spec.table.clone(),
            key: spec.key.clone(),
            mode: v1::RowMode::from(spec.mode).into(),
            inputs: spec.inputs.iter().map(Into::into).collect(),
            output_path: spec.output_path.clone(),
            staging: Some((&spec.staging).into()),
            schema: spec.schema.clone().into(),
            options: Some((&spec.options).into()),
            memory_millibytes_per_row: spec.memory_millibytes_per_row,
            target_bytes: spec.target_bytes,
            key_values: spec
                .key_values
                .iter()
                .map(|(key, value)| v1::KeyValue { key: key.clone(), value: value.clone() })
                .collect(),
        }
    }
}

impl TryFrom<v1::JobSpec> for JobSpec {
    type Error = Failure;

    fn try_from(spec: v1::JobSpec) -> Result<Self, Failure> {
        check_path("output_path", &spec.output_path)?;
        let mode = row_mode(spec.mode)?;
        match spec.inputs.len() {
            0 => return Err(wrong("inputs", "are missing")),
            1 => {}
            _ if mode == RowMode::Verbatim => return Err(wrong("inputs", "are several, a file is taken over alone")),
            _ => {}
        }
        summed("inputs", "bytes", spec.inputs.iter().map(|input| input.bytes))?;
        summed("inputs", "rows", spec.inputs.iter().map(|input| input.rows))?;
        if spec.memory_millibytes_per_row == 0 {
            return Err(wrong("memory_millibytes_per_row", "is 0"));
        }
        Ok(Self {
            job: JobId(spec.job),
            table: spec.table,
            key: spec.key,
            mode,
            inputs: each("inputs", spec.inputs)?,
            output_path: spec.output_path,
            staging: object_ref("staging", spec.staging)?,
            schema: spec.schema.into(),
            options: required("options", spec.options)?.try_into().map_err(within("options"))?,
            memory_millibytes_per_row: spec.memory_millibytes_per_row,
            target_bytes: spec.target_bytes,
            key_values: spec.key_values.into_iter().map(|pair| (pair.key, pair.value)).collect(),
        })
    }
}

fn attempt_id(bytes: &[u8]) -> Result<AttemptId, Failure> {
    bytes.try_into().map(AttemptId).map_err(|_| wrong("attempt", "is not eight bytes"))
}

/// The attempt id of a message, checked.
pub fn attempt_from_wire(bytes: &[u8]) -> Result<AttemptId, Failure> {
    attempt_id(bytes)
}

impl From<&Assignment> for v1::Assignment {
    fn from(assignment: &Assignment) -> Self {
        Self {
            compaction: assignment.compaction.0.clone(),
            epoch: assignment.epoch.0,
            attempt: assignment.attempt.0.to_vec().into(),
            spec: Some((&assignment.spec).into()),
        }
    }
}

impl TryFrom<v1::Assignment> for Assignment {
    type Error = Failure;

    fn try_from(assignment: v1::Assignment) -> Result<Self, Failure> {
        Ok(Self {
            compaction: CompactionId(assignment.compaction),
            epoch: Epoch(assignment.epoch),
            attempt: attempt_id(&assignment.attempt)?,
            spec: required("spec", assignment.spec)?.try_into().map_err(within("spec"))?,
        })
    }
}

impl From<&Fingerprint> for v1::Fingerprint {
    fn from(value: &Fingerprint) -> Self {
        let ([ordered_0, ordered_1], [multiset_0, multiset_1]) = (value.ordered, value.multiset);
        Self { rows: value.rows, ordered_0, ordered_1, multiset_0, multiset_1, version: FINGERPRINT_VERSION }
    }
}

fn fingerprint(field: &str, value: Option<v1::Fingerprint>) -> Result<Fingerprint, Failure> {
    let value = required(field, value)?;
    if value.version != FINGERPRINT_VERSION {
        let what = format_args!("is of version {}, this program has {FINGERPRINT_VERSION}", value.version);
        return Err(wrong(field, what));
    }
    Ok(Fingerprint {
        rows: value.rows,
        ordered: [value.ordered_0, value.ordered_1],
        multiset: [value.multiset_0, value.multiset_1],
    })
}

impl From<&OutputFile> for v1::OutputFile {
    fn from(output: &OutputFile) -> Self {
        Self {
            object: Some((&output.object).into()),
            path: output.path.clone(),
            bytes: output.bytes,
            rows: output.rows,
            row_groups: output.row_groups,
            sha256: output.sha256.to_vec().into(),
            identity: Some((&output.identity).into()),
            first_chunk: output.first_chunk,
            last_chunk: output.last_chunk,
            fingerprint: Some((&output.fingerprint).into()),
        }
    }
}

impl TryFrom<v1::OutputFile> for OutputFile {
    type Error = Failure;

    fn try_from(output: v1::OutputFile) -> Result<Self, Failure> {
        check_path("path", &output.path)?;
        chunk_range(output.first_chunk, output.last_chunk)?;
        Ok(Self {
            object: object_ref("object", output.object)?,
            path: output.path,
            bytes: output.bytes,
            rows: output.rows,
            row_groups: output.row_groups,
            sha256: output.sha256[..].try_into().map_err(|_| wrong("sha256", "is not 32 bytes"))?,
            identity: output.identity.unwrap_or_default().into(),
            first_chunk: output.first_chunk,
            last_chunk: output.last_chunk,
            fingerprint: fingerprint("fingerprint", output.fingerprint)?,
        })
    }
}

impl From<&Receipt> for v1::Receipt {
    fn from(receipt: &Receipt) -> Self {
        Self {
            outputs: receipt.outputs.iter().map(Into::into).collect(),
            expected: Some((&receipt.expected).into()),
            stored: Some((&receipt.stored).into()),
            verified_by: receipt.verified_by.clone(),
            input_rows: receipt.input_rows,
            elapsed_ms: receipt.elapsed_ms,
        }
    }
}

impl TryFrom<v1::Receipt> for Receipt {
    type Error = Failure;

    fn try_from(receipt: v1::Receipt) -> Result<Self, Failure> {
        if receipt.outputs.is_empty() {
            return Err(wrong("outputs", "are missing"));
        }
        summed("outputs", "bytes", receipt.outputs.iter().map(|output| output.bytes))?;
        summed("outputs", "rows", receipt.outputs.iter().map(|output| output.rows))?;
        Ok(Self {
            outputs: each("outputs", receipt.outputs)?,
            expected: fingerprint("expected", receipt.expected)?,
            stored: fingerprint("stored", receipt.stored)?,
            verified_by: receipt.verified_by,
            input_rows: receipt.input_rows,
            elapsed_ms: receipt.elapsed_ms,
        })
    }
}

impl From<&Failure> for v1::Failure {
    fn from(failure: &Failure) -> Self {
        Self {
            code: failure.class.code().to_owned(),
            file: failure.file.clone(),
            column: failure.column.clone(),
            message: failure.message.clone(),
        }
    }
}

/// A failure of the wire as the model has it; an unknown code is itself a failure.
pub fn failure_from_wire(failure: v1::Failure) -> Result<Failure, Failure> {
    let class = FailureClass::from_code(&failure.code)
        .ok_or_else(|| wrong("code", format_args!("{:?} is unknown", failure.code)))?;
    Ok(Failure { class, file: failure.file, column: failure.column, message: failure.message })
}

impl From<&Outcome> for v1::Outcome {
    fn from(outcome: &Outcome) -> Self {
        use v1::outcome::Result as Wire;
        Self {
            compaction: outcome.compaction.0.clone(),
            epoch: outcome.epoch.0,
            attempt: outcome.attempt.0.to_vec().into(),
            job: outcome.job.0,
            result: Some(match &outcome.result {
                Ok(receipt) => Wire::Receipt(receipt.into()),
                Err(failure) => Wire::Failure(failure.into()),
            }),
        }
    }
}

impl TryFrom<v1::Outcome> for Outcome {
    type Error = Failure;

    fn try_from(outcome: v1::Outcome) -> Result<Self, Failure> {
        use v1::outcome::Result as Wire;
        Ok(Self {
            compaction: CompactionId(outcome.compaction),
            epoch: Epoch(outcome.epoch),
            attempt: attempt_id(&outcome.attempt)?,
            job: JobId(outcome.job),
            result: match required("result", outcome.result)? {
                Wire::Receipt(receipt) => Ok(receipt.try_into().map_err(within("receipt"))?),
                Wire::Failure(failure) => Err(failure_from_wire(failure).map_err(within("failure"))?),
            },
        })
    }
}

impl From<&Progress> for v1::Progress {
    fn from(progress: &Progress) -> Self {
        let Progress { read_bytes, written_bytes, written_rows, verified_rows } = *progress;
        Self { read_bytes, written_bytes, written_rows, verified_rows }
    }
}

impl From<v1::Progress> for Progress {
    fn from(progress: v1::Progress) -> Self {
        let v1::Progress { read_bytes, written_bytes, written_rows, verified_rows } = progress;
        Self { read_bytes, written_bytes, written_rows, verified_rows }
    }
}

/// What a job does, as 32 bytes: SHA-256 over its canonical encoding without its index, its staging folder and the
/// table's name. Equal digests mean that a verified output of one job is the output of the other.
pub fn job_digest(spec: &JobSpec) -> [u8; 32] {
    let canonical = v1::JobSpec { job: 0, table: String::new(), staging: None, ..spec.into() };
    Sha256::digest(canonical.encode_to_vec()).into()
}

#[cfg(test)]
mod tests;
