//! Model to wire and back. What comes from outside is refused with the name of the field that is wrong.

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::fingerprint::Fingerprint;
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

fn required<T>(field: &str, value: Option<T>) -> Result<T, Failure> {
    value.ok_or_else(|| wrong(field, "is missing"))
}

/// Checks a relative object path: no empty, `.` or `..` segment, no control byte, within the usual limits. The empty
/// path names the root itself.
pub fn check_path(field: &str, path: &str) -> Result<(), Failure> {
    if path.is_empty() {
        return Ok(());
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
    if store.is_empty() || store.contains(['/', ':']) {
        return Err(wrong(field, format_args!("{store:?} is not the alias of a store")));
    }
    check_path(field, &path)?;
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
    let unsigned = || u32::try_from(level).map_err(|_| wrong("options.codec_level", "is negative"));
    match v1::CodecKind::try_from(kind) {
        Ok(v1::CodecKind::Uncompressed) => Ok(Codec::Uncompressed),
        Ok(v1::CodecKind::Snappy) => Ok(Codec::Snappy),
        Ok(v1::CodecKind::Lz4Raw) => Ok(Codec::Lz4Raw),
        Ok(v1::CodecKind::Gzip) => Ok(Codec::Gzip { level: unsigned()? }),
        Ok(v1::CodecKind::Brotli) => Ok(Codec::Brotli { level: unsigned()? }),
        Ok(v1::CodecKind::Zstd) => Ok(Codec::Zstd { level }),
        Ok(v1::CodecKind::Unspecified) | Err(_) => Err(wrong("options.codec", format_args!("{kind} is unknown"))),
    }
}

impl TryFrom<v1::WriteOptions> for WriteOptions {
    type Error = Failure;

    fn try_from(options: v1::WriteOptions) -> Result<Self, Failure> {
        if options.row_group_bytes == 0 || options.page_bytes == 0 {
            return Err(wrong("options", "row_group_bytes and page_bytes must be above 0"));
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
            ColumnMap::Leaves(leaves) => {
                Some(v1::LeafMap { leaf_plus_one: leaves.iter().map(|leaf| leaf.map_or(0, |leaf| leaf + 1)).collect() })
            }
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
        if input.first_chunk > input.last_chunk {
            return Err(wrong("inputs.first_chunk", "is above last_chunk"));
        }
        Ok(Self {
            object: object_ref("inputs.object", input.object)?,
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
        if spec.inputs.is_empty() {
            return Err(wrong("inputs", "are missing"));
        }
        if spec.memory_millibytes_per_row == 0 {
            return Err(wrong("memory_millibytes_per_row", "is 0"));
        }
        Ok(Self {
            job: JobId(spec.job),
            table: spec.table,
            key: spec.key,
            mode: row_mode(spec.mode)?,
            inputs: spec.inputs.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
            output_path: spec.output_path,
            staging: object_ref("staging", spec.staging)?,
            schema: spec.schema.into(),
            options: required("options", spec.options)?.try_into()?,
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
            spec: required("spec", assignment.spec)?.try_into()?,
        })
    }
}

impl From<&Fingerprint> for v1::Fingerprint {
    fn from(value: &Fingerprint) -> Self {
        let ([ordered_0, ordered_1], [multiset_0, multiset_1]) = (value.ordered, value.multiset);
        Self { rows: value.rows, ordered_0, ordered_1, multiset_0, multiset_1 }
    }
}

impl From<v1::Fingerprint> for Fingerprint {
    fn from(value: v1::Fingerprint) -> Self {
        Self {
            rows: value.rows,
            ordered: [value.ordered_0, value.ordered_1],
            multiset: [value.multiset_0, value.multiset_1],
        }
    }
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
        check_path("outputs.path", &output.path)?;
        Ok(Self {
            object: object_ref("outputs.object", output.object)?,
            path: output.path,
            bytes: output.bytes,
            rows: output.rows,
            row_groups: output.row_groups,
            sha256: output.sha256[..].try_into().map_err(|_| wrong("outputs.sha256", "is not 32 bytes"))?,
            identity: output.identity.unwrap_or_default().into(),
            first_chunk: output.first_chunk,
            last_chunk: output.last_chunk,
            fingerprint: required("outputs.fingerprint", output.fingerprint)?.into(),
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
            return Err(wrong("receipt.outputs", "are missing"));
        }
        Ok(Self {
            outputs: receipt.outputs.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
            expected: required("receipt.expected", receipt.expected)?.into(),
            stored: required("receipt.stored", receipt.stored)?.into(),
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
        .ok_or_else(|| wrong("failure.code", format_args!("{:?} is unknown", failure.code)))?;
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
            result: match required("outcome.result", outcome.result)? {
                Wire::Receipt(receipt) => Ok(receipt.try_into()?),
                Wire::Failure(failure) => Err(failure_from_wire(failure)?),
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
