//! The output's schema as the checking side needs it: each leaf's type, salt and canonical definition levels.

use baler_common::model::error::{Failure, FailureClass};
use polars_parquet::parquet::metadata::{ColumnDescriptor, SchemaDescriptor};
use polars_parquet::parquet::schema::Repetition;
use polars_parquet::parquet::schema::types::{
    GroupConvertedType, GroupLogicalType, IntegerType, ParquetType, PhysicalType, PrimitiveConvertedType,
    PrimitiveLogicalType, PrimitiveType, TimeUnit,
};

use crate::fingerprint::salts;
use crate::write::column_orders::settle_column_orders;

/// How the stored bytes of a leaf become hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Bool,
    /// Four stored bytes, sign-extended.
    Signed32,
    /// Four stored bytes cut to this many bits, zero-extended.
    Unsigned32(u32),
    /// Eight stored bytes as they are.
    Plain64,
    Float32,
    Float64,
    Float16,
    /// Bytes as they are.
    Bytes,
    /// Bytes that must be UTF-8.
    Text,
    /// Twelve stored bytes.
    Int96,
    /// A stored integer that is a decimal of more digits: 16 bytes, hashed as bytes.
    DecimalIntWide,
    /// Big-endian two's complement of any length, at most 18 digits.
    DecimalBytes64,
    /// The same, at most 38 digits.
    DecimalBytes128,
    /// The same, more digits.
    DecimalBytes256,
}

/// One leaf column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Leaf {
    /// Dotted path, for messages.
    pub path: String,
    /// The declared type as the definition of fingerprints writes it.
    pub type_text: String,
    pub physical: PhysicalType,
    pub form: Form,
    pub salts: [u64; 2],
    /// Canonical definition level of each stored one.
    pub canonical: Vec<u16>,
    pub max_definition: u16,
    pub max_repetition: u16,
    /// Steps from the root: the names of the path with the canonical level of each node being there, and its repetition
    /// level.
    pub steps: Vec<Step>,
}

/// A node of a leaf's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    pub name: String,
    /// Which child of its parent the node is. Names can occur twice in a group, places cannot.
    pub place: usize,
    /// Canonical definition level at which the node is there.
    pub canonical: u16,
    pub repetition: u16,
}

/// The output's schema.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckSchema {
    pub(super) leaves: Vec<Leaf>,
    pub(super) fields: Vec<ParquetType>,
}

impl CheckSchema {
    /// Reads the schema from the bytes of a Parquet file, as a job carries it.
    pub fn from_parquet(bytes: &[u8]) -> Result<Self, Failure> {
        let read = |content: Vec<u8>| {
            let source = baler_common::runtime::storage::Source::from_bytes("job schema", content.into());
            super::footer::read_footer(&source)
        };
        let metadata = match read(bytes.to_vec()) {
            Ok(metadata) => metadata,
            Err(failure) => settled(bytes).and_then(|content| read(content).ok()).ok_or(failure)?,
        };
        Self::from_descriptor(&metadata.schema_descr)
    }

    pub(super) fn from_descriptor(descriptor: &SchemaDescriptor) -> Result<Self, Failure> {
        let paths = leaf_paths(descriptor.fields());
        if paths.len() != descriptor.columns().len() {
            return Err(Failure::new(FailureClass::Unsupported, "its columns are not those of its schema"));
        }
        let leaves = descriptor.columns().iter().zip(&paths).enumerate();
        let leaves = leaves.map(|(number, (column, path))| leaf(number, column, path));
        Ok(Self { leaves: leaves.collect::<Result<_, _>>()?, fields: descriptor.fields().to_vec() })
    }
}

