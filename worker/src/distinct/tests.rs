use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use baler_common::model::id::JobId;
use baler_common::model::job::{ColumnMap, InputFile, RowMode};
use baler_common::model::object::ObjectRef;
use baler_common::model::options::WriteOptions;
use baler_common::runtime::storage::{Store, Stores};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, FixedLenByteArray, FixedLenByteArrayType, Int32Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use super::*;
use crate::read::inputs::Inputs;
use crate::verify::{self, CheckSchema};

/// A small generator of numbers, the same every time.
fn numbers(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

fn kept(mask: &RowMask) -> Vec<u64> {
    (0..mask.rows()).filter(|&row| mask.keeps(row)).collect()
}

fn firsts(hashes: &[[u64; 2]], memory_bytes: u64, folder: &Path) -> Result<RowMask, Failure> {
    let context = Context::new(memory_bytes, 1, folder.to_owned());
    let hand_over = |sink: &mut dyn FnMut(&[[u64; 2]]) -> Result<(), Failure>| hashes.chunks(1_000).try_for_each(sink);
    first_occurrences(hashes.len() as u64, hand_over, &context)
}

#[test]
fn a_million_rows_agree_with_a_hash_set_in_memory_and_on_disk() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut next = numbers(7);
    let hashes: Vec<[u64; 2]> = (0..1_000_000)
        .map(|_| {
            let mut row = numbers(next() % 600_000);
            [row(), row()]
        })
        .collect();
    let mut seen = HashSet::new();
    let expected: Vec<u64> = (0..hashes.len()).filter(|&row| seen.insert(hashes[row])).map(|row| row as u64).collect();
    assert!(expected.len() > 400_000 && expected.len() < 600_000);
    for memory_bytes in [1 << 30, 16 << 20, 1 << 20, 0] {
        let mask = firsts(&hashes, memory_bytes, folder.path()).expect("a mask");
        assert_eq!(kept(&mask), expected, "{memory_bytes} bytes of memory");
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("listed").count(), 0, "no spilled file is left");
}

#[test]
fn hashes_that_share_a_word_are_not_mixed_up() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut hashes = vec![[0, 0], [0, 1], [1, 0], [0, 0], [1, 0]];
    hashes.extend((0..5_000u64).map(|number| [number % 7, number]));
    hashes.extend((0..5_000u64).map(|number| [number, 3]));
    hashes.extend_from_within(..);
    let mut seen = HashSet::new();
    let expected: Vec<u64> = (0..hashes.len()).filter(|&row| seen.insert(hashes[row])).map(|row| row as u64).collect();
    for memory_bytes in [1 << 30, 0] {
        let mask = firsts(&hashes, memory_bytes, folder.path()).expect("a mask");
        assert_eq!(kept(&mask), expected, "{memory_bytes} bytes of memory");
    }
}

#[test]
fn hashes_that_files_cannot_spread_are_refused_and_not_lost() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let hashes: Vec<[u64; 2]> = (0..5_000).map(|number| [5, number]).collect();
    assert_eq!(firsts(&hashes, 1 << 30, folder.path()).map(|mask| mask.kept_in(0..5_000)), Ok(5_000));
    let refused = firsts(&hashes, 0, folder.path()).expect_err("one file takes them all");
    assert_eq!(refused.class, FailureClass::Policy);
    assert_eq!(std::fs::read_dir(folder.path()).expect("listed").count(), 0);
}

#[test]
fn other_rows_than_planned_are_a_changed_input() {
    let context = Context::new(0, 1, std::env::temp_dir());
    for found in [0, 2, 4, 5] {
        let hashes = vec![[1, 1]; found];
        let failure = first_occurrences(3, |sink| sink(&hashes), &context).expect_err("three were planned");
        assert_eq!(failure.class, FailureClass::InputChanged, "{found}");
    }
    assert_eq!(first_occurrences(0, |_| Ok(()), &context), Ok(RowMask::all(0)));
}

