//! Carried chunks against what a column writer makes of the same slots.

use std::sync::Arc;

use baler_common::model::options::{ContentDefinedChunking, WriteOptions};
use baler_common::runtime::storage::Source;
use bytes::Bytes;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::reader::get_typed_column_reader;
use parquet::column::writer::ColumnWriterImpl;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, FixedLenByteArray, FixedLenByteArrayType};
use parquet::data_type::{Int32Type, Int64Type, Int96, Int96Type};
use parquet::file::metadata::{ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnDescPtr, SchemaDescriptor};

use super::{Part, carry, is_carriable, is_open_to};

/// Levels and values of a stretch of rows.
#[derive(Debug, Clone, PartialEq)]
struct Slots<V> {
    definitions: Vec<i16>,
    repetitions: Vec<i16>,
    values: Vec<V>,
    rows: usize,
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Random rows of a column with these levels: at most one repeated node.
fn rows<V>(
    random: &mut Random,
    column: &ColumnDescPtr,
    rows: usize,
    value: &mut dyn FnMut(&mut Random) -> V,
) -> Slots<V> {
    let (max, repeats) = (column.max_def_level(), column.max_rep_level() > 0);
    let mut slots = Slots { definitions: vec![], repetitions: vec![], values: vec![], rows };
    let nulls = [0, 3, 100][random.below(3) as usize];
    for _ in 0..rows {
        let length = if repeats { 1 + random.below(5) } else { 1 };
        for place in 0..length {
            // A list that goes on has elements, so only its last levels vary.
            let lowest = if length > 1 { max - 1 } else { 0 };
            let definition =
                if random.below(100) < nulls { lowest + random.below((max - lowest + 1) as u64) as i16 } else { max };
            slots.definitions.push(definition);
            slots.repetitions.push((place > 0) as i16);
            if definition == max {
                slots.values.push(value(random));
            }
        }
    }
    slots
}

fn schema(text: &str) -> SchemaDescriptor {
    SchemaDescriptor::new(Arc::new(parse_message_type(text).unwrap()))
}

fn file<T: DataType>(schema: &SchemaDescriptor, slots: &Slots<T::T>, properties: WriterProperties) -> Bytes {
    let mut out = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut out, schema.root_schema_ptr(), Arc::new(properties)).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let typed: &mut ColumnWriterImpl<'_, T> = column.typed::<T>();
    typed.write_batch(&slots.values, Some(&slots.definitions), Some(&slots.repetitions)).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    out.into()
}

fn metadata(file: &Bytes) -> ParquetMetaData {
    ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Required).parse_and_finish(file).unwrap()
}

fn read<T: DataType>(file: &Bytes, like: &Slots<T::T>) -> Slots<T::T> {
    let reader = SerializedFileReader::new(file.clone()).unwrap();
    let group = reader.get_row_group(0).unwrap();
    let mut column = get_typed_column_reader::<T>(group.get_column_reader(0).unwrap());
    let (mut definitions, mut repetitions, mut values) = (vec![], vec![], vec![]);
    let (rows, ..) =
        column.read_records(usize::MAX >> 1, Some(&mut definitions), Some(&mut repetitions), &mut values).unwrap();
    // A column without such levels has none to give.
    if definitions.is_empty() {
        definitions = like.definitions.clone();
    }
    if repetitions.is_empty() {
        repetitions = like.repetitions.clone();
    }
    Slots { definitions, repetitions, values, rows }
}

