//! Footers, read with polars-parquet under bounds that are checked before anything is allocated.

use baler_common::model::error::{Failure, FailureClass};
use baler_common::runtime::storage::Source;
use polars_buffer::Buffer;
use polars_parquet::parquet::metadata::FileMetadata;

/// Largest footer that is read, in bytes.
const FOOTER_BYTES_MAX: u64 = 64 << 20;
/// Bytes of the end of a file that are read at once.
const TAIL_BYTES: u64 = 64 << 10;

/// The footer of a file.
pub(super) fn read_footer(source: &Source) -> Result<FileMetadata, Failure> {
    let corrupt = |message: String| Failure::new(FailureClass::InputCorrupt, message).in_file(source.name());
    if source.bytes() < 12 {
        return Err(corrupt(format!("it has {} bytes, a Parquet file has at least 12", source.bytes())));
    }
    let tail_at = source.bytes().saturating_sub(TAIL_BYTES);
    let tail = source.read(tail_at..source.bytes())?;
    let end = &tail[tail.len() - 8..];
    if &end[4..] != b"PAR1" {
        return Err(corrupt(format!("it ends with {:02x?}, not with PAR1: it is not a whole Parquet file", &end[4..])));
    }
    let length = u64::from(u32::from_le_bytes([end[0], end[1], end[2], end[3]]));
    if length == 0 || length > FOOTER_BYTES_MAX || length + 12 > source.bytes() {
        return Err(corrupt(format!("its footer claims {length} bytes of {}", source.bytes())));
    }
    let footer_at = source.bytes() - 8 - length;
    let footer = match footer_at >= tail_at {
        true => tail.slice((footer_at - tail_at) as usize..),
        false => source.read(footer_at..source.bytes())?,
    };
    super::guard::check_footer(&footer).map_err(|error| corrupt(format!("its footer cannot be read: {error}")))?;
    let parse = || polars_parquet::parquet::read::deserialize_metadata(Buffer::from_vec(footer.to_vec()));
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(parse)) {
        Ok(Ok(metadata)) => Ok(metadata),
        Ok(Err(error)) => Err(corrupt(format!("its footer cannot be read: {error}"))),
        Err(_) => Err(corrupt("its footer is broken".to_owned())),
    }
}
