//! The values of one page as hashes: every encoding, decoded here or with polars-parquet, never with what feeds the
//! writer.
//!
//! All lengths come from the page and are checked against it; a value count is believed only as far as there are bytes
//! (or, for constant runs, as far as the page header that bounds it).

use baler_common::model::error::{Failure, FailureClass};
use polars_parquet::parquet::encoding::Encoding;
use polars_parquet::parquet::encoding::hybrid_rle::HybridRleDecoder;
use polars_parquet::parquet::schema::types::PhysicalType;

use super::bounds::Bounds;
use super::dictionary::{Dictionary, Words};
use super::schema::Form;
use crate::fingerprint::hash_bytes;

const OUTSIDE: &str = "a value lies outside the minimum and maximum of its statistics";

/// What is done to values beyond hashing them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Treatment {
    /// Every NaN counts as the same one.
    pub one_nan: bool,
    /// Text that is not UTF-8 is an error.
    pub check_text: bool,
    /// Minimum, maximum and count of nulls of flat columns must hold.
    pub check_statistics: bool,
}

/// Values of a page, one hash each in `hashes`, or places in the chunk's dictionary in `indices`.
#[derive(Debug, Default)]
pub(super) struct PageValues {
    pub hashes: Vec<[u64; 2]>,
    pub indices: Vec<u32>,
    /// Whether `indices` hold the values.
    pub indexed: bool,
}

/// How the values of a leaf are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct ValueReader<'a> {
    pub physical: PhysicalType,
    pub form: Form,
    pub treatment: Treatment,
    /// What every value is held against: the chunk's statistics, and the page's bounds.
    pub bounds: [Option<&'a Bounds>; 2],
}

impl PageValues {
    pub(super) fn len(&self) -> usize {
        if self.indexed { self.indices.len() } else { self.hashes.len() }
    }
}

