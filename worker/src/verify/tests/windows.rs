//! Row groups larger than the memory they are checked in.

use parquet::basic::Compression;
use parquet::file::properties::WriterVersion;

use super::raw::{RawPage, raw_file};
use super::*;

const SCHEMA: &str = "message s {
    required int64 id;
    optional double d;
    optional binary t (STRING);
    optional group l (LIST) { repeated group list { optional int32 element; } } }";

/// One row group of `rows` rows, in small pages.
pub(super) fn big(rows: usize, version: WriterVersion) -> Vec<u8> {
    let numbers: Vec<i64> = (0..rows as i64).map(|row| row.wrapping_mul(0x9E37_79B9_7F4A_7C15u64 as i64)).collect();
    let present: Vec<i16> = (0..rows).map(|row| i16::from(row % 7 != 3)).collect();
    let doubles: Vec<f64> = (0..rows).filter(|row| row % 7 != 3).map(|row| row as f64 / 3.0).collect();
    let words = ["", "a", "bc", "a longer word that is seen again"];
    let texts: Vec<ByteArray> =
        (0..rows).filter(|row| row % 7 != 3).map(|row| ByteArray::from(words[row % 4])).collect();
    let (mut definitions, mut repetitions, mut elements) = (Vec::new(), Vec::new(), Vec::new());
    for row in 0..rows {
        match row % 5 {
            0 => definitions.push(0),
            1 => definitions.push(1),
            count => {
                for element in 0..count * 3 {
                    definitions.push(if element == 1 { 2 } else { 3 });
                    if element != 1 {
                        elements.push((row + element) as i32);
                    }
                }
                repetitions.push(0);
                repetitions.resize(definitions.len(), 1);
                continue;
            }
        }
        repetitions.push(0);
    }
    let schema = Arc::new(parse_message_type(SCHEMA).expect("a schema"));
    let properties = WriterProperties::builder()
        .set_writer_version(version)
        .set_compression(Compression::SNAPPY)
        .set_data_page_row_count_limit(3_000)
        .set_write_batch_size(500)
        .set_column_dictionary_enabled("id".into(), false)
        .build();
    let mut content = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut content, schema, Arc::new(properties)).expect("a writer");
    let mut group = writer.next_row_group().expect("a row group");
    let mut column = group.next_column().expect("an answer").expect("a column");
    column.typed::<Int64Type>().write_batch(&numbers, None, None).expect("written");
    column.close().expect("closed");
    let mut column = group.next_column().expect("an answer").expect("a column");
    column.typed::<DoubleType>().write_batch(&doubles, Some(&present), None).expect("written");
    column.close().expect("closed");
    let mut column = group.next_column().expect("an answer").expect("a column");
    column.typed::<ByteArrayType>().write_batch(&texts, Some(&present), None).expect("written");
    column.close().expect("closed");
    let mut column = group.next_column().expect("an answer").expect("a column");
    column.typed::<Int32Type>().write_batch(&elements, Some(&definitions), Some(&repetitions)).expect("written");
    column.close().expect("closed");
    group.close().expect("closed");
    writer.close().expect("closed");
    content
}

#[test]
fn a_row_group_in_windows_has_the_fingerprint_of_the_whole() {
    // 4,096 rows a window where there is no memory; the last window of 40,960 is a full one, of 700,001 a single row.
    for (rows, version) in [
        (1, WriterVersion::PARQUET_1_0),
        (4_096, WriterVersion::PARQUET_2_0),
        (4_097, WriterVersion::PARQUET_1_0),
        (40_960, WriterVersion::PARQUET_1_0),
        (40_961, WriterVersion::PARQUET_2_0),
        (700_001, WriterVersion::PARQUET_1_0),
    ] {
        let source = Source::from_bytes("file", big(rows, version).into());
        let whole = check_stored(&source, &Context::new(8 << 30, 1, std::env::temp_dir())).expect("readable");
        let windows = check_stored(&source, &Context::new(0, 1, std::env::temp_dir())).expect("readable in windows");
        assert_eq!(whole.fingerprint.rows, rows as u64);
        assert_eq!(whole, windows, "{rows} rows");
    }
}

