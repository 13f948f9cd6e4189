//! Compares and merges the Parquet schemas of a key's files. Pure.
//!
//! Without `--evolve` all schemas must be equal; a report says which files and columns differ. With it they are merged by
//! field id where every sibling has one, else by name: a missing column is null, order and nullability may differ, types
//! may not. Nothing is ever cast.

use std::collections::BTreeMap;
use std::sync::Arc;

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::job::ColumnMap;
use parquet::basic::{LogicalType, Repetition};
use parquet::schema::types::{BasicTypeInfo, Type, TypePtr};

use super::{FileSnapshot, SchemaFacts};

/// Differences that a report lists before it only counts.
const REPORTED_MAX: usize = 8;

/// The schema of a key's outputs, and how each file's columns map onto it.
#[derive(Debug, Clone, PartialEq)]
pub struct KeySchema {
    pub root: TypePtr,
    /// One for each file.
    pub columns: Vec<ColumnMap>,
}

/// The schema that all files have.
///
/// # Errors
/// [`FailureClass::SchemaMismatch`] with the files and columns that differ.
pub fn same(files: &[(&FileSnapshot, &SchemaFacts)]) -> Result<KeySchema, Failure> {
    let Some((first_file, first)) = files.first() else {
        return Err(Failure::new(FailureClass::SchemaMismatch, "the key has no files"));
    };
    check_names(&first.root).map_err(|failure| failure.in_file(first_file.path.clone()))?;
    let mut reports = Vec::new();
    let mut others: Vec<&str> = Vec::new();
    let mut column = String::new();
    for (file, schema) in &files[1..] {
        if schema.bytes == first.bytes {
            continue;
        }
        let differences = differences(&first.root, &schema.root);
        if differences.is_empty() {
            // Equal but for the order in which the footer spells it.
            continue;
        }
        others.push(&file.path);
        if reports.len() < REPORTED_MAX {
            if column.is_empty() {
                column.clone_from(&differences[0].0);
            }
            let told: Vec<_> = differences.iter().take(REPORTED_MAX).map(|(_, text)| text.as_str()).collect();
            let more = differences.len().saturating_sub(REPORTED_MAX);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            reports.push(format!("{}: {}{more}", file.path, told.join(", ")));
        }
    }
    if others.is_empty() {
        let columns = vec![ColumnMap::Same; files.len()];
        return Ok(KeySchema { root: first.root.clone(), columns });
    }
    let message = format!(
        "{} of {} files have another schema than {}: {}; make them alike, or merge them with --evolve where types are equal",
        others.len(),
        files.len(),
        first_file.path,
        reports.join("; ")
    );
    Err(Failure::new(FailureClass::SchemaMismatch, message).in_file(others[0]).in_column(column))
}

/// Refuses columns of one name side by side: no reader can tell them apart.
pub fn check_names(node: &Type) -> Result<(), Failure> {
    let Type::GroupType { fields, .. } = node else { return Ok(()) };
    for (place, field) in fields.iter().enumerate() {
        if let Some(twin) = fields[..place].iter().find(|other| other.name() == field.name()) {
            let message = format!(
                "two columns are named {}, a duplicate name that no reader can tell apart: rename one",
                twin.name()
            );
            return Err(Failure::new(FailureClass::Unsupported, message).in_column(field.name()));
        }
        check_names(field)?;
    }
    Ok(())
}

/// What differs, by column path: `(path, sentence)`.
pub fn differences(first: &Type, other: &Type) -> Vec<(String, String)> {
    let (mut left, mut right) = (Vec::new(), Vec::new());
    flatten(first, "", &mut left);
    flatten(other, "", &mut right);
    let by_path: BTreeMap<&str, &str> = left.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let there: BTreeMap<&str, &str> = right.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let mut found = Vec::new();
    for (path, text) in &left {
        match there.get(path.as_str()) {
            None => found.push((path.clone(), format!("column {path} is missing"))),
            Some(there) if *there != text => {
                found.push((path.clone(), format!("column {path} is {there} for {text}")));
            }
            Some(_) => {}
        }
    }
    for (path, text) in &right {
        if !by_path.contains_key(path.as_str()) {
            found.push((path.clone(), format!("column {path} ({text}) is new")));
        }
    }
    if found.is_empty() && left != right {
        let order = |side: &[(String, String)]| side.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>();
        let moved = order(&left).into_iter().zip(order(&right)).find(|(a, b)| a != b);
        let path = moved.map_or_else(String::new, |(_, path)| path);
        found.push((path.clone(), format!("the columns are in another order, from column {path} on")));
    }
    found
}