impl ValueReader<'_> {
    /// Reads a dictionary page.
    pub(super) fn dictionary(&self, data: &[u8], count: usize) -> Result<Dictionary, String> {
        let mut found = Dictionary::default();
        ValueReader { bounds: [None; 2], ..*self }.plain(data, count, &mut found.hashes)?;
        if self.treatment.check_statistics && matches!(self.form, Form::Bytes | Form::Text) {
            found.words = self.words(data, count)?;
        }
        if let Some(bounds) = self.bounds[0] {
            found.outside = found.excluded_by(bounds);
        }
        Ok(found)
    }

    /// The values of a dictionary page, so that they can be held against the bounds of each page.
    fn words(&self, data: &[u8], count: usize) -> Result<Words, String> {
        let mut found = Vec::with_capacity(count.min(data.len()));
        let mut rest = data;
        for _ in 0..count {
            let (value, after) = match self.physical {
                PhysicalType::FixedLenByteArray(width) => {
                    rest.split_at_checked(width).ok_or("its values are cut off")?
                }
                _ => prefixed(rest)?,
            };
            found.push(value);
            rest = after;
        }
        Ok(Words::new(found.into_iter()))
    }

    /// Holds a page's numbers against the statistics; bytes were when they were hashed.
    pub(super) fn check_numbers(&self, values: &PageValues) -> Result<(), String> {
        let excluded = |bounds: &&Bounds| bounds.of_numbers() && bounds.excludes_any(&values.hashes);
        if self.bounds.iter().flatten().any(excluded) { Err(OUTSIDE.into()) } else { Ok(()) }
    }

    /// Reads `count` values of a data page.
    pub(super) fn page(
        &self,
        encoding: Encoding,
        data: &[u8],
        count: usize,
        dictionary: Option<&Dictionary>,
        into: &mut PageValues,
    ) -> Result<(), Failure> {
        if encoding == Encoding::BitPacked || (encoding == Encoding::Rle && self.physical != PhysicalType::Boolean) {
            let message = format!("encoding {encoding:?} of {:?} is not supported", self.physical);
            return Err(Failure::new(FailureClass::Unsupported, message));
        }
        let read = self.known(encoding, data, count, dictionary, into);
        read.map_err(|message| Failure::new(FailureClass::InputCorrupt, message))
    }

    fn known(
        &self,
        encoding: Encoding,
        data: &[u8],
        count: usize,
        dictionary: Option<&Dictionary>,
        into: &mut PageValues,
    ) -> Result<(), String> {
        into.hashes.clear();
        into.indices.clear();
        into.indexed = false;
        match encoding {
            Encoding::Plain => self.plain(data, count, &mut into.hashes)?,
            Encoding::PlainDictionary | Encoding::RleDictionary => {
                into.indexed = true;
                into.indices = indices(data, count)?;
                let dictionary = dictionary.ok_or("it has dictionary pages without a dictionary")?;
                let known = dictionary.hashes.len();
                if into.indices.iter().any(|index| *index as usize >= known) {
                    return Err(format!("it points beyond its dictionary of {known} values"));
                }
                let of_chunk = self.bounds[0].map(|_| &dictionary.outside[..]).unwrap_or_default();
                let of_page = self.bounds[1].map(|bounds| dictionary.excluded_by(bounds)).unwrap_or_default();
                for outside in [of_chunk, &of_page] {
                    if !outside.is_empty() && into.indices.iter().any(|index| outside[*index as usize]) {
                        return Err(OUTSIDE.into());
                    }
                }
            }
            Encoding::Rle if self.physical == PhysicalType::Boolean => {
                let (length, rest) = data.split_first_chunk::<4>().ok_or("its values are cut off")?;
                let length = u32::from_le_bytes(*length) as usize;
                let bits = rest.get(..length).ok_or("its values are cut off")?;
                into.hashes.extend(hybrid(bits, 1, count)?.into_iter().map(|bit| [u64::from(bit); 2]));
            }
            Encoding::DeltaBinaryPacked => {
                let (values, _) = delta_integers(data, count)?;
                let hash = |value: i64| match self.physical {
                    PhysicalType::Int32 => self.fixed32(value as u32),
                    _ => self.fixed64(value as u64),
                };
                into.hashes.extend(values.into_iter().map(hash));
            }
            Encoding::DeltaLengthByteArray => {
                let (lengths, mut rest) = delta_integers(data, count)?;
                for length in lengths {
                    let length = usize::try_from(length).map_err(|_| "a length is negative")?;
                    let (value, after) = rest.split_at_checked(length).ok_or("its values are cut off")?;
                    into.hashes.push(self.bytes(value)?);
                    rest = after;
                }
            }
            Encoding::DeltaByteArray => self.delta_bytes(data, count, &mut into.hashes)?,
            Encoding::ByteStreamSplit => self.split_streams(data, count, &mut into.hashes)?,
            other => return Err(format!("encoding {other:?} is not supported")),
        }
        if into.len() < count {
            return Err(format!("it has {} values, its page header says {count}", into.len()));
        }
        self.check_numbers(into)
    }

    fn plain(&self, data: &[u8], count: usize, into: &mut Vec<[u64; 2]>) -> Result<(), String> {
        let fixed = |width: usize| -> Result<&[u8], String> {
            let wanted = count.checked_mul(width).ok_or("its value count is absurd")?;
            data.get(..wanted)
                .ok_or_else(|| format!("{count} values are claimed, there are {}", data.len() / width.max(1)))
        };
        match self.physical {
            PhysicalType::Boolean => {
                let bytes = data.get(..count.div_ceil(8)).ok_or("its values are cut off")?;
                into.extend((0..count).map(|at| [u64::from(bytes[at / 8] >> (at % 8) & 1); 2]));
            }
            PhysicalType::Int32 | PhysicalType::Float => {
                let (chunks, _) = fixed(4)?.as_chunks::<4>();
                into.extend(chunks.iter().map(|bytes| self.fixed32(u32::from_le_bytes(*bytes))));
            }
            PhysicalType::Int64 | PhysicalType::Double => {
                let (chunks, _) = fixed(8)?.as_chunks::<8>();
                into.extend(chunks.iter().map(|bytes| self.fixed64(u64::from_le_bytes(*bytes))));
            }
            PhysicalType::Int96 => {
                for value in fixed(12)?.chunks_exact(12) {
                    into.push(hash_bytes(value));
                }
            }
            PhysicalType::FixedLenByteArray(0) => {
                for _ in 0..count {
                    into.push(self.bytes(&[])?);
                }
            }
            PhysicalType::FixedLenByteArray(width) => {
                for value in fixed(width)?.chunks_exact(width) {
                    into.push(self.bytes(value)?);
                }
            }
            PhysicalType::ByteArray => {
                // Every value takes four bytes at least.
                into.reserve(count.min(data.len() / 4));
                let mut rest = data;
                for _ in 0..count {
                    let (value, after) = prefixed(rest)?;
                    into.push(self.bytes(value)?);
                    rest = after;
                }
            }
        }
        Ok(())
    }

    fn delta_bytes(&self, data: &[u8], count: usize, into: &mut Vec<[u64; 2]>) -> Result<(), String> {
        let (prefixes, rest) = delta_integers(data, count)?;
        let (suffixes, mut rest) = delta_integers(rest, count)?;
        if prefixes.len() != suffixes.len() {
            return Err("its prefix and suffix lengths differ in number".into());
        }
        let mut value: Vec<u8> = Vec::new();
        for (prefix, suffix) in prefixes.into_iter().zip(suffixes) {
            let prefix =
                usize::try_from(prefix).ok().filter(|prefix| *prefix <= value.len()).ok_or("a prefix is too long")?;
            let suffix = usize::try_from(suffix).map_err(|_| "a length is negative")?;
            let (added, after) = rest.split_at_checked(suffix).ok_or("its values are cut off")?;
            value.truncate(prefix);
            value.extend_from_slice(added);
            rest = after;
            into.push(self.bytes(&value)?);
        }
        Ok(())
    }

    fn split_streams(&self, data: &[u8], count: usize, into: &mut Vec<[u64; 2]>) -> Result<(), String> {
        let width = match self.physical {
            PhysicalType::Int32 | PhysicalType::Float => 4,
            PhysicalType::Int64 | PhysicalType::Double => 8,
            PhysicalType::FixedLenByteArray(width) if width > 0 => width,
            other => return Err(format!("{other:?} cannot be split into byte streams")),
        };
        let held = data.len() / width;
        if held < count {
            return Err(format!("{count} values are claimed, there are {held}"));
        }
        let mut value = vec![0u8; width];
        for at in 0..count {
            for (stream, byte) in value.iter_mut().enumerate() {
                *byte = data[stream * held + at];
            }
            into.push(match self.physical {
                PhysicalType::Int32 | PhysicalType::Float => {
                    self.fixed32(u32::from_le_bytes([value[0], value[1], value[2], value[3]]))
                }
                PhysicalType::Int64 | PhysicalType::Double => {
                    let mut wide = [0; 8];
                    wide.copy_from_slice(&value);
                    self.fixed64(u64::from_le_bytes(wide))
                }
                _ => self.bytes(&value)?,
            });
        }
        Ok(())
    }

    #[inline(always)]
    pub(super) fn fixed32(&self, stored: u32) -> [u64; 2] {
        let hash = match self.form {
            Form::Unsigned32(bits) if bits < 32 => u64::from(stored & ((1 << bits) - 1)),
            Form::Unsigned32(_) => u64::from(stored),
            Form::Float32 if self.treatment.one_nan && f32::from_bits(stored).is_nan() => u64::from(f32::NAN.to_bits()),
            Form::Float32 => u64::from(stored),
            Form::DecimalIntWide => return hash_bytes(&i128::from(stored.cast_signed()).to_le_bytes()),
            _ => i64::from(stored.cast_signed()).cast_unsigned(),
        };
        [hash; 2]
    }

    #[inline(always)]
    pub(super) fn fixed64(&self, stored: u64) -> [u64; 2] {
        let hash = match self.form {
            Form::Float64 if self.treatment.one_nan && f64::from_bits(stored).is_nan() => f64::NAN.to_bits(),
            Form::DecimalIntWide => return hash_bytes(&i128::from(stored.cast_signed()).to_le_bytes()),
            Form::Unsigned32(bits) if bits < 32 => stored & ((1 << bits) - 1),
            _ => stored,
        };
        [hash; 2]
    }

    #[inline(always)]
    pub(super) fn bytes(&self, value: &[u8]) -> Result<[u64; 2], String> {
        if self.bounds.iter().flatten().any(|bounds| bounds.excludes_bytes(value)) {
            return Err(OUTSIDE.into());
        }
        Ok(match self.form {
            Form::Text => {
                if self.treatment.check_text && std::str::from_utf8(value).is_err() {
                    return Err(
                        "a value of this text column is not UTF-8: write it as binary, or mend the source".into()
                    );
                }
                hash_bytes(value)
            }
            Form::Float16 => {
                let (bits, _) = value.split_first_chunk::<2>().ok_or("a float16 has two bytes")?;
                let bits = u16::from_le_bytes(*bits);
                let nan = bits & 0x7c00 == 0x7c00 && bits & 0x3ff != 0;
                [u64::from(if self.treatment.one_nan && nan { 0x7e00 } else { bits }); 2]
            }
            Form::DecimalBytes64 => {
                let wide = decimal::<8>(value)?;
                [u64::from_le_bytes(wide); 2]
            }
            Form::DecimalBytes128 => hash_bytes(&decimal::<16>(value)?),
            Form::DecimalBytes256 => hash_bytes(&decimal::<32>(value)?),
            _ => hash_bytes(value),
        })
    }
}