#[test]
fn a_spill_folder_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let taken = folder.path().join("file");
    std::fs::write(&taken, "x").expect("written");
    let hashes: Vec<[u64; 2]> = (0..5_000).map(|number| [number * 31, number]).collect();
    let failure = firsts(&hashes, 0, &taken.join("below")).expect_err("a file is in the way");
    assert_eq!(failure.class, FailureClass::Transient);
    assert!(failure.file.ends_with("file/below"), "{failure}");
}

#[test]
fn a_stopped_attempt_stops() {
    let context = Context::new(1 << 20, 1, std::env::temp_dir());
    context.cancel();
    let failure = first_occurrences(1, |sink| sink(&[[1, 1]]), &context).expect_err("it was stopped");
    assert_eq!(failure.class, FailureClass::Cancelled);
}

/// A Parquet file of one or more row groups; `write` writes the columns of one.
fn file(
    schema: &str,
    groups: usize,
    write: impl Fn(usize, &mut SerializedRowGroupWriter<'_, &mut Vec<u8>>),
) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(schema).expect("a schema"));
    let mut content = Vec::new();
    let mut writer =
        SerializedFileWriter::new(&mut content, schema, Arc::new(WriterProperties::default())).expect("a writer");
    for number in 0..groups {
        let mut group = writer.next_row_group().expect("a row group");
        write(number, &mut group);
        group.close().expect("closed");
    }
    writer.close().expect("closed");
    content
}

fn column<T: parquet::data_type::DataType>(
    group: &mut SerializedRowGroupWriter<'_, &mut Vec<u8>>,
    values: &[T::T],
    definitions: Option<&[i16]>,
    repetitions: Option<&[i16]>,
) {
    let mut column = group.next_column().expect("an answer").expect("a column");
    column.typed::<T>().write_batch(values, definitions, repetitions).expect("written");
    column.close().expect("closed");
}

/// The rows kept of the given files together.
fn distinct(output: &str, files: &[(Vec<u8>, u64, ColumnMap)], memory_bytes: u64, threads: usize) -> Vec<u64> {
    let (writing, checking) = try_distinct(output, files, memory_bytes, threads).expect("a mask");
    assert_eq!(checking.as_ref(), Ok(&writing), "the checking side finds the same rows");
    writing
}

/// What both sides keep. The checking side may refuse more of a broken file.
type BothSides = (Vec<u64>, Result<Vec<u64>, Failure>);

fn try_distinct(
    output: &str,
    files: &[(Vec<u8>, u64, ColumnMap)],
    memory_bytes: u64,
    threads: usize,
) -> Result<BothSides, Failure> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = Store::open("source", folder.path().to_str().expect("UTF-8"), true).expect("opened");
    let inputs: Vec<InputFile> = files
        .iter()
        .enumerate()
        .map(|(number, (content, rows, columns))| {
            let path = format!("chunks-{number:04}.parquet");
            store.put(&path, content).expect("put");
            let info = store.head(&path).expect("an answer").expect("it exists");
            InputFile {
                object: ObjectRef::new("source", path),
                bytes: info.bytes,
                rows: *rows,
                identity: info.identity,
                first_chunk: number as u64,
                last_chunk: number as u64,
                columns: columns.clone(),
            }
        })
        .collect();
    let mut spec = spec(inputs);
    spec.schema = file(output, 0, |_, _| {});
    let inputs = Inputs::new(Arc::new(Stores::new([store])), spec.inputs.clone(), 1 << 20);
    let context = Context::new(memory_bytes, threads, folder.path().join("spill"));
    let writing = first_occurrences(spec.input_rows(), |sink| row_hashes(&spec, &inputs, &context, sink), &context)?;
    let schema = CheckSchema::from_parquet(&spec.schema).expect("a schema");
    let checking =
        first_occurrences(spec.input_rows(), |sink| verify::row_hashes(&inputs, &schema, &context, sink), &context);
    Ok((kept(&writing), checking.map(|mask| kept(&mask))))
}

