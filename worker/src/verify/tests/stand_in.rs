//! What polars-parquet reads and what it does not, and how far parquet-rs may stand in.

use baler_common::model::id::{AttemptId, CompactionId, Epoch, JobId};
use baler_common::model::job::{Assignment, JobSpec, RowMode};
use baler_common::model::options::WriteOptions;
use parquet::basic::{Compression, Encoding};
use parquet::data_type::{FixedLenByteArray, FixedLenByteArrayType};

use super::raw::{RawPage, raw_file};
use super::*;
use crate::attempt::run_attempt;
use crate::verify::crc::crc32;

const SCHEMA: &str = "message s { required int32 a; }";

fn ints(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// An LZ4 file of one block that is not compressed.
fn lz4_file(content: &[u8]) -> Vec<u8> {
    let mut file = vec![0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82];
    file.extend((content.len() as u32 | 1 << 31).to_le_bytes());
    file.extend(content);
    file.extend([0; 4]);
    file
}

/// A gzip member of one block that is not compressed.
fn gzip_member(content: &[u8]) -> Vec<u8> {
    let mut member = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff, 1];
    let length = content.len() as u16;
    member.extend(length.to_le_bytes());
    member.extend((!length).to_le_bytes());
    member.extend(content);
    member.extend(crc32(content).to_le_bytes());
    member.extend((content.len() as u32).to_le_bytes());
    member
}

fn page(slots: i64, full_bytes: usize, stored: Vec<u8>) -> RawPage {
    RawPage { slots, full_bytes, crc: None, stored, levels: 3 }
}

#[test]
fn pages_that_only_parquet_rs_reads_are_read_by_it_and_the_receipt_says_so() {
    let values: Vec<i32> = (0..1000).collect();
    let bytes = ints(&values);
    let plain = stored(raw_file(SCHEMA, Compression::UNCOMPRESSED, 1000, &[RawPage::plain(1000, bytes.clone())]));
    let plain = plain.expect("a readable file");
    assert_eq!(plain.verified_by, "polars-parquet 0.55.2");
    let (early, late) = bytes.split_at(1200);
    let two_members = [gzip_member(early), gzip_member(late)].concat();
    for (codec, content) in [(Compression::LZ4, lz4_file(&bytes)), (Compression::GZIP(Default::default()), two_members)]
    {
        let found = stored(raw_file(SCHEMA, codec, 1000, &[page(1000, bytes.len(), content)])).expect("readable");
        assert_eq!(found.fingerprint, plain.fingerprint, "{codec}");
        assert_eq!(found.verified_by, "polars-parquet 0.55.2; a: parquet-rs 60.1.0 (shared: page reader)", "{codec}");
    }
}

#[test]
fn a_stand_in_reads_lists_texts_and_the_levels_beside_a_missing_column() {
    // Rows [7, null], [], null: repetition levels 0 1 0 0, definition levels 3 2 1 0, one value.
    let lists = [vec![2, 0, 0, 0, 3, 0x02], vec![3, 0, 0, 0, 3, 0x1b, 0], ints(&[7])].concat();
    let texts = [3u32.to_le_bytes().to_vec(), b"abc".to_vec(), vec![0; 4]].concat();
    let list = "message s { optional group l (LIST) { repeated group list { optional int32 element; } } }";
    for (schema, content, rows, slots) in [
        (list, lists, 3, 4),
        ("message s { required binary a (STRING); }", texts, 2, 2),
        ("message s { required double a; }", (-0.0f64).to_le_bytes().repeat(2), 2, 2),
        ("message s { required int96 a; }", (0..24).collect(), 2, 2),
        ("message s { required fixed_len_byte_array(2) a (FLOAT16); }", vec![0, 0x80, 1, 0x7e], 2, 2),
        ("message s { required boolean a; }", vec![0b01], 2, 2),
    ] {
        let plain = raw_file(schema, Compression::UNCOMPRESSED, rows, &[RawPage::plain(slots, content.clone())]);
        let early = raw_file(schema, Compression::LZ4, rows, &[page(slots, content.len(), lz4_file(&content))]);
        let found = stored(early).expect(schema);
        assert_eq!(found.fingerprint, fingerprint(plain), "{schema}");
        assert!(found.verified_by.contains("parquet-rs"), "{schema}");
    }
    // A nullable group of which the input lacks a field: its nulls are told by the field that is there.
    let group = "message s { optional group g { required int32 a; } }";
    let output = "message s { optional group g { required int32 a; optional int32 b; } }";
    let content = [vec![2, 0, 0, 0, 3, 0b101], ints(&[1, 3])].concat();
    let input = raw_file(group, Compression::LZ4, 3, &[page(3, content.len(), lz4_file(&content))]);
    let levels: &[i16] = &[1, 0, 1];
    let whole = file(output, &[&[(Column::Int(&[1, 3]), Some(levels), None), (Column::Int(&[]), Some(levels), None)]]);
    let map = ColumnMap::Leaves(vec![Some(0), None]);
    assert_eq!(checked(&whole, &[(input, 3, map)], None), Ok(fingerprint(whole)));
}

