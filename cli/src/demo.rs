//! `demo-data`: two small tables to try things on, the same bytes every time.
//!
//! `articles` has a key per language and group files by chunk number, with a nested column; `pageviews` is
//! partitioned by day. Dozens of small snappy files without a page index: what a compaction is for.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use baler_common::model::error::{Failure, FailureClass};
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::TypePtr;

const LANGUAGES: [(&str, u64); 5] = [("de", 14), ("en", 24), ("fr", 12), ("ja", 8), ("sv", 3)];
const DAYS: u64 = 6;
const ARTICLE_ROWS: u64 = 600;
const VIEW_ROWS: u64 = 400;

const ARTICLES: &str = "message article {
  required int64 id;
  required binary title (STRING);
  optional int64 edited (TIMESTAMP(MICROS, true));
  optional double quality;
  optional group links (LIST) {
    repeated group list { optional binary element (STRING); }
  }
}";
const PAGEVIEWS: &str = "message view {
  required binary page (STRING);
  required int32 views;
  required int64 hour (TIMESTAMP(MILLIS, true));
}";

/// Makes the tables in `folder`, which must be empty or absent.
pub fn make(folder: &Path) -> Result<(), Failure> {
    let failed = |error: String| Failure::new(FailureClass::Policy, error).in_file(folder.display().to_string());
    let io = |error: std::io::Error| failed(format!("cannot be made: {error}"));
    std::fs::create_dir_all(folder).map_err(io)?;
    if std::fs::read_dir(folder).map_err(io)?.next().is_some() {
        return Err(failed("the folder is not empty: name another one".to_owned()));
    }
    let (mut files, mut rows) = (0u64, 0u64);
    let mut draw = Draw(0x9E37_79B9_7F4A_7C15);
    let articles = schema(ARTICLES).map_err(|error| failed(error.to_string()))?;
    let mut id = 0;
    for (language, chunks) in LANGUAGES {
        let key = folder.join("articles").join(language);
        std::fs::create_dir_all(&key).map_err(io)?;
        for chunk in 0..chunks {
            let path = key.join(format!("chunks-{chunk:04}.parquet"));
            write(&path, &articles, |group| article_columns(group, &mut draw, &mut id, language))
                .map_err(|error| failed(error.to_string()))?;
            (files, rows) = (files + 1, rows + ARTICLE_ROWS);
        }
    }
    let views = schema(PAGEVIEWS).map_err(|error| failed(error.to_string()))?;
    for day in 0..DAYS {
        let key = folder.join("pageviews").join(format!("day=2026-10-{:02}", day + 1));
        std::fs::create_dir_all(&key).map_err(io)?;
        for hour in (0..24).step_by(3) {
            let path = key.join(format!("part-{hour}.parquet"));
            write(&path, &views, |group| view_columns(group, &mut draw, day, hour))
                .map_err(|error| failed(error.to_string()))?;
            (files, rows) = (files + 1, rows + VIEW_ROWS);
        }
    }
    println!("{}: 2 tables, {files} files, {rows} rows", folder.display());
    Ok(())
}

fn schema(text: &str) -> Result<TypePtr, ParquetError> {
    parse_message_type(text).map(Arc::new)
}