/// Carries random files and compares what comes out with what a column writer makes; gives how many were carried.
fn compare<T: DataType>(text: &str, seed: u64, mut value: impl FnMut(&mut Random) -> T::T) -> usize
where
    T::T: Clone + PartialEq + std::fmt::Debug,
{
    let schema = schema(text);
    let column = schema.column(0);
    let mut random = Random(seed);
    let mut carried = 0;
    for case in 0..24 {
        let chunking = ContentDefinedChunking { min_bytes: 2 << 10, max_bytes: 16 << 10, norm_level: 0 };
        let options = WriteOptions {
            dictionary_bytes: [1 << 10, 1 << 20][case % 2],
            chunking: (case % 3 > 0).then_some(chunking),
            page_bytes: 8 << 10,
            statistics_truncate_bytes: [None, Some(8)][case / 2 % 2],
            ..WriteOptions::default()
        };
        assert!(is_open_to(&column, 0, &options));
        let codec = [Compression::ZSTD(ZstdLevel::default()), Compression::SNAPPY, Compression::UNCOMPRESSED][case % 3];
        let mut all = Slots { definitions: vec![], repetitions: vec![], values: vec![], rows: 0 };
        let mut parts = Vec::new();
        for _ in 0..1 + random.below(5) {
            let count = [1, 700, 6000][random.below(3) as usize];
            let slots = rows(&mut random, &column, count, &mut value);
            let properties = WriterProperties::builder()
                .set_compression(codec)
                .set_writer_version([WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0][random.below(2) as usize])
                .set_encoding(Encoding::PLAIN)
                .set_dictionary_page_size_limit([4 << 10, 1 << 20][random.below(2) as usize])
                .set_data_page_row_count_limit([300, 20_000][random.below(2) as usize])
                .build();
            let file = file::<T>(&schema, &slots, properties);
            let chunk = metadata(&file).row_group(0).column(0).clone();
            assert!(is_carriable(&chunk));
            parts.push(Part { source: Arc::new(Source::from_bytes("input", file)), chunk, rows: slots.rows as u64 });
            all.definitions.extend(&slots.definitions);
            all.repetitions.extend(&slots.repetitions);
            all.values.extend(slots.values);
            all.rows += slots.rows;
        }
        let Some(found) = carry(&column, &options, &parts) else { continue };
        carried += 1;
        let mut out = Vec::new();
        let properties = Arc::new(WriterProperties::builder().build());
        let mut writer = SerializedFileWriter::new(&mut out, schema.root_schema_ptr(), properties).unwrap();
        let mut group = writer.next_row_group().unwrap();
        group.append_column(&found.pages, found.close).unwrap();
        group.close().unwrap();
        writer.close().unwrap();
        let out = Bytes::from(out);
        assert_eq!(read::<T>(&out, &all), all, "case {case}");

        let plain = WriterProperties::builder()
            .set_statistics_truncate_length(options.statistics_truncate_bytes.map(|bytes| bytes as usize))
            .set_statistics_enabled(EnabledStatistics::Page)
            .build();
        let wanted = metadata(&file::<T>(&schema, &all, plain));
        let made = metadata(&out);
        let (wanted, made_chunk) = (wanted.row_group(0).column(0).clone(), made.row_group(0).column(0));
        let nulls = |chunk: &ColumnChunkMetaData| chunk.statistics().unwrap().null_count_opt();
        assert_eq!(nulls(made_chunk), nulls(&wanted), "case {case}");
        // No order is defined for INT96, so no bounds are written.
        if column.physical_type() != parquet::basic::Type::INT96 {
            assert_eq!(made_chunk.statistics(), wanted.statistics(), "case {case}");
        }
        assert_eq!(made_chunk.num_values(), wanted.num_values());
        assert_eq!(made_chunk.definition_level_histogram(), wanted.definition_level_histogram());
        assert_eq!(made_chunk.repetition_level_histogram(), wanted.repetition_level_histogram());
        assert_eq!(made_chunk.unencoded_byte_array_data_bytes(), wanted.unencoded_byte_array_data_bytes());
        let index = made.page_index().unwrap().offset_index(0, 0).unwrap();
        let size: i64 = index.page_locations().iter().map(|page| i64::from(page.compressed_page_size)).sum();
        assert_eq!(size, made_chunk.compressed_size() - (made_chunk.data_page_offset() - 4));
        assert!(index.page_locations().windows(2).all(|pair| pair[0].first_row_index < pair[1].first_row_index));
    }
    carried
}

const LIST: &str = "message m { optional group a (LIST) { repeated group list { optional TYPE element; } } }";

fn nested(of: &str) -> String {
    LIST.replace("TYPE", of)
}