fn flatten(node: &Type, path: &str, into: &mut Vec<(String, String)>) {
    let Type::GroupType { fields, .. } = node else { return };
    for field in fields {
        let below = if path.is_empty() { field.name().to_owned() } else { format!("{path}.{}", field.name()) };
        into.push((below.clone(), describe(field)));
        flatten(field, &below, into);
    }
}

/// A node without its children, in words.
fn describe(node: &Type) -> String {
    let info = node.get_basic_info();
    let mut text = match info.has_repetition() {
        true => format!("{:?} ", info.repetition()).to_lowercase(),
        false => String::new(),
    };
    match node {
        Type::PrimitiveType { physical_type, type_length, scale, precision, .. } => {
            text += &physical_type.to_string();
            if *type_length > 0 {
                text += &format!("({type_length})");
            }
            if *precision > 0 {
                text += &format!(" decimal({precision},{scale})");
            }
        }
        Type::GroupType { .. } => text += "group",
    }
    match info.logical_type_ref() {
        Some(logical) => text += &format!(" {logical:?}"),
        None if info.converted_type() != parquet::basic::ConvertedType::NONE => {
            text += &format!(" {}", info.converted_type());
        }
        None => {}
    }
    if info.has_id() {
        text += &format!(" id {}", info.id());
    }
    text
}

/// Merges the schemas of the files.
///
/// # Errors
/// [`FailureClass::SchemaMismatch`] where two files give a column different types.
pub fn merge(files: &[(&FileSnapshot, &SchemaFacts)]) -> Result<KeySchema, Failure> {
    let Some((_, first)) = files.first() else {
        return Err(Failure::new(FailureClass::SchemaMismatch, "the key has no files"));
    };
    for (file, schema) in files {
        check_names(&schema.root).map_err(|failure| failure.in_file(file.path.clone()))?;
    }
    let roots: Vec<Option<&Type>> = files.iter().map(|(_, schema)| Some(schema.root.as_ref())).collect();
    let fields = merge_fields(&roots, "", files)?;
    let root = Type::group_type_builder(first.root.name()).with_fields(fields.clone()).build();
    let root = Arc::new(root.map_err(|error| mismatch(format!("the merged schema is not valid: {error}")))?);
    let mut columns = Vec::with_capacity(files.len());
    for (_, schema) in files {
        let mut leaves = Vec::new();
        map_leaves(&root, Some(&schema.root), &mut 0, &mut leaves);
        let same = schema.root.get_fields() == root.get_fields();
        columns.push(if same { ColumnMap::Same } else { ColumnMap::Leaves(leaves) });
    }
    Ok(KeySchema { root, columns })
}

fn mismatch(message: String) -> Failure {
    Failure::new(FailureClass::SchemaMismatch, message)
}

fn fields_of(node: &Type) -> &[TypePtr] {
    match node {
        Type::GroupType { fields, .. } => fields,
        Type::PrimitiveType { .. } => &[],
    }
}

/// Whether a column holds nothing but nulls by its type.
fn is_null_typed(node: &Type) -> bool {
    matches!(node.get_basic_info().logical_type_ref(), Some(LogicalType::Unknown))
}

/// The child of `node` that is `wanted`: by field id when both have one, else by name.
fn child<'a>(node: &'a Type, wanted: &Type) -> Option<(usize, &'a TypePtr)> {
    let info = wanted.get_basic_info();
    fields_of(node).iter().enumerate().find(|(_, field)| {
        let own = field.get_basic_info();
        if info.has_id() && own.has_id() { own.id() == info.id() } else { field.name() == wanted.name() }
    })
}

fn merge_fields(
    nodes: &[Option<&Type>],
    path: &str,
    files: &[(&FileSnapshot, &SchemaFacts)],
) -> Result<Vec<TypePtr>, Failure> {
    let mut wanted: Vec<&TypePtr> = Vec::new();
    for node in nodes.iter().flatten() {
        for field in fields_of(node) {
            let info = field.get_basic_info();
            let known = wanted.iter().position(|known| {
                let own = known.get_basic_info();
                if info.has_id() && own.has_id() { own.id() == info.id() } else { known.name() == field.name() }
            });
            match known {
                // The real type stands for a null-typed one.
                Some(place) if is_null_typed(wanted[place]) && !is_null_typed(field) => wanted[place] = field,
                Some(_) => {}
                None => wanted.push(field),
            }
        }
    }
    wanted
        .into_iter()
        .map(|field| {
            let below = if path.is_empty() { field.name().to_owned() } else { format!("{path}.{}", field.name()) };
            let found: Vec<Option<&Type>> = nodes
                .iter()
                .map(|node| node.and_then(|node| child(node, field)).map(|(_, found)| found.as_ref()))
                .map(|found| found.filter(|found| is_null_typed(field) || !is_null_typed(found)))
                .collect();
            // A file whose parent is missing says nothing of this field.
            let parents: Vec<bool> = nodes.iter().map(Option::is_some).collect();
            merge_node(field, &found, &parents, &below, files)
        })
        .collect()
}