/// The nodes from below the root to each leaf, depth-first, each with its place among its parent's children. The n-th
/// path is that of the n-th leaf, whatever the nodes are called.
fn leaf_paths(fields: &[ParquetType]) -> Vec<Vec<(usize, &ParquetType)>> {
    fn descend<'a>(
        fields: &'a [ParquetType],
        above: &mut Vec<(usize, &'a ParquetType)>,
        found: &mut Vec<Vec<(usize, &'a ParquetType)>>,
    ) {
        for (place, node) in fields.iter().enumerate() {
            above.push((place, node));
            match node {
                ParquetType::PrimitiveType(_) => found.push(above.clone()),
                ParquetType::GroupType { fields, .. } => descend(fields, above, found),
            }
            above.pop();
        }
    }
    let mut found = Vec::new();
    descend(fields, &mut Vec::new(), &mut found);
    found
}

/// The schema's file with its column orders put right, for as many columns as the parquet-rs reader finds.
fn settled(bytes: &[u8]) -> Option<Vec<u8>> {
    let content = bytes::Bytes::from(bytes.to_vec());
    let metadata = parquet::file::metadata::ParquetMetaDataReader::new().parse_and_finish(&content).ok()?;
    let mut content = bytes.to_vec();
    settle_column_orders(&mut content, metadata.file_metadata().schema_descr().num_columns());
    Some(content)
}

fn leaf(number: usize, column: &ColumnDescriptor, nodes: &[(usize, &ParquetType)]) -> Result<Leaf, Failure> {
    let path = column.path_in_schema.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(".");
    let primitive = &column.descriptor.primitive_type;
    let (type_text, form) = type_of(primitive)
        .map_err(|message| Failure::new(FailureClass::Unsupported, message).in_column(path.clone()))?;
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    let (canonical, steps) = walk(nodes);
    let max_definition = column.descriptor.max_def_level.unsigned_abs();
    if canonical.len() != usize::from(max_definition) + 1 {
        return Err(Failure::new(FailureClass::Unsupported, "its nesting is not understood").in_column(path));
    }
    Ok(Leaf {
        path,
        physical: primitive.physical_type,
        form,
        salts: salts(number, &type_text),
        type_text,
        canonical,
        max_definition,
        max_repetition: column.descriptor.max_rep_level.unsigned_abs(),
        steps,
    })
}

/// Walks from the root to the leaf. A stored definition level grows at optional and repeated nodes; the canonical one at
/// every field, at every repetition that is not empty, and at every element.
fn walk(nodes: &[(usize, &ParquetType)]) -> (Vec<u16>, Vec<Step>) {
    let mut canonical = 0u16;
    let mut repetition = 0u16;
    let mut table = Vec::new();
    let mut steps = Vec::new();
    let mut parent_is_list = false;
    for &(place, node) in nodes {
        let info = node.get_field_info();
        let mut element_follows = false;
        match info.repetition {
            Repetition::Required => canonical += 1,
            Repetition::Optional => {
                table.push(canonical);
                canonical += 1;
            }
            Repetition::Repeated => {
                // A bare repeated field is a list that is always there.
                canonical += u16::from(!parent_is_list);
                table.push(canonical);
                repetition += 1;
                element_follows = parent_is_list && has_element(node);
                // Not empty; and the node itself is the element unless its only child is.
                canonical += if element_follows { 1 } else { 2 };
            }
        }
        steps.push(Step { name: info.name.to_string(), place, canonical, repetition });
        let ParquetType::GroupType { logical_type, converted_type, .. } = node else { break };
        parent_is_list = !element_follows
            && (matches!(logical_type, Some(GroupLogicalType::List | GroupLogicalType::Map))
                || matches!(
                    converted_type,
                    Some(GroupConvertedType::List | GroupConvertedType::Map | GroupConvertedType::MapKeyValue)
                ));
    }
    table.push(canonical);
    (table, steps)
}

/// Whether the repeated group of a list only wraps the element (the three-level form), by the rules of the format's
/// document on logical types.
fn has_element(repeated: &ParquetType) -> bool {
    match repeated {
        ParquetType::GroupType { fields, field_info, .. } => {
            fields.len() == 1
                && field_info.name.as_str() != "array"
                && !field_info.name.as_str().ends_with("_tuple")
                && fields[0].get_field_info().repetition != Repetition::Repeated
        }
        ParquetType::PrimitiveType(_) => false,
    }
}

fn type_of(primitive: &PrimitiveType) -> Result<(String, Form), String> {
    use PhysicalType::*;
    use PrimitiveLogicalType as L;
    let physical = primitive.physical_type;
    let logical = primitive.logical_type.or_else(|| primitive.converted_type.and_then(as_logical));
    if matches!(primitive.converted_type, Some(PrimitiveConvertedType::Interval)) {
        return Ok(("interval".into(), Form::Bytes));
    }
    let unit = |unit: TimeUnit| match unit {
        TimeUnit::Milliseconds => "ms",
        TimeUnit::Microseconds => "us",
        TimeUnit::Nanoseconds => "ns",
    };
    let whole = |physical| match physical {
        Int32 => Ok(Form::Signed32),
        Int64 => Ok(Form::Plain64),
        other => Err(format!("its logical type does not fit {other:?}")),
    };
    Ok(match (logical, physical) {
        (Some(L::Decimal(precision, scale)), _) => {
            let form = match (physical, precision) {
                (Int32, ..=18) => Form::Signed32,
                (Int64, ..=18) => Form::Plain64,
                (Int32 | Int64, _) => Form::DecimalIntWide,
                (ByteArray | FixedLenByteArray(_), ..=18) => Form::DecimalBytes64,
                (ByteArray | FixedLenByteArray(_), ..=38) => Form::DecimalBytes128,
                (ByteArray | FixedLenByteArray(_), _) => Form::DecimalBytes256,
                (other, _) => return Err(format!("a decimal cannot be stored as {other:?}")),
            };
            (format!("decimal({precision},{scale})"), form)
        }
        (Some(L::Date), _) => ("date".into(), whole(physical)?),
        (Some(L::Time { unit: u, is_adjusted_to_utc }), _) => {
            (format!("time({},{is_adjusted_to_utc})", unit(u)), whole(physical)?)
        }
        (Some(L::Timestamp { unit: u, is_adjusted_to_utc }), _) => {
            (format!("timestamp({},{is_adjusted_to_utc})", unit(u)), whole(physical)?)
        }
        (Some(L::Integer(integer)), Int32 | Int64) => {
            let (text, form) = match integer {
                IntegerType::Int8 => ("int8", whole(physical)?),
                IntegerType::Int16 => ("int16", whole(physical)?),
                IntegerType::Int32 => ("int32", whole(physical)?),
                IntegerType::Int64 => ("int64", whole(physical)?),
                IntegerType::UInt8 => ("uint8", Form::Unsigned32(8)),
                IntegerType::UInt16 => ("uint16", Form::Unsigned32(16)),
                IntegerType::UInt32 => ("uint32", Form::Unsigned32(32)),
                IntegerType::UInt64 => ("uint64", Form::Plain64),
            };
            (text.into(), form)
        }
        (Some(L::Float16), FixedLenByteArray(2)) => ("float16".into(), Form::Float16),
        (Some(L::String | L::Enum | L::Json), ByteArray) => ("string".into(), Form::Text),
        (Some(L::String | L::Enum | L::Json), FixedLenByteArray(n)) => (format!("fixed({n})"), Form::Bytes),
        (_, Boolean) => ("bool".into(), Form::Bool),
        (_, Int32) => ("int32".into(), Form::Signed32),
        (_, Int64) => ("int64".into(), Form::Plain64),
        (_, Int96) => ("int96".into(), Form::Int96),
        (_, Float) => ("float32".into(), Form::Float32),
        (_, Double) => ("float64".into(), Form::Float64),
        (_, ByteArray) => ("binary".into(), Form::Bytes),
        (_, FixedLenByteArray(n)) => (format!("fixed({n})"), Form::Bytes),
    })
}

fn as_logical(converted: PrimitiveConvertedType) -> Option<PrimitiveLogicalType> {
    use PrimitiveConvertedType as C;
    use PrimitiveLogicalType as L;
    Some(match converted {
        C::Utf8 => L::String,
        C::Enum => L::Enum,
        C::Json => L::Json,
        C::Bson => L::Bson,
        C::Decimal(precision, scale) => L::Decimal(precision, scale),
        C::Date => L::Date,
        C::TimeMillis => L::Time { unit: TimeUnit::Milliseconds, is_adjusted_to_utc: true },
        C::TimeMicros => L::Time { unit: TimeUnit::Microseconds, is_adjusted_to_utc: true },
        C::TimestampMillis => L::Timestamp { unit: TimeUnit::Milliseconds, is_adjusted_to_utc: true },
        C::TimestampMicros => L::Timestamp { unit: TimeUnit::Microseconds, is_adjusted_to_utc: true },
        C::Uint8 => L::Integer(IntegerType::UInt8),
        C::Uint16 => L::Integer(IntegerType::UInt16),
        C::Uint32 => L::Integer(IntegerType::UInt32),
        C::Uint64 => L::Integer(IntegerType::UInt64),
        C::Int8 => L::Integer(IntegerType::Int8),
        C::Int16 => L::Integer(IntegerType::Int16),
        C::Int32 => L::Integer(IntegerType::Int32),
        C::Int64 => L::Integer(IntegerType::Int64),
        C::Interval => return None,
    })
}
