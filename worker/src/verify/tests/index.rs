//! Page indexes that say what is not so.

use std::ops::Range;

use parquet::file::metadata::ParquetMetaDataReader;
use parquet::file::properties::WriterVersion;

use super::windows::big;
use super::*;

const SCHEMA: &str = "message s { optional int64 a; required binary b (STRING); }";
const PAGES: usize = 3;
const PAGE_ROWS: usize = 1_000;
/// Smallest number of each page; each page spans 8,000 numbers. The pages are in no order.
const BASES: [i64; PAGES] = [0x11_0000_0000, 0x33_0000_0000, 0x22_0000_0000];
/// First and last word of each page, in a dictionary.
const WORDS: [[&str; 2]; PAGES] = [["Baker", "Cable"], ["Delta", "Early"], ["Focal", "Giant"]];

fn sound() -> Vec<u8> {
    let properties = WriterProperties::builder()
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(100)
        .set_column_dictionary_enabled("a".into(), false)
        .build();
    let schema = Arc::new(parse_message_type(SCHEMA).expect("a schema"));
    let mut content = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut content, schema, Arc::new(properties)).expect("a writer");
    let mut group = writer.next_row_group().expect("a row group");
    let rows = 0..PAGES * PAGE_ROWS;
    let numbers: Vec<i64> =
        rows.clone().filter(|row| row % 10 != 5).map(|row| BASES[row / PAGE_ROWS] + (row % 9) as i64 * 1_000).collect();
    let present: Vec<i16> = rows.clone().map(|row| i16::from(row % 10 != 5)).collect();
    let words: Vec<ByteArray> = rows.map(|row| ByteArray::from(WORDS[row / PAGE_ROWS][row % 2])).collect();
    let mut column = group.next_column().expect("an answer").expect("a column");
    column.typed::<Int64Type>().write_batch(&numbers, Some(&present), None).expect("written");
    column.close().expect("closed");
    let mut column = group.next_column().expect("an answer").expect("a column");
    column.typed::<ByteArrayType>().write_batch(&words, None, None).expect("written");
    column.close().expect("closed");
    group.close().expect("closed");
    writer.close().expect("closed");
    content
}

/// Where the column index and the offset index of a column lie.
fn indexes(content: &[u8], column: usize) -> [Range<usize>; 2] {
    let content = bytes::Bytes::from(content.to_vec());
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&content).expect("a footer");
    let chunk = metadata.row_group(0).column(column);
    let range = |offset: Option<i64>, length: Option<i32>| {
        let offset = offset.expect("an index") as usize;
        offset..offset + length.expect("an index") as usize
    };
    [
        range(chunk.column_index_offset(), chunk.column_index_length()),
        range(chunk.offset_index_offset(), chunk.offset_index_length()),
    ]
}

/// The sound file with `from` replaced by `to`, once, in one of a column's indexes.
fn replaced(column: usize, which: usize, from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut content = sound();
    let range = indexes(&content, column)[which].clone();
    let found = content[range.clone()].windows(from.len()).position(|bytes| bytes == from);
    let at = range.start + found.unwrap_or_else(|| panic!("{from:02x?} in {:02x?}", &content[range]));
    content[at..at + to.len()].copy_from_slice(to);
    content
}

#[test]
fn a_page_index_that_does_not_hold_is_refused() {
    assert_eq!(stored(sound()).expect("a sound file").fingerprint.rows, 3_000);
    let [min, max] = [BASES[1], BASES[1] + 8_000].map(i64::to_le_bytes);
    let outside = "a value lies outside the minimum and maximum of its statistics";
    let column_index = 0;
    let offset_index = 1;
    for (column, which, from, to, message) in [
        (0, column_index, min.to_vec(), (BASES[1] + 1).to_le_bytes().to_vec(), outside),
        (0, column_index, max.to_vec(), (BASES[1] + 7_999).to_le_bytes().to_vec(), outside),
        (1, column_index, b"Delta".to_vec(), b"Dfkta".to_vec(), outside),
        (1, column_index, b"Giant".to_vec(), b"Gaant".to_vec(), outside),
        // A page of nulls, by the first list; a count of 100 nulls, by the last.
        (
            0,
            column_index,
            vec![0x19, 0x32],
            vec![0x19, 0x32, 1],
            "its page index says that page 0 is all nulls, it has 900 values",
        ),
        (
            0,
            column_index,
            vec![0x19, 0x36, 0xc8, 1],
            vec![0x19, 0x36, 0xca],
            "its page index counts 101 nulls in page 0, it has 100",
        ),
        // The order of the pages, which is none.
        (
            0,
            column_index,
            vec![0x15, 0, 0x19],
            vec![0x15, 2],
            "its page index claims an order that its pages do not have",
        ),
        (
            0,
            column_index,
            vec![0x15, 0, 0x19],
            vec![0x15, 4],
            "its page index claims an order that its pages do not have",
        ),
        (
            1,
            column_index,
            vec![0x15, 2, 0x19],
            vec![0x15, 4],
            "its page index claims an order that its pages do not have",
        ),
        (0, column_index, vec![0x19], vec![0x1f], "its column index cannot be read"),
        // The first row of the second page, 1,000, and where the first page lies.
        (0, offset_index, vec![0x16, 0xd0, 0x0f], vec![0x16, 0xd2], "from row 1001 on, it lies at byte"),
        (1, offset_index, vec![0x16, 0xd0, 0x0f], vec![0x16, 0xce], "from row 999 on, it lies at byte"),
        (
            0,
            offset_index,
            vec![0x19, 0x3c, 0x16, 8],
            vec![0x19, 0x3c, 0x16, 10],
            "its page index says that page 0 lies at byte 5",
        ),
        // A page fewer.
        (0, offset_index, vec![0x19, 0x3c], vec![0x19, 0x2c], "its page index lists 2 pages, it has more"),
    ] {
        let failure = stored(replaced(column, which, &from, &to)).expect_err(message);
        assert_eq!(failure.class, FailureClass::InputCorrupt, "{failure}");
        assert_eq!(failure.column, ["a", "b"][column], "{failure}");
        assert!(failure.message.contains(message), "{failure}, not {message}");
    }
}

#[test]
fn a_page_index_that_does_not_hold_does_not_matter_in_an_input() {
    // Inputs are read by their values; what their statistics claim is not taken over.
    let min = BASES[1].to_le_bytes();
    let content = replaced(0, 0, &min, &(BASES[1] + 1).to_le_bytes());
    let files = [(content, 3_000, ColumnMap::Same)];
    assert_eq!(checked(&sound(), &files, None), Ok(fingerprint(sound())));
}

#[test]
fn a_page_index_is_held_against_windows_too() {
    // Pages of 3,000 rows in windows of 4,096: the third one, from row 6,000 on, is begun in one and ended in the next.
    let whole = big(40_961, WriterVersion::PARQUET_1_0);
    for column in [0, 2] {
        let mut content = whole.clone();
        let range = indexes(&content, column)[1].clone();
        let third = content[range.clone()].windows(3).position(|bytes| bytes == [0x16, 0xe0, 0x5d]);
        content[range.start + third.expect("the third page") + 1] += 2;
        let source = Source::from_bytes("file", content.into());
        let failure = check_stored(&source, &Context::new(0, 1, std::env::temp_dir())).expect_err("a wrong row");
        assert!(failure.message.contains("page 2 lies") && failure.message.contains("from row 6000 on"), "{failure}");
    }
}