fn spec(inputs: Vec<InputFile>) -> JobSpec {
    JobSpec {
        job: JobId(0),
        table: "labels".to_owned(),
        key: "all".to_owned(),
        mode: RowMode::Distinct,
        inputs,
        output_path: "all/chunks-0000-0001.parquet".to_owned(),
        staging: ObjectRef::new("target", "staging"),
        schema: Vec::new(),
        options: WriteOptions::default(),
        memory_millibytes_per_row: 1,
        target_bytes: 1 << 30,
        key_values: Vec::new(),
    }
}

const FLAT: &str = "message m { optional double x; optional binary s (UTF8); }";

fn flat(rows: &[(Option<f64>, Option<&str>)]) -> (Vec<u8>, u64, ColumnMap) {
    let content = file(FLAT, 1, |_, group| {
        let definitions: Vec<i16> = rows.iter().map(|row| i16::from(row.0.is_some())).collect();
        let values: Vec<f64> = rows.iter().filter_map(|row| row.0).collect();
        column::<DoubleType>(group, &values, Some(&definitions), None);
        let definitions: Vec<i16> = rows.iter().map(|row| i16::from(row.1.is_some())).collect();
        let values: Vec<ByteArray> = rows.iter().filter_map(|row| row.1.map(ByteArray::from)).collect();
        column::<ByteArrayType>(group, &values, Some(&definitions), None);
    });
    (content, rows.len() as u64, ColumnMap::Same)
}

#[test]
fn null_is_null_and_any_nan_is_nan_and_the_zeros_differ() {
    let nan = |bits: u64| Some(f64::from_bits(bits));
    let files = [
        flat(&[(Some(1.0), Some("a")), (None, None), (nan(0x7ff8_0000_0000_0000), Some("a")), (Some(0.0), Some("z"))]),
        flat(&[(nan(0xfff8_0000_0000_0123), Some("a")), (Some(-0.0), Some("z")), (None, None), (Some(1.0), Some(""))]),
        flat(&[(Some(1.0), None), (Some(1.0), Some("a")), (Some(1.0), Some("")), (nan(0x7ff0_0000_0000_0001), None)]),
    ];
    for threads in [1, 2, 5] {
        for memory_bytes in [0, 1 << 30] {
            assert_eq!(distinct(FLAT, &files, memory_bytes, threads), [0, 1, 2, 3, 5, 7, 8, 11]);
        }
    }
}

#[test]
fn nested_nulls_and_empties_are_kept_apart() {
    // s: struct<k: string, v: list<double>>, all nullable.
    let schema = "message m { optional group s { optional binary k (UTF8); optional group v (LIST) {
        repeated group list { optional double element; } } } }";
    // Rows: null struct; struct of nulls; {null, []}; {null, [null]}; {null, [null, null]}; {"", []}; {null, [1]};
    // {null, [1, null]}; {null, [null, 1]}.
    let rows: Vec<(i16, Option<&str>, Vec<i16>, Vec<f64>)> = vec![
        (0, None, vec![0], vec![]),
        (1, None, vec![1], vec![]),
        (1, None, vec![2], vec![]),
        (1, None, vec![3], vec![]),
        (1, None, vec![3, 3], vec![]),
        (2, Some(""), vec![2], vec![]),
        (1, None, vec![4], vec![1.0]),
        (1, None, vec![4, 3], vec![1.0]),
        (1, None, vec![3, 4], vec![1.0]),
    ];
    let write = |order: &[usize]| {
        let content = file(schema, 1, |_, group| {
            let rows: Vec<_> = order.iter().map(|&row| &rows[row]).collect();
            let definitions: Vec<i16> = rows.iter().map(|row| row.0).collect();
            let values: Vec<ByteArray> = rows.iter().filter_map(|row| row.1.map(ByteArray::from)).collect();
            column::<ByteArrayType>(group, &values, Some(&definitions), None);
            let definitions: Vec<i16> = rows.iter().flat_map(|row| row.2.clone()).collect();
            let repetitions: Vec<i16> =
                rows.iter().flat_map(|row| (0..row.2.len()).map(|slot| i16::from(slot > 0))).collect();
            let values: Vec<f64> = rows.iter().flat_map(|row| row.3.clone()).collect();
            column::<DoubleType>(group, &values, Some(&definitions), Some(&repetitions));
        });
        (content, order.len() as u64, ColumnMap::Same)
    };
    let files = [write(&[0, 1, 2, 3, 4, 5, 6, 7, 8]), write(&[8, 7, 6, 5, 4, 3, 2, 1, 0])];
    assert_eq!(distinct(schema, &files, 1 << 30, 2), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    let files = [write(&[8, 3, 3, 8]), write(&[4, 8, 0])];
    assert_eq!(distinct(schema, &files, 1 << 30, 1), [0, 1, 4, 6]);
}

