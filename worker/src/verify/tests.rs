//! The checking reader on files of another writer, against a second implementation of the definition, and on files that
//! differ in one thing.

use baler_common::model::job::InputFile;
use baler_common::model::object::ObjectRef;
use baler_common::runtime::storage::{Store, Stores};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::*;

mod index;
mod raw;
mod stand_in;
mod windows;

fn context(threads: usize) -> Context {
    Context::new(1 << 30, threads, std::env::temp_dir())
}

fn stored(content: Vec<u8>) -> Result<Checked, Failure> {
    check_stored(&Source::from_bytes("file", content.into()), &context(1))
}

fn fingerprint(content: Vec<u8>) -> Fingerprint {
    stored(content).expect("a readable file").fingerprint
}

fn fixture(name: &str) -> Vec<u8> {
    let path = format!("{}/src/verify/fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn files_of_another_writer_have_the_fingerprints_of_the_second_implementation() {
    let expected = String::from_utf8(fixture("expected.tsv")).expect("text");
    let mut read = 0;
    for line in expected.lines() {
        let (name, wanted) = line.split_once('\t').expect("a name and a fingerprint");
        let source = Source::from_bytes(name, fixture(&format!("{name}.parquet")).into());
        for threads in [1, 3] {
            let found = check_stored(&source, &context(threads)).expect("a readable file");
            assert_eq!(found.fingerprint.to_string(), wanted, "{name} with {threads} threads");
            assert_eq!(found.verified_by, DECODER);
        }
        read += 1;
    }
    assert_eq!(read, 11);
}

#[test]
fn any_flipped_bit_of_a_file_is_an_error_or_leaves_the_rows_as_they_were() {
    let whole = fixture("flat_required_plain.parquet");
    let before = fingerprint(whole.clone());
    let footer = u32::from_le_bytes(whole[whole.len() - 8..whole.len() - 4].try_into().expect("four bytes")) as usize;
    let pages = 4..whole.len() - 8 - footer;
    let (mut refused, mut differ, mut same) = (0, 0, 0);
    for at in pages.step_by(61) {
        let mut content = whole.clone();
        content[at] ^= 1 << (at % 8);
        match stored(content) {
            Err(_) => refused += 1,
            Ok(found) if found.fingerprint != before => differ += 1,
            // A byte that carries no value: a page header's statistics, the page index.
            Ok(_) => same += 1,
        }
    }
    assert!(refused > 0 && differ > 100 && differ > same, "{refused} refused, {differ} differ, {same} same");
}

#[test]
fn a_file_cut_anywhere_near_its_end_is_refused() {
    let whole = fixture("nested_v2.parquet");
    for length in (0..whole.len()).rev().take(1_200).chain([0, 1, 11, 12, whole.len() / 2]) {
        let failure = stored(whole[..length].to_vec()).expect_err("cut off");
        assert_eq!(failure.class, FailureClass::InputCorrupt, "{length} bytes: {failure}");
    }
}

/// A column of a file that a test makes.
enum Column<'a> {
    Int(&'a [i32]),
    Long(&'a [i64]),
    Double(&'a [f64]),
    Text(&'a [&'a str]),
}

type Slots<'a> = (Column<'a>, Option<&'a [i16]>, Option<&'a [i16]>);

fn file(schema: &str, groups: &[&[Slots<'_>]]) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(schema).expect("a schema"));
    let mut content = Vec::new();
    let mut writer =
        SerializedFileWriter::new(&mut content, schema, Arc::new(WriterProperties::default())).expect("a writer");
    for columns in groups {
        let mut group = writer.next_row_group().expect("a row group");
        for (values, definitions, repetitions) in *columns {
            let mut column = group.next_column().expect("an answer").expect("a column");
            let count = match values {
                Column::Int(values) => column.typed::<Int32Type>().write_batch(values, *definitions, *repetitions),
                Column::Long(values) => column.typed::<Int64Type>().write_batch(values, *definitions, *repetitions),
                Column::Double(values) => column.typed::<DoubleType>().write_batch(values, *definitions, *repetitions),
                Column::Text(values) => {
                    let values: Vec<<ByteArrayType as DataType>::T> =
                        values.iter().map(|text| ByteArray::from(*text)).collect();
                    column.typed::<ByteArrayType>().write_batch(&values, *definitions, *repetitions)
                }
            };
            count.expect("written");
            column.close().expect("closed");
        }
        group.close().expect("closed");
    }
    writer.close().expect("closed");
    content
}

#[test]
fn one_changed_thing_changes_the_fingerprint() {
    const SCHEMA: &str = "message s { required int32 a; required int32 b; required double f; }";
    let make = |a: &[i32], b: &[i32], f: &[f64]| {
        fingerprint(file(
            SCHEMA,
            &[&[(Column::Int(a), None, None), (Column::Int(b), None, None), (Column::Double(f), None, None)]],
        ))
    };
    let base = make(&[1, 2, 3], &[4, 5, 6], &[0.0, 1.5, f64::NAN]);
    assert_eq!(base, make(&[1, 2, 3], &[4, 5, 6], &[0.0, 1.5, f64::NAN]));
    let swapped = make(&[2, 1, 3], &[5, 4, 6], &[1.5, 0.0, f64::NAN]);
    assert_ne!(base.ordered, swapped.ordered, "two rows swapped");
    assert_eq!(base.multiset, swapped.multiset, "the same rows in another order");
    let other_nan = f64::from_bits(f64::NAN.to_bits() ^ 1);
    for (other, what) in [
        (make(&[4, 5, 6], &[1, 2, 3], &[0.0, 1.5, f64::NAN]), "two columns swapped"),
        (make(&[1, 2], &[4, 5], &[0.0, 1.5]), "the last row dropped"),
        (make(&[1, 2, 3, 3], &[4, 5, 6, 6], &[0.0, 1.5, f64::NAN, f64::NAN]), "a row doubled"),
        (make(&[2, 1, 3], &[4, 5, 6], &[0.0, 1.5, f64::NAN]), "two values of a column swapped"),
        (make(&[1, 2, 3], &[4, 5, 6], &[-0.0, 1.5, f64::NAN]), "a zero became negative"),
        (make(&[1, 2, 3], &[4, 5, 6], &[0.0, 1.5, other_nan]), "another NaN"),
    ] {
        assert_ne!(base.ordered, other.ordered, "{what}");
        assert_ne!(base.multiset, other.multiset, "{what}");
    }
}

#[test]
fn null_and_empty_differ_at_every_level() {
    const SCHEMA: &str =
        "message s { optional group l (LIST) { repeated group list { optional binary element (STRING); } } }";
    let make = |definition: i16, text: &[&str]| {
        fingerprint(file(SCHEMA, &[&[(Column::Text(text), Some(&[definition]), Some(&[0]))]])).ordered
    };
    let mut seen = vec![make(0, &[]), make(1, &[]), make(2, &[]), make(3, &[""]), make(3, &["\0"])];
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 5, "no list, no element, no value, no character, one character");
}

#[test]
fn the_cut_into_row_groups_does_not_matter_but_a_missing_one_does() {
    const SCHEMA: &str = "message s { required int64 a; }";
    let group = |values: &'static [i64]| [(Column::Long(values), None, None)];
    let whole = fingerprint(file(SCHEMA, &[&group(&[1, 2, 3, 4])]));
    assert_eq!(whole, fingerprint(file(SCHEMA, &[&group(&[1]), &group(&[2, 3]), &group(&[4])])));
    assert_ne!(whole, fingerprint(file(SCHEMA, &[&group(&[1]), &group(&[2, 3])])));
}

#[test]
fn the_declared_type_counts_and_nullability_does_not() {
    let print = |kind: &str| {
        let definitions: Option<&[i16]> = if kind.starts_with("optional") { Some(&[1, 1]) } else { None };
        fingerprint(file(&format!("message s {{ {kind}; }}"), &[&[(Column::Long(&[7, 1 << 40]), definitions, None)]]))
    };
    let local = print("required int64 t (TIMESTAMP(MICROS,false))");
    assert_eq!(local, print("optional int64 t (TIMESTAMP(MICROS,false))"));
    for other in ["(TIMESTAMP(MICROS,true))", "(TIMESTAMP(NANOS,false))", "(INTEGER(64,false))", ""] {
        assert_ne!(local, print(&format!("required int64 t {other}")), "{other}");
    }
}

/// The inputs `files` of a job whose output has the schema of `output`.
fn checked(output: &[u8], files: &[(Vec<u8>, u64, ColumnMap)], mask: Option<&RowMask>) -> Result<Fingerprint, Failure> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = Store::open("source", folder.path().to_str().expect("UTF-8"), true).expect("opened");
    let inputs = files.iter().enumerate().map(|(number, (content, rows, columns))| {
        let path = format!("{number}.parquet");
        store.put(&path, content).expect("put");
        let info = store.head(&path).expect("an answer").expect("it exists");
        let number = number as u64;
        let object = ObjectRef::new("source", path);
        let (identity, columns) = (info.identity, columns.clone());
        InputFile { object, bytes: info.bytes, rows: *rows, identity, first_chunk: number, last_chunk: number, columns }
    });
    let inputs: Vec<InputFile> = inputs.collect();
    let inputs = Inputs::new(Arc::new(Stores::new([store])), inputs, 1 << 20);
    let schema = CheckSchema::from_parquet(output)?;
    check_inputs(&inputs, &schema, mask, &context(2)).map(|checked| checked.fingerprint)
}

#[test]
fn rows_outside_the_mask_are_as_if_they_were_not_there() {
    const SCHEMA: &str = "message s { required int64 a; }";
    let make = |values: &'static [i64]| file(SCHEMA, &[&[(Column::Long(values), None, None)]]);
    let mut mask = RowMask::all(5);
    [0, 3].into_iter().for_each(|row| mask.drop_row(row));
    let files = [(make(&[9, 1, 2]), 3, ColumnMap::Same), (make(&[9, 3]), 2, ColumnMap::Same)];
    assert_eq!(checked(&make(&[]), &files, Some(&mask)), Ok(fingerprint(make(&[1, 2, 3]))));
}

#[test]
fn a_missing_column_is_null_below_what_is_there() {
    const OUTPUT: &str = "message s { optional group g { optional int32 a; optional int32 b; } optional int32 c; }";
    const INPUT: &str = "message s { optional group g { optional int32 a; } }";
    let levels: &[i16] = &[0, 1, 2];
    let cut: &[i16] = &[0, 1, 1];
    let none: &[i16] = &[0, 0, 0];
    let columns: &[Slots<'_>] = &[
        (Column::Int(&[7]), Some(levels), None),
        (Column::Int(&[]), Some(cut), None),
        (Column::Int(&[]), Some(none), None),
    ];
    let output = file(OUTPUT, &[columns]);
    let input = file(INPUT, &[&[(Column::Int(&[7]), Some(levels), None)]]);
    let map = ColumnMap::Leaves(vec![Some(0), None, None]);
    assert_eq!(checked(&output, &[(input, 3, map)], None), Ok(fingerprint(output)));
}

#[test]
fn names_that_occur_twice_in_a_group_are_told_apart_by_their_place() {
    let columns: &[Slots<'_>] = &[
        (Column::Int(&[7, 8]), Some(&[0, 1, 1]), None),
        (Column::Int(&[9]), Some(&[0, 1, 2]), None),
        (Column::Int(&[4, 5, 6]), None, None),
    ];
    let twice =
        file("message s { optional group g { required int32 a; optional int32 a; } required int32 g; }", &[columns]);
    let once =
        file("message s { optional group g { required int32 a; optional int32 b; } required int32 h; }", &[columns]);
    assert_eq!(fingerprint(twice), fingerprint(once));
}

#[test]
fn a_missing_column_is_null_in_its_own_group_and_not_in_a_namesake() {
    const OUTPUT: &str =
        "message s { optional group g { required int32 a; } optional group g { required int32 a; optional int32 b; } }";
    const INPUT: &str = "message s { optional group g { required int32 a; } optional group g { required int32 a; } }";
    let first: Slots<'_> = (Column::Int(&[1, 2]), Some(&[1, 1]), None);
    let second: Slots<'_> = (Column::Int(&[3]), Some(&[0, 1]), None);
    let missing: Slots<'_> = (Column::Int(&[]), Some(&[0, 1]), None);
    let input = file(INPUT, &[&[first, second]]);
    let first: Slots<'_> = (Column::Int(&[1, 2]), Some(&[1, 1]), None);
    let second: Slots<'_> = (Column::Int(&[3]), Some(&[0, 1]), None);
    let output = file(OUTPUT, &[&[first, second, missing]]);
    let map = ColumnMap::Leaves(vec![Some(0), Some(1), None]);
    assert_eq!(checked(&output, &[(input, 2, map)], None), Ok(fingerprint(output)));
}

#[test]
fn an_input_of_another_type_or_length_is_refused_by_name() {
    let make = |kind: &str| {
        file(&format!("message s {{ required int64 t {kind}; }}"), &[&[(Column::Long(&[1, 2]), None, None)]])
    };
    let output = make("(TIMESTAMP(MICROS,true))");
    let failure = checked(&output, &[(make("(TIMESTAMP(MICROS,false))"), 2, ColumnMap::Same)], None)
        .expect_err("another time zone");
    assert_eq!(failure.class, FailureClass::SchemaMismatch);
    assert_eq!(failure.message, "its type is timestamp(us,false), the job's is timestamp(us,true)");
    assert_eq!(failure.column, "t");
    let failure = checked(&output, &[(output.clone(), 3, ColumnMap::Same)], None).expect_err("another row count");
    assert_eq!(failure.class, FailureClass::InputCorrupt);
}

#[test]
fn statistics_that_do_not_hold_are_refused() {
    const SCHEMA: &str = "message s { required int64 a; optional binary b (STRING); }";
    let long = 0x1122_3344_5566_7788i64;
    let columns: &[Slots<'_>] = &[
        (Column::Long(&[long, long + 5, long + 9]), None, None),
        (Column::Text(&["Baker", "Zebra"]), Some(&[1, 0, 1]), None),
    ];
    let sound = file(SCHEMA, &[columns]);
    let schema = CheckSchema::from_parquet(&sound).expect("a schema");
    let check = |content: Vec<u8>| check_object(&Source::from_bytes("file", content.into()), &schema, 0, &context(1));
    assert!(check(sound.clone()).is_ok());
    let footer = u32::from_le_bytes(sound[sound.len() - 8..sound.len() - 4].try_into().expect("four bytes")) as usize;
    let footer_at = sound.len() - 8 - footer;
    let replace = |from: &[u8], to: &[u8]| {
        let mut content = sound.clone();
        let mut changed = 0;
        for at in footer_at..content.len() - from.len() {
            if &content[at..at + from.len()] == from {
                content[at..at + from.len()].copy_from_slice(to);
                changed += 1;
            }
        }
        assert!(changed > 0, "the footer has {from:02x?}");
        check(content).expect_err("a bound that does not hold")
    };
    for (from, to, column) in [
        (long.to_le_bytes().to_vec(), (long + 1).to_le_bytes().to_vec(), "a"),
        ((long + 9).to_le_bytes().to_vec(), (long + 8).to_le_bytes().to_vec(), "a"),
        (b"Baker".to_vec(), b"Cable".to_vec(), "b"),
        (b"Zebra".to_vec(), b"Yacht".to_vec(), "b"),
    ] {
        let failure = replace(&from, &to);
        assert_eq!(failure.column, column);
        assert_eq!(failure.message, "a value lies outside the minimum and maximum of its statistics");
    }
}
