//! Which column of an input feeds a column of the output, and how its levels are told there. Pure.
//!
//! A definition level counts the optional and repeated nodes of a path that are there. Where input and output differ in
//! what is optional, the level is counted anew over the same nodes. A column that an input does not have takes its
//! levels from the neighbour with which it shares most of its path: down to the last node they share it is as the
//! neighbour is, below it is null.

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::job::ColumnMap;
use parquet::basic::Repetition;
use parquet::schema::types::{SchemaDescriptor, Type};

/// Where a column of the output comes from in one input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feed {
    /// The input's leaf; `None` when no column of it tells anything, so that every row is null.
    pub leaf: Option<usize>,
    /// Whether the leaf's values are the output's, or only its levels count.
    pub valued: bool,
    /// Definition level in the output of each definition level of the leaf.
    pub definitions: Vec<i16>,
    /// Slots of deeper repetition are left out.
    pub repetition_max: i16,
}

/// A node of a path from the root to a leaf.
struct Node {
    name: String,
    repetition: Repetition,
}

/// The feed of output leaf number `leaf` from an input.
///
/// # Errors
/// [`FailureClass::SchemaMismatch`] when the job's mapping does not fit the input.
pub fn feed(
    output: &SchemaDescriptor,
    input: &SchemaDescriptor,
    columns: &ColumnMap,
    leaf: usize,
) -> Result<Feed, Failure> {
    let column = output.column(leaf);
    let mismatch =
        |message: &str| Failure::new(FailureClass::SchemaMismatch, message).in_column(column.path().string());
    let wanted = nodes(output, leaf);
    let source = match columns {
        ColumnMap::Same if input.num_columns() == output.num_columns() => Some(leaf),
        ColumnMap::Same => return Err(mismatch("the input has another number of columns than the job")),
        ColumnMap::Leaves(leaves) => leaves.get(leaf).copied().flatten().map(|leaf| leaf as usize),
    };
    if let Some(source) = source {
        if source >= input.num_columns() {
            return Err(mismatch("the job names a column that the input does not have"));
        }
        let own = nodes(input, source);
        let stored = input.column(source);
        if stored.physical_type() != column.physical_type()
            || stored.type_length() != column.type_length()
            || stored.max_rep_level() != column.max_rep_level()
            || own.len() != wanted.len()
        {
            return Err(mismatch("its type in the input is not the job's"));
        }
        let definitions = told(&own, &wanted, wanted.len());
        return Ok(Feed { leaf: Some(source), valued: true, definitions, repetition_max: i16::MAX });
    }
    let shared = |other: usize| {
        nodes(input, other).iter().zip(&wanted).take_while(|(have, want)| have.name == want.name).count()
    };
    let best = (0..input.num_columns()).max_by_key(|other| (shared(*other), std::cmp::Reverse(*other)));
    match best.map(|other| (other, shared(other))) {
        Some((other, depth)) if depth > 0 => {
            let own = nodes(input, other);
            let repeated = own[..depth].iter().filter(|node| node.repetition == Repetition::REPEATED).count();
            let definitions = told(&own, &wanted, depth);
            Ok(Feed { leaf: Some(other), valued: false, definitions, repetition_max: repeated as i16 })
        }
        _ => Ok(Feed { leaf: None, valued: false, definitions: vec![0], repetition_max: 0 }),
    }
}

/// For each definition level over `own`: the level over `wanted`, of whose nodes the first `depth` are the same.
fn told(own: &[Node], wanted: &[Node], depth: usize) -> Vec<i16> {
    let counts = |node: &Node| node.repetition != Repetition::REQUIRED;
    let level = |present: usize| wanted[..present.min(depth)].iter().filter(|node| counts(node)).count() as i16;
    let mut levels: Vec<i16> =
        own.iter().enumerate().filter(|(_, node)| counts(node)).map(|(place, _)| level(place)).collect();
    levels.push(level(own.len()));
    levels
}

fn nodes(schema: &SchemaDescriptor, leaf: usize) -> Vec<Node> {
    let column = schema.column(leaf);
    let mut found = Vec::new();
    // Names may repeat side by side, so the top is found by number.
    let mut node: &Type = &schema.root_schema().get_fields()[schema.get_column_root_idx(leaf)];
    for part in column.path().parts().iter().skip(1) {
        found.push(Node { name: node.name().to_owned(), repetition: node.get_basic_info().repetition() });
        match node {
            Type::GroupType { fields, .. } => match fields.iter().find(|field| field.name() == part) {
                Some(field) => node = field,
                None => return found,
            },
            Type::PrimitiveType { .. } => return found,
        }
    }
    found.push(Node { name: node.name().to_owned(), repetition: node.get_basic_info().repetition() });
    found
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::schema::parser::parse_message_type;

    use super::*;

    fn schema(text: &str) -> SchemaDescriptor {
        SchemaDescriptor::new(Arc::new(parse_message_type(text).unwrap()))
    }

    #[test]
    fn equal_schemas_keep_their_levels() {
        let one = schema("message m { optional group a (LIST) { repeated group list { optional int32 element; } } }");
        let found = feed(&one, &one, &ColumnMap::Same, 0).unwrap();
        assert_eq!(found.definitions, [0, 1, 2, 3]);
    }

    #[test]
    fn a_required_column_becomes_an_optional_one() {
        let (output, input) = (schema("message m { optional int32 a; }"), schema("message m { required int32 a; }"));
        let found = feed(&output, &input, &ColumnMap::Leaves(vec![Some(0)]), 0).unwrap();
        assert_eq!(found, Feed { leaf: Some(0), valued: true, definitions: vec![1], repetition_max: i16::MAX });
    }

    #[test]
    fn a_missing_field_is_null_where_its_neighbour_is_there() {
        let output = schema("message m { optional group s { optional int32 a; optional int32 b; } }");
        let input = schema("message m { optional group s { optional int32 a; } }");
        let map = ColumnMap::Leaves(vec![Some(0), None]);
        let found = feed(&output, &input, &map, 1).unwrap();
        assert_eq!(found, Feed { leaf: Some(0), valued: false, definitions: vec![0, 1, 1], repetition_max: 0 });
    }

    #[test]
    fn a_column_without_neighbours_is_null_in_every_row() {
        let output = schema("message m { optional int32 a; optional int32 z; }");
        let found =
            feed(&output, &schema("message m { optional int32 a; }"), &ColumnMap::Leaves(vec![Some(0), None]), 1);
        assert_eq!(found.unwrap().leaf, None);
    }
}