/// The first value of plain byte arrays, and what follows it.
#[inline(always)]
fn prefixed(data: &[u8]) -> Result<(&[u8], &[u8]), &'static str> {
    let (length, after) = data.split_first_chunk::<4>().ok_or("its values are cut off")?;
    after.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or("its values are cut off")
}

/// A big-endian two's complement number as `N` little-endian bytes.
pub(super) fn decimal<const N: usize>(big_endian: &[u8]) -> Result<[u8; N], String> {
    let negative = big_endian.first().is_some_and(|byte| byte & 0x80 != 0);
    let fill = if negative { 0xff } else { 0 };
    let mut number = [fill; N];
    let cut = big_endian.len().saturating_sub(N);
    let (extra, kept) = big_endian.split_at(cut);
    for (to, from) in number.iter_mut().zip(kept.iter().rev()) {
        *to = *from;
    }
    let sign_kept = number[N - 1] & 0x80 != 0;
    if extra.iter().any(|byte| *byte != fill) || (!big_endian.is_empty() && sign_kept != negative) {
        return Err("a decimal does not fit its precision".into());
    }
    Ok(number)
}

fn indices(data: &[u8], count: usize) -> Result<Vec<u32>, String> {
    let Some((width, packed)) = data.split_first() else {
        return if count == 0 { Ok(Vec::new()) } else { Err("its values are cut off".into()) };
    };
    hybrid(packed, *width, count)
}