#[test]
fn the_receipt_of_a_job_names_the_stand_in() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| {
        let path = folder.path().join(name);
        Store::open(name, path.to_str().expect("UTF-8"), true).expect("opened")
    };
    let (source, target) = (at("source"), at("target"));
    let bytes = ints(&(0..1000).collect::<Vec<i32>>());
    let content = raw_file(SCHEMA, Compression::LZ4, 1000, &[page(1000, bytes.len(), lz4_file(&bytes))]);
    source.put("0.parquet", &content).expect("put");
    let info = source.head("0.parquet").expect("an answer").expect("it exists");
    let object = ObjectRef::new("source", "0.parquet");
    let (bytes, identity, columns) = (info.bytes, info.identity, ColumnMap::Same);
    let input = InputFile { object, bytes, rows: 1000, identity, first_chunk: 0, last_chunk: 0, columns };
    let spec = JobSpec {
        job: JobId(0),
        table: "t".to_owned(),
        key: "all".to_owned(),
        mode: RowMode::Copy,
        inputs: vec![input],
        output_path: "chunks-0000-0000.parquet".to_owned(),
        staging: ObjectRef::new("target", "staging"),
        schema: file(SCHEMA, &[]),
        options: WriteOptions::default(),
        memory_millibytes_per_row: 4_000,
        target_bytes: 1 << 30,
        key_values: Vec::new(),
    };
    let assignment =
        Assignment { compaction: CompactionId("test".to_owned()), epoch: Epoch(1), attempt: AttemptId([0; 8]), spec };
    let stores = Arc::new(Stores::new([source, target]));
    let receipt = run_attempt(&stores, &assignment, &context(2)).expect("a receipt");
    assert_eq!(receipt.expected, receipt.stored);
    assert_eq!(
        receipt.verified_by,
        "polars-parquet 0.55.2; a: parquet-rs 60.1.0 (shared: page reader); polars-parquet 0.55.2"
    );
}

#[test]
fn a_stand_in_takes_over_in_the_middle_of_a_row_group() {
    let values: Vec<i32> = (0..20_000).collect();
    let (early, late) = (ints(&values[..15_000]), ints(&values[15_000..]));
    let (gzip, third) = (Compression::GZIP(Default::default()), late.len() / 3);
    let members = [gzip_member(&late[..third]), gzip_member(&late[third..])].concat();
    let pages = [page(15_000, early.len(), gzip_member(&early)), page(5_000, late.len(), members)];
    let source = Source::from_bytes("file", raw_file(SCHEMA, gzip, 20_000, &pages).into());
    let found = check_stored(&source, &Context::new(0, 1, std::env::temp_dir())).expect("readable in windows");
    let whole = ints(&values);
    let plain = raw_file(SCHEMA, Compression::UNCOMPRESSED, 20_000, &[RawPage::plain(20_000, whole)]);
    assert_eq!(found.fingerprint, fingerprint(plain));
    assert!(found.verified_by.contains("; a: parquet-rs"), "{}", found.verified_by);
}

#[test]
fn damage_stays_an_error_whatever_the_codec() {
    let bytes = ints(&[1, 2, 3, 4]);
    let gzip = Compression::GZIP(Default::default());
    let refused = |codec, content: Vec<u8>, slots: i64| {
        let rows = slots as u64;
        stored(raw_file(SCHEMA, codec, rows, &[page(slots, bytes.len(), content)])).expect_err("damaged")
    };
    // One member that is damaged: nothing about it is unsupported, so nothing stands in.
    let mut damaged = gzip_member(&bytes);
    damaged[12] ^= 0xff;
    assert_eq!(refused(gzip, damaged, 4).class, FailureClass::InputCorrupt);
    // Two members of which the second does not match its checksum: both decoders have their say.
    let mut damaged = [gzip_member(&bytes[..8]), gzip_member(&bytes[8..])].concat();
    let at = damaged.len() - 10;
    damaged[at] ^= 1;
    let failure = refused(gzip, damaged, 4);
    assert_eq!((failure.class, failure.column.as_str()), (FailureClass::InputCorrupt, "a"));
    assert!(failure.message.starts_with("a page of several gzip members: "), "{failure}");
    assert!(failure.message.contains("; and parquet-rs 60.1.0 (shared: page reader) says: "), "{failure}");
    // What neither reads.
    let failure = refused(Compression::LZO, bytes.clone(), 4);
    assert!(failure.message.starts_with("Not yet supported: ") && failure.message.contains("; and "), "{failure}");
    // More values than there are.
    let failure = refused(Compression::LZ4, lz4_file(&bytes), 5);
    assert!(failure.message.contains("; and parquet-rs"), "{failure}");
}