#[test]
fn columns_are_found_where_the_map_says_and_missing_ones_are_null() {
    let output = "message m { optional int32 a; optional int32 b; }";
    let both = |rows: &[(i32, i32)]| {
        let schema = "message m { required int32 b; optional int32 a; }";
        let content = file(schema, 1, |_, group| {
            let values: Vec<i32> = rows.iter().map(|row| row.1).collect();
            column::<Int32Type>(group, &values, None, None);
            let values: Vec<i32> = rows.iter().map(|row| row.0).collect();
            column::<Int32Type>(group, &values, Some(&vec![1; rows.len()]), None);
        });
        (content, rows.len() as u64, ColumnMap::Leaves(vec![Some(1), Some(0)]))
    };
    let same = |rows: &[(i32, Option<i32>)]| {
        let content = file(output, 1, |_, group| {
            let values: Vec<i32> = rows.iter().map(|row| row.0).collect();
            column::<Int32Type>(group, &values, Some(&vec![1; rows.len()]), None);
            let values: Vec<i32> = rows.iter().filter_map(|row| row.1).collect();
            let definitions: Vec<i16> = rows.iter().map(|row| i16::from(row.1.is_some())).collect();
            column::<Int32Type>(group, &values, Some(&definitions), None);
        });
        (content, rows.len() as u64, ColumnMap::Same)
    };
    let only_a = |rows: &[i32]| {
        let content =
            file("message m { required int32 a; }", 1, |_, group| column::<Int32Type>(group, rows, None, None));
        (content, rows.len() as u64, ColumnMap::Leaves(vec![Some(0), None]))
    };
    let files = [
        same(&[(1, Some(2)), (2, Some(1)), (1, None)]),
        both(&[(1, 2), (2, 2), (2, 1)]),
        only_a(&[1, 2, 1]),
        same(&[(2, None)]),
    ];
    assert_eq!(distinct(output, &files, 1 << 30, 1), [0, 1, 2, 4, 7]);
    let missing = [(files[0].0.clone(), 3, ColumnMap::Leaves(vec![Some(0), Some(9)]))];
    let failure = try_distinct(output, &missing, 1 << 30, 1).expect_err("there is no tenth column");
    assert_eq!((failure.class, failure.column.as_str()), (FailureClass::SchemaMismatch, "b"));
}

#[test]
fn half_floats_follow_the_rule_of_floats() {
    let schema = "message m { required fixed_len_byte_array(2) h (FLOAT16); }";
    let values: Vec<FixedLenByteArray> = [0x7e00u16, 0x7c01, 0xfe00, 0x7c00, 0xfc00, 0x0000, 0x8000, 0x7e00]
        .iter()
        .map(|bits| FixedLenByteArray::from(bits.to_le_bytes().to_vec()))
        .collect();
    let content = file(schema, 1, |_, group| column::<FixedLenByteArrayType>(group, &values, None, None));
    assert_eq!(distinct(schema, &[(content, 8, ColumnMap::Same)], 1 << 30, 1), [0, 3, 4, 5, 6]);
}