/// Decodes run-length and bit-packed values of `width` bits.
pub(super) fn hybrid(data: &[u8], width: u8, count: usize) -> Result<Vec<u32>, String> {
    if width > 32 {
        return Err(format!("a bit width of {width} is not possible"));
    }
    let values = HybridRleDecoder::new(data, u32::from(width), count).collect().map_err(|error| error.to_string())?;
    match values.len() >= count {
        true => Ok(values),
        false => Err(format!("{count} values are claimed, there are {}", values.len())),
    }
}

/// Decodes DELTA_BINARY_PACKED numbers, `count` at most, and returns what follows them.
fn delta_integers(data: &[u8], count: usize) -> Result<(Vec<i64>, &[u8]), String> {
    const CUT: &str = "its delta-encoded values are cut off";
    let mut rest = data;
    let varint = |rest: &mut &[u8]| -> Result<u64, String> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, after) = rest.split_first().ok_or(CUT)?;
            *rest = after;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number of its delta encoding is too long".into())
    };
    let zigzag = |value: u64| (value >> 1).cast_signed() ^ -((value & 1).cast_signed());
    let block = varint(&mut rest)?;
    let miniblocks = varint(&mut rest)?;
    let total = varint(&mut rest)?;
    let first = zigzag(varint(&mut rest)?);
    if block == 0 || miniblocks == 0 || miniblocks > 1 << 16 || block > 1 << 24 || !block.is_multiple_of(miniblocks) {
        return Err(format!("delta blocks of {block} values in {miniblocks} parts are not possible"));
    }
    let per_miniblock = (block / miniblocks) as usize;
    let total = usize::try_from(total).map_err(|_| "its value count is absurd")?;
    if total < count || total > count.saturating_add(per_miniblock * miniblocks as usize) {
        return Err(format!("it claims {total} delta-encoded values, its page header says {count}"));
    }
    let mut values = Vec::with_capacity(total.min(1 << 20));
    if total == 0 {
        return Ok((values, rest));
    }
    let mut value = first;
    values.push(value);
    while values.len() < total {
        let smallest = zigzag(varint(&mut rest)?);
        let (widths, after) = rest.split_at_checked(miniblocks as usize).ok_or(CUT)?;
        rest = after;
        for width in widths {
            if values.len() >= total {
                break;
            }
            let width = u32::from(*width);
            if width > 64 {
                return Err(format!("a bit width of {width} is not possible"));
            }
            let bytes = (per_miniblock * width as usize).div_ceil(8);
            // The last part may be cut off after its last value.
            let wanted = ((total - values.len()).min(per_miniblock) * width as usize).div_ceil(8);
            let packed = rest.get(..bytes.min(rest.len())).filter(|packed| packed.len() >= wanted).ok_or(CUT)?;
            rest = &rest[packed.len()..];
            for at in 0..per_miniblock.min(total - values.len()) {
                let delta = bits(packed, at * width as usize, width).cast_signed();
                value = value.wrapping_add(smallest).wrapping_add(delta);
                values.push(value);
            }
        }
    }
    Ok((values, rest))
}