#[test]
fn bit_packed_levels_are_refused_since_parquet_rs_reads_them_from_the_wrong_end() {
    // Present, null, present: the first level is the highest bit.
    let content = [vec![0b1010_0000], ints(&[7, 8])].concat();
    let pages = [RawPage { levels: 4, ..RawPage::plain(3, content) }];
    let file = raw_file("message s { optional int32 a; }", Compression::UNCOMPRESSED, 3, &pages);
    let failure = stored(file).expect_err("bit-packed levels");
    assert_eq!(failure.class, FailureClass::Unsupported);
    assert_eq!(failure.message, "its levels are in the bit-packed encoding that was given up in 2013");
}

/// Shapes that polars-parquet's arrays do not have. Its pages and levels do, so no decoder stands in.
#[test]
fn shapes_without_an_array_need_no_stand_in() {
    let fixed = |schema: &str, encoding: Encoding, width: usize, definitions: Option<&[i16]>| {
        let schema = Arc::new(parse_message_type(schema).expect("a schema"));
        let properties = WriterProperties::builder().set_dictionary_enabled(false).set_encoding(encoding).build();
        let mut content = Vec::new();
        let mut writer = SerializedFileWriter::new(&mut content, schema, Arc::new(properties)).expect("a writer");
        let mut group = writer.next_row_group().expect("a row group");
        let mut column = group.next_column().expect("an answer").expect("a column");
        let values: Vec<FixedLenByteArray> = [1u8, 0xff].iter().map(|byte| vec![*byte; width].into()).collect();
        column.typed::<FixedLenByteArrayType>().write_batch(&values, definitions, None).expect("written");
        column.close().expect("closed");
        group.close().expect("closed");
        writer.close().expect("closed");
        content
    };
    let interval = "message s { optional fixed_len_byte_array(12) a (INTERVAL); }";
    let decimal = "message s { required fixed_len_byte_array(9) a (DECIMAL(20,2)); }";
    let map = "message s { optional group m (MAP) { repeated group key_value { optional int32 key; optional int32 value; } } }";
    let key: Slots<'_> = (Column::Int(&[1]), Some(&[0, 1, 2, 3]), Some(&[0, 0, 0, 1]));
    let value: Slots<'_> = (Column::Int(&[5]), Some(&[0, 1, 3, 2]), Some(&[0, 0, 0, 1]));
    for (content, what) in [
        (fixed(interval, Encoding::PLAIN, 12, Some(&[1, 0, 1])), "an interval"),
        (fixed(decimal, Encoding::BYTE_STREAM_SPLIT, 9, None), "fixed binary in byte streams"),
        (fixed(decimal, Encoding::DELTA_BYTE_ARRAY, 9, None), "fixed binary as deltas"),
        (file(map, &[&[key, value]]), "a map with an optional key"),
    ] {
        assert_eq!(stored(content).expect(what).verified_by, DECODER, "{what}");
    }
    // Text that is not UTF-8 is read; as an input it is refused by name.
    let content = [3u32.to_le_bytes().to_vec(), vec![b'a', 0xff, b'b']].concat();
    let text = "message s { required binary a (STRING); }";
    let content = raw_file(text, Compression::UNCOMPRESSED, 1, &[RawPage::plain(1, content)]);
    assert_eq!(stored(content.clone()).expect("bytes").verified_by, DECODER);
    let failure = checked(&content, &[(content.clone(), 1, ColumnMap::Same)], None).expect_err("not text");
    assert!(failure.message.contains("not UTF-8"), "{failure}");
    // Hadoop's framing of LZ4: sizes in big-endian, then a block. This one holds four literal bytes.
    let framed = [vec![0, 0, 0, 4, 0, 0, 0, 5, 0x40], ints(&[7])].concat();
    let file = raw_file(SCHEMA, Compression::LZ4, 1, &[page(1, 4, framed)]);
    assert_eq!(stored(file).expect("Hadoop's framing").verified_by, DECODER);
}