#[test]
fn a_large_row_group_in_stretches_and_small_row_groups_give_the_same_rows() {
    let schema = "message m { required int32 a; optional binary s (UTF8); }";
    let rows = 200_000usize;
    let mut next = numbers(3);
    let values: Vec<(i32, String)> =
        (0..rows).map(|_| ((next() % 300) as i32, format!("text {}", next() % 300))).collect();
    let write = |groups: usize| {
        let content = file(schema, groups, |number, group| {
            let part = &values[number * rows / groups..(number + 1) * rows / groups];
            column::<Int32Type>(group, &part.iter().map(|row| row.0).collect::<Vec<_>>(), None, None);
            let texts: Vec<ByteArray> = part.iter().map(|row| ByteArray::from(row.1.as_str())).collect();
            column::<ByteArrayType>(group, &texts, Some(&vec![1; part.len()]), None);
        });
        (content, rows as u64, ColumnMap::Same)
    };
    let mut seen = HashSet::new();
    let expected: Vec<u64> = (0..rows).filter(|&row| seen.insert(&values[row])).map(|row| row as u64).collect();
    assert!(expected.len() > 50_000 && expected.len() <= 90_000);
    assert_eq!(distinct(schema, &[write(1)], 0, 2), expected);
    assert_eq!(distinct(schema, &[write(1)], 1 << 30, 2), expected);
    assert_eq!(distinct(schema, &[write(13)], 1 << 30, 3), expected);
}

#[test]
fn broken_files_are_refused_by_name() {
    let (content, rows, map) = flat(&[(Some(1.0), Some("a")), (Some(2.0), Some("b"))]);
    let refused = |content: Vec<u8>, rows: u64| {
        let failure = try_distinct(FLAT, &[(content, rows, map.clone())], 1 << 20, 2).expect_err("broken");
        assert!(failure.file.ends_with("chunks-0000.parquet"), "{failure}");
        failure.class
    };
    assert_eq!(refused(content.clone(), rows + 1), FailureClass::InputChanged);
    assert_eq!(refused(Vec::new(), 0), FailureClass::InputCorrupt);
    assert_eq!(refused(content[..content.len() - 1].to_vec(), rows), FailureClass::InputCorrupt);
    for at in 0..content.len() {
        let mut flipped = content.clone();
        flipped[at] ^= 0x55;
        // Any answer but a panic or a hang: where the flip does not matter, both rows stay.
        if let Ok((kept, checking)) = try_distinct(FLAT, &[(flipped, rows, map.clone())], 1 << 20, 1) {
            assert_eq!(kept, [0, 1], "byte {at}");
            assert!(checking.is_err() || checking == Ok(kept), "byte {at}: {checking:?}");
        }
    }
}

#[test]
fn outputs_are_cut_between_inputs_at_the_target_size() {
    let input = |bytes: u64, first_chunk: u64, last_chunk: u64| InputFile {
        object: ObjectRef::new("source", format!("all/chunks-{first_chunk}.parquet")),
        bytes,
        rows: 1,
        identity: Default::default(),
        first_chunk,
        last_chunk,
        columns: ColumnMap::Same,
    };
    let mut spec = spec(vec![input(60, 0, 0), input(40, 1, 4), input(500, 5, 5), input(1, 6, 6), input(99, 7, 12_345)]);
    spec.target_bytes = 100;
    let cut: Vec<(Range<usize>, String, u64, u64)> = output_ranges(&spec)
        .into_iter()
        .map(|output| (output.inputs, output.path, output.first_chunk, output.last_chunk))
        .collect();
    assert_eq!(
        cut,
        [
            (0..2, "all/chunks-0000-0004.parquet".to_owned(), 0, 4),
            (2..3, "all/chunks-0005-0005.parquet".to_owned(), 5, 5),
            (3..5, "all/chunks-00006-12345.parquet".to_owned(), 6, 12_345),
        ]
    );
    spec.target_bytes = 1_000;
    spec.output_path = "all/as-planned.parquet".to_owned();
    let whole = output_ranges(&spec);
    assert_eq!(whole.len(), 1);
    assert_eq!((whole[0].inputs.clone(), whole[0].path.as_str()), (0..5, "all/as-planned.parquet"));
    spec.inputs.clear();
    assert_eq!(output_ranges(&spec), []);
}