/// `width` bits from bit `at` on; bits beyond the end are 0.
fn bits(packed: &[u8], at: usize, width: u32) -> u64 {
    let byte = at / 8;
    let mut window = [0u8; 16];
    let held = packed.len().saturating_sub(byte).min(16);
    window[..held].copy_from_slice(&packed[byte.min(packed.len())..byte.min(packed.len()) + held]);
    let shifted = u128::from_le_bytes(window) >> (at % 8);
    (shifted & ((1u128 << width) - 1)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_of_any_length_are_the_same_number() {
        assert_eq!(decimal::<8>(&[0xff]), Ok((-1i64).to_le_bytes()));
        assert_eq!(decimal::<8>(&[0xff; 12]), Ok((-1i64).to_le_bytes()));
        assert_eq!(decimal::<8>(&[0, 0x80]), Ok(128i64.to_le_bytes()));
        assert_eq!(decimal::<16>(&[]), Ok([0; 16]));
        assert!(decimal::<8>(&[1, 0, 0, 0, 0, 0, 0, 0, 0]).is_err());
        assert!(decimal::<8>(&[0, 0x80, 0, 0, 0, 0, 0, 0, 0]).is_err(), "the sign would be lost");
    }

    #[test]
    fn delta_blocks_that_lie_are_refused() {
        assert!(delta_integers(&[], 1).is_err());
        assert!(delta_integers(&[0x80; 11], 1).is_err());
        assert!(delta_integers(&[0, 0, 1, 0], 1).is_err());
        // One value, no block.
        assert_eq!(delta_integers(&[128, 1, 4, 1, 14], 1), Ok((vec![7], &[][..])));
        assert!(delta_integers(&[128, 1, 4, 200, 200, 3, 14], 1).is_err(), "more values than the page has");
    }
}