#[test]
fn numbers_texts_and_fixed_bytes_are_carried() {
    let small = |random: &mut Random| random.below(500) as i32 - 250;
    assert!(compare::<Int32Type>("message m { required int32 a; }", 1, small) > 20);
    assert!(compare::<Int32Type>("message m { optional int32 a (UINT_32); }", 2, small) > 20);
    assert!(compare::<Int32Type>(&nested("int32"), 3, small) > 20);
    let wide = |random: &mut Random| random.below(1 << 31) as i64 * 77 - (1 << 36);
    assert!(compare::<Int64Type>("message m { optional int64 a; }", 4, wide) > 12);
    let text = |random: &mut Random| ByteArray::from(format!("text {}", random.below(3000)).as_str());
    assert!(compare::<ByteArrayType>("message m { optional binary a (UTF8); }", 5, text) > 20);
    assert!(compare::<ByteArrayType>(&nested("binary"), 6, text) > 12);
    let long = |random: &mut Random| ByteArray::from("é".repeat(random.below(200) as usize).as_str());
    assert!(compare::<ByteArrayType>("message m { required binary a (UTF8); }", 7, long) > 12);
    let fixed = |random: &mut Random| FixedLenByteArray::from(random.below(900).to_be_bytes()[3..].to_vec());
    assert!(compare::<FixedLenByteArrayType>("message m { optional fixed_len_byte_array(5) a; }", 8, fixed) > 12);
    let decimal = "message m { optional fixed_len_byte_array(5) a (DECIMAL(10, 2)); }";
    let signed =
        |random: &mut Random| FixedLenByteArray::from((random.below(900) as i64 - 450).to_be_bytes()[3..].to_vec());
    assert!(compare::<FixedLenByteArrayType>(decimal, 9, signed) > 12);
}

#[test]
fn nan_zeros_and_types_without_order_are_carried() {
    let float = |random: &mut Random| match random.below(5) {
        0 => f64::NAN,
        1 => -0.0,
        2 => 0.0,
        _ => random.below(90) as f64 - 45.0,
    };
    let schema = schema("message m { optional double a; }");
    let column = schema.column(0);
    let slots = rows(&mut Random(5), &column, 900, &mut { float });
    let file = file::<DoubleType>(&schema, &slots, WriterProperties::builder().build());
    let chunk = metadata(&file).row_group(0).column(0).clone();
    let part = Part { source: Arc::new(Source::from_bytes("input", file)), chunk, rows: 900 };
    let found = carry(&column, &WriteOptions::default(), &[part]).unwrap();
    let statistics = found.close.metadata.statistics().unwrap();
    assert_eq!(statistics.min_bytes_opt().unwrap(), (-45.0f64).to_le_bytes());
    assert_eq!(statistics.max_bytes_opt().unwrap(), 44.0f64.to_le_bytes());
    let nans = slots.values.iter().filter(|value| value.is_nan()).count() as u64;
    assert_eq!(statistics.nan_count_opt(), Some(nans));
    let int96 = |random: &mut Random| {
        let mut value = Int96::new();
        value.set_data(random.below(9) as u32, 1, 2);
        value
    };
    assert!(compare::<Int96Type>("message m { optional int96 a; }", 11, int96) > 12);
}

#[test]
fn damaged_chunks_are_left_to_the_lane() {
    let schema = schema("message m { optional binary a (UTF8); }");
    let column = schema.column(0);
    let mut value = |random: &mut Random| ByteArray::from(format!("text {}", random.below(3000)).as_str());
    let slots = rows(&mut Random(9), &column, 4000, &mut value);
    let properties = WriterProperties::builder().set_data_page_row_count_limit(300).build();
    let file = file::<ByteArrayType>(&schema, &slots, properties);
    let chunk = metadata(&file).row_group(0).column(0).clone();
    let (start, length) = chunk.byte_range();
    let mut same = 0;
    for flipped in (start..start + length).step_by(7) {
        let mut bytes = file.to_vec();
        bytes[flipped as usize] ^= 1 << (flipped % 8);
        let source = Arc::new(Source::from_bytes("input", bytes.into()));
        // Uncompressed values may be changed unseen here; the check sees it. Nothing may panic.
        same += usize::from(
            carry(&column, &WriteOptions::default(), &[Part { source, chunk: chunk.clone(), rows: 4000 }]).is_none(),
        );
    }
    assert!(same > 0);
    let source = Arc::new(Source::from_bytes("input", file));
    assert!(carry(&column, &WriteOptions::default(), &[Part { source, chunk, rows: 4001 }]).is_none());
}