fn write(
    path: &Path,
    schema: &TypePtr,
    columns: impl FnOnce(&mut SerializedRowGroupWriter<'_, File>) -> Result<(), ParquetError>,
) -> Result<(), ParquetError> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_offset_index_disabled(true)
        .set_created_by("baler demo-data".to_owned())
        .build();
    let file = File::create(path)?;
    let mut writer = SerializedFileWriter::new(file, schema.clone(), Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    columns(&mut group)?;
    group.close()?;
    writer.close()?;
    Ok(())
}

/// Writes the next column: values, and levels where it has any.
macro_rules! column {
    ($group:expr, $kind:ty, $values:expr, $definition:expr, $repetition:expr) => {
        let missing = || ParquetError::General("the schema has fewer columns".to_owned());
        let mut column = $group.next_column()?.ok_or_else(missing)?;
        column.typed::<$kind>().write_batch($values, $definition, $repetition)?;
        column.close()?;
    };
}

fn article_columns(
    group: &mut SerializedRowGroupWriter<'_, File>,
    draw: &mut Draw,
    next_id: &mut i64,
    language: &str,
) -> Result<(), ParquetError> {
    let (mut ids, mut titles) = (Vec::new(), Vec::new());
    let (mut edited, mut edited_levels) = (Vec::new(), Vec::new());
    let (mut quality, mut quality_levels) = (Vec::new(), Vec::new());
    let (mut links, mut definition, mut repetition) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ARTICLE_ROWS {
        *next_id += 1;
        ids.push(*next_id);
        titles.push(ByteArray::from(format!("{language}:Article {}", draw.below(50_000)).as_str()));
        let known = draw.below(10) > 0;
        edited_levels.push(i16::from(known));
        if known {
            edited.push(1_790_000_000_000_000 + draw.below(1_000_000_000) as i64 * 1_000);
        }
        let rated = draw.below(4) > 0;
        quality_levels.push(i16::from(rated));
        if rated {
            quality.push(if draw.below(500) == 0 { f64::NAN } else { draw.below(1_000) as f64 / 1_000.0 });
        }
        // No list, an empty list, and lists with and without null elements.
        match draw.below(8) {
            0 => {
                definition.push(0);
                repetition.push(0);
            }
            1 => {
                definition.push(1);
                repetition.push(0);
            }
            length => {
                for place in 0..length {
                    repetition.push(i16::from(place > 0));
                    let present = draw.below(12) > 0;
                    definition.push(if present { 3 } else { 2 });
                    if present {
                        links.push(ByteArray::from(format!("Article {}", draw.below(50_000)).as_str()));
                    }
                }
            }
        }
    }
    column!(group, Int64Type, &ids, None, None);
    column!(group, ByteArrayType, &titles, None, None);
    column!(group, Int64Type, &edited, Some(&edited_levels), None);
    column!(group, DoubleType, &quality, Some(&quality_levels), None);
    column!(group, ByteArrayType, &links, Some(&definition), Some(&repetition));
    Ok(())
}

fn view_columns(
    group: &mut SerializedRowGroupWriter<'_, File>,
    draw: &mut Draw,
    day: u64,
    hour: u64,
) -> Result<(), ParquetError> {
    let rows = VIEW_ROWS as usize;
    let pages: Vec<ByteArray> =
        (0..rows).map(|_| ByteArray::from(format!("Article {}", draw.below(5_000)).as_str())).collect();
    let views: Vec<i32> = (0..rows).map(|_| draw.below(10_000) as i32).collect();
    let at = 1_790_812_800_000 + ((day * 24 + hour) * 3_600_000) as i64;
    let hours = vec![at; rows];
    column!(group, ByteArrayType, &pages, None, None);
    column!(group, Int32Type, &views, None, None);
    column!(group, Int64Type, &hours, None, None);
    Ok(())
}

/// Numbers that look drawn and are the same every time (xorshift).
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};

    use super::*;

    #[test]
    fn the_tables_are_the_same_bytes_each_time_and_readable() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        make(one.path()).unwrap();
        make(two.path()).unwrap();
        for name in ["articles/de/chunks-0013.parquet", "pageviews/day=2026-10-06/part-21.parquet"] {
            assert_eq!(std::fs::read(one.path().join(name)).unwrap(), std::fs::read(two.path().join(name)).unwrap());
        }
        let file = File::open(one.path().join("articles/sv/chunks-0002.parquet")).unwrap();
        let read = SerializedFileReader::new(file).unwrap();
        assert_eq!(read.get_row_iter(None).unwrap().filter(Result::is_ok).count() as u64, ARTICLE_ROWS);
        assert_eq!(read.metadata().file_metadata().schema_descr().num_columns(), 5);
        assert!(make(one.path()).unwrap_err().message.contains("not empty"));
    }
}