#[test]
fn a_flipped_bit_is_found_in_windows_as_in_the_whole() {
    let whole = big(9_000, WriterVersion::PARQUET_1_0);
    let before = fingerprint(whole.clone());
    let footer = u32::from_le_bytes(whole[whole.len() - 8..whole.len() - 4].try_into().expect("four bytes")) as usize;
    let pages = 4..whole.len() - 8 - footer;
    let (mut refused, mut differ) = (0, 0);
    for at in pages.step_by(1_009) {
        let mut content = whole.clone();
        content[at] ^= 1 << (at % 8);
        let source = Source::from_bytes("file", content.into());
        let [whole, windows] =
            [8 << 30, 0].map(|memory| check_stored(&source, &Context::new(memory, 1, std::env::temp_dir())));
        match (whole, windows) {
            (Ok(whole), Ok(windows)) => {
                assert_eq!(whole, windows, "byte {at}");
                differ += usize::from(whole.fingerprint != before);
            }
            (Err(whole), Err(windows)) => {
                assert_eq!(whole.column, windows.column, "byte {at}: {whole}, {windows}");
                refused += 1;
            }
            (whole, windows) => panic!("byte {at}: {whole:?}, {windows:?}"),
        }
    }
    assert!(refused > 20 && differ + refused > 50, "{refused} refused, {differ} differ");
}

#[test]
fn a_footer_whose_rows_are_not_those_of_its_row_groups_is_refused() {
    let sound = raw_file(
        "message s { required int32 a; }",
        Compression::UNCOMPRESSED,
        100,
        &[RawPage::plain(100, vec![7; 400])],
    );
    // Field 3 of the footer, 100 rows, before the list of row groups.
    let at = sound.windows(5).rposition(|bytes| bytes == [0x16, 0xc8, 0x01, 0x19, 0x1c]).expect("the rows");
    let mut content = sound;
    content[at + 1] += 2;
    let failure = stored(content).expect_err("101 rows");
    assert_eq!(failure.message, "its footer has 101 rows, its row groups have others");
}

#[test]
fn a_row_group_that_claims_other_rows_than_it_has_is_refused_in_windows_too() {
    let page = || RawPage::plain(10_000, vec![0; 40_000]);
    for rows in [9_999, 10_001, 12_288, 12_289, u64::MAX >> 1] {
        let content = raw_file("message s { required int32 a; }", Compression::UNCOMPRESSED, rows, &[page()]);
        let source = Source::from_bytes("file", content.into());
        let failure = check_stored(&source, &Context::new(0, 1, std::env::temp_dir())).expect_err("a lie");
        assert_eq!((failure.class, failure.column.as_str()), (FailureClass::InputCorrupt, "a"), "{rows}: {failure}");
    }
}

#[test]
fn a_page_that_does_not_fit_the_memory_is_refused_before_it_is_read() {
    // 2^27 nulls in a run: ten bytes that would take half a GiB of levels.
    let slots = 1i64 << 27;
    let run = [6u32.to_le_bytes().to_vec(), vec![0x80, 0x80, 0x80, 0x80, 0x01, 0]].concat();
    let file = raw_file(
        "message s { optional int32 a; }",
        Compression::UNCOMPRESSED,
        slots as u64,
        &[RawPage::plain(slots, run)],
    );
    let source = Source::from_bytes("file", file.into());
    let failure = check_stored(&source, &Context::new(256 << 20, 1, std::env::temp_dir())).expect_err("too large");
    assert_eq!((failure.class, failure.column.as_str()), (FailureClass::Policy, "a"));
    assert!(failure.message.contains("134217728 values take 536872212 bytes to check, more than"), "{failure}");
}

#[test]
fn a_page_that_does_not_match_its_checksum_is_refused_by_place() {
    let bytes = |seed: u8| (0..400u32).map(|at| seed.wrapping_add(at as u8)).collect::<Vec<u8>>();
    let make = |crc: bool| {
        let mut pages = [RawPage::plain(100, bytes(1)), RawPage::plain(100, bytes(2))];
        for page in &mut pages {
            page.crc = page.crc.filter(|_| crc);
        }
        raw_file("message s { required int32 a; }", Compression::UNCOMPRESSED, 200, &pages)
    };
    let flip = |mut content: Vec<u8>| {
        let second = content.windows(400).position(|window| window == bytes(2)).expect("the second page");
        content[second + 123] ^= 1 << 5;
        (content, second)
    };
    let whole = fingerprint(make(true));
    assert_eq!(whole, fingerprint(make(false)));
    let (content, second) = flip(make(true));
    let failure = stored(content).expect_err("a flipped bit");
    assert_eq!(
        (failure.class, failure.file.as_str(), failure.column.as_str()),
        (FailureClass::InputCorrupt, "file", "a")
    );
    assert!(failure.message.contains("has the checksum"), "{failure}");
    let at: usize = failure.message.split(' ').find_map(|word| word.parse().ok()).expect("a place");
    assert!((second - 30..second).contains(&at), "{failure}: the header lies before byte {second}");
    // Without a checksum it is the fingerprint that differs.
    let (content, _) = flip(make(false));
    assert_ne!(fingerprint(content), whole);
}