fn merge_node(
    field: &Type,
    found: &[Option<&Type>],
    parents: &[bool],
    path: &str,
    files: &[(&FileSnapshot, &SchemaFacts)],
) -> Result<TypePtr, Failure> {
    let mut repetition = field.get_basic_info().repetition();
    for ((node, parent), (file, _)) in found.iter().zip(parents).zip(files) {
        let Some(node) = node else {
            if *parent && repetition == Repetition::REPEATED {
                let message = "a repeated column cannot be missing from some files";
                return Err(mismatch(message.into()).in_column(path).in_file(file.path.clone()));
            }
            if *parent {
                repetition = Repetition::OPTIONAL;
            }
            continue;
        };
        let own = node.get_basic_info().repetition();
        if (own == Repetition::REPEATED) != (field.get_basic_info().repetition() == Repetition::REPEATED) {
            return Err(mismatch("it is repeated in some files only".into())
                .in_column(path)
                .in_file(file.path.clone()));
        }
        if own == Repetition::OPTIONAL {
            repetition = Repetition::OPTIONAL;
        }
        if !same_type(field, node) {
            let message = format!(
                "its type is {} in {} and {} elsewhere: types are never cast",
                describe(node),
                file.path,
                describe(field)
            );
            return Err(mismatch(message).in_column(path).in_file(file.path.clone()));
        }
    }
    let info = field.get_basic_info();
    let id = info.has_id().then(|| info.id());
    let built = match field {
        Type::PrimitiveType { physical_type, type_length, scale, precision, .. } => {
            Type::primitive_type_builder(field.name(), *physical_type)
                .with_repetition(repetition)
                .with_converted_type(info.converted_type())
                .with_logical_type(info.logical_type_ref().cloned())
                .with_length(*type_length)
                .with_precision(*precision)
                .with_scale(*scale)
                .with_id(id)
                .build()
        }
        Type::GroupType { .. } => Type::group_type_builder(field.name())
            .with_repetition(repetition)
            .with_converted_type(info.converted_type())
            .with_logical_type(info.logical_type_ref().cloned())
            .with_id(id)
            .with_fields(merge_fields(found, path, files)?)
            .build(),
    };
    built.map(Arc::new).map_err(|error| mismatch(format!("the merged schema is not valid: {error}")).in_column(path))
}

/// Whether two nodes have the same type, whatever their names, repetition and children.
fn same_type(a: &Type, b: &Type) -> bool {
    let info = |node: &Type| {
        let info: &BasicTypeInfo = node.get_basic_info();
        (info.converted_type(), info.logical_type_ref().cloned())
    };
    if info(a) != info(b) {
        return false;
    }
    match (a, b) {
        (
            Type::PrimitiveType { physical_type, type_length, scale, precision, .. },
            Type::PrimitiveType { physical_type: p, type_length: l, scale: s, precision: r, .. },
        ) => physical_type == p && type_length == l && scale == s && precision == r,
        (Type::GroupType { .. }, Type::GroupType { .. }) => true,
        _ => false,
    }
}

/// For each leaf of `merged`, depth-first: the leaf number in `own`, counted from `base`.
fn map_leaves(merged: &Type, own: Option<&Type>, base: &mut u32, into: &mut Vec<Option<u32>>) {
    let own_fields = own.map_or(&[][..], fields_of);
    let mut starts = Vec::with_capacity(own_fields.len());
    let mut at = *base;
    for field in own_fields {
        starts.push(at);
        at += leaf_count(field);
    }
    *base = at;
    for field in fields_of(merged) {
        let found =
            own.and_then(|own| child(own, field)).filter(|(_, found)| is_null_typed(field) || !is_null_typed(found));
        match (field.is_primitive(), found) {
            (true, Some((place, _))) => into.push(Some(starts[place])),
            (true, None) => into.push(None),
            (false, Some((place, found))) => map_leaves(field, Some(found), &mut starts[place].clone(), into),
            (false, None) => map_leaves(field, None, &mut 0, into),
        }
    }
}

fn leaf_count(node: &Type) -> u32 {
    if node.is_primitive() { 1 } else { fields_of(node).iter().map(|field| leaf_count(field)).sum() }
}
