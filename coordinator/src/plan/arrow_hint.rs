//! The Arrow schema that some writers leave in the footer (`ARROW:schema`), as far as joining files touches it. Pure.
//!
//! It only hints at how a reader may show what the Parquet schema stores. Two things in it are of one file alone: the
//! width of a dictionary's indices, which the joined dictionary may not fit any more and which is therefore widened; and
//! a timestamp's time zone, whose name Parquet does not store, so that files with different ones are refused.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema};
use baler_common::model::error::{Failure, FailureClass};
use parquet::arrow::{encode_arrow_schema, parquet_to_arrow_schema};
use parquet::file::metadata::KeyValue;
use parquet::schema::types::SchemaDescriptor;

/// The metadata key of the hint.
pub const KEY: &str = "ARROW:schema";

/// Refuses hints that give a column different time zones. Hints that cannot be read say nothing.
pub fn check_zones(schema: &SchemaDescriptor, hints: &BTreeSet<&str>) -> Result<(), Failure> {
    let mut first: Option<Vec<(String, String)>> = None;
    for hint in hints {
        let Some(decoded) = decode(schema, hint) else { continue };
        let mut zones = Vec::new();
        decoded.fields().iter().for_each(|field| collect_zones(field, "", &mut zones));
        let Some(known) = &first else {
            first = Some(zones);
            continue;
        };
        if let Some(((column, one), (_, other))) = known.iter().zip(&zones).find(|(a, b)| a != b) {
            let message = format!("files give it the time zones {one:?} and {other:?}: make them alike");
            return Err(Failure::new(FailureClass::SchemaMismatch, message).in_column(column.clone()));
        }
    }
    Ok(())
}

/// The hint with every dictionary index as wide as readers make them, where one is narrower; `None` to keep it.
pub fn widened(schema: &SchemaDescriptor, hint: &str) -> Option<String> {
    let decoded = decode(schema, hint)?;
    let fields: Fields = decoded.fields().iter().map(|field| Arc::new(widen(field))).collect();
    (fields != *decoded.fields())
        .then(|| encode_arrow_schema(&Schema::new_with_metadata(fields, decoded.metadata().clone())))
}

fn decode(schema: &SchemaDescriptor, hint: &str) -> Option<Schema> {
    let pair = KeyValue { key: KEY.to_owned(), value: Some(hint.to_owned()) };
    let read = || parquet_to_arrow_schema(schema, Some(&vec![pair])).ok();
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)).ok().flatten()
}

fn children(field: &Field) -> Vec<&Arc<Field>> {
    match field.data_type() {
        DataType::Struct(fields) => fields.iter().collect(),
        DataType::List(child)
        | DataType::LargeList(child)
        | DataType::FixedSizeList(child, _)
        | DataType::Map(child, _) => vec![child],
        _ => Vec::new(),
    }
}

fn collect_zones(field: &Field, path: &str, into: &mut Vec<(String, String)>) {
    let below = if path.is_empty() { field.name().clone() } else { format!("{path}.{}", field.name()) };
    if let DataType::Timestamp(_, zone) = field.data_type() {
        into.push((below.clone(), zone.as_deref().unwrap_or_default().to_owned()));
    }
    children(field).into_iter().for_each(|child| collect_zones(child, &below, into));
}

fn widen(field: &Field) -> Field {
    let child = |child: &Arc<Field>| Arc::new(widen(child));
    let wide = match field.data_type() {
        DataType::Dictionary(index, value) => {
            let index = match index.as_ref() {
                DataType::Int8 | DataType::Int16 | DataType::UInt8 | DataType::UInt16 => DataType::Int32,
                wide => wide.clone(),
            };
            DataType::Dictionary(Box::new(index), value.clone())
        }
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(child).collect()),
        DataType::List(item) => DataType::List(child(item)),
        DataType::LargeList(item) => DataType::LargeList(child(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(child(item), *size),
        DataType::Map(entries, sorted) => DataType::Map(child(entries), *sorted),
        other => other.clone(),
    };
    field.clone().with_data_type(wide)
}

#[cfg(test)]
mod tests {
    use arrow_schema::TimeUnit;
    use parquet::arrow::ArrowSchemaConverter;

    use super::*;

    fn hinted(data_type: DataType) -> (SchemaDescriptor, String) {
        let schema = Schema::new(vec![Field::new("c", data_type, true)]);
        (ArrowSchemaConverter::new().convert(&schema).unwrap(), encode_arrow_schema(&schema))
    }

    fn dictionary(index: DataType) -> DataType {
        DataType::Dictionary(Box::new(index), Box::new(DataType::Utf8))
    }

    #[test]
    fn narrow_dictionary_indices_are_widened_and_wide_ones_kept() {
        let (schema, narrow) = hinted(dictionary(DataType::Int8));
        let wide = widened(&schema, &narrow).expect("an index of one byte is narrow");
        assert_eq!(decode(&schema, &wide).unwrap().field(0).data_type(), &dictionary(DataType::Int32));
        assert_eq!(widened(&schema, &wide), None);
        assert_eq!(widened(&schema, "no schema"), None);
    }

    #[test]
    fn differing_time_zones_are_refused() {
        let zoned = |zone: &str| hinted(DataType::Timestamp(TimeUnit::Microsecond, Some(zone.into())));
        let ((schema, utc), (_, berlin)) = (zoned("UTC"), zoned("Europe/Berlin"));
        assert_eq!(check_zones(&schema, &BTreeSet::from([utc.as_str()])), Ok(()));
        let refused = check_zones(&schema, &BTreeSet::from([utc.as_str(), berlin.as_str()])).unwrap_err();
        assert_eq!(refused.column, "c");
        assert!(refused.message.contains("Europe/Berlin"), "{refused}");
    }
}
