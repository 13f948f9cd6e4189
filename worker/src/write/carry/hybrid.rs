//! The RLE / bit-packing hybrid of Parquet: levels and dictionary indices.
//!
//! Encoding: <https://parquet.apache.org/docs/file-format/data-pages/encodings/#RLE>.

/// Reads `count` numbers of `width` bits into `into`. `None` when `bytes` hold fewer or more, or one is above `max`.
pub fn read(bytes: &[u8], width: u32, count: usize, max: u32, into: &mut Vec<u32>) -> Option<()> {
    into.clear();
    if width == 0 {
        into.resize(count, 0);
        return Some(());
    }
    if width > 32 {
        return None;
    }
    // No room for more than the page can hold is taken before it is seen to be there.
    let mut at = 0;
    while into.len() < count {
        let head = varint(bytes, &mut at)?;
        let left = count - into.len();
        if head & 1 == 0 {
            let length = usize::try_from(head >> 1).ok()?;
            let stored = width.div_ceil(8) as usize;
            let mut raw = [0; 4];
            raw[..stored].copy_from_slice(bytes.get(at..at + stored)?);
            at += stored;
            let value = u32::from_le_bytes(raw);
            if length == 0 || length > left || value > max {
                return None;
            }
            into.resize(into.len() + length, value);
        } else {
            let groups = usize::try_from(head >> 1).ok()?;
            // Only the last group may be filled up.
            let wanted = groups.checked_mul(8).filter(|count| *count < left + 8)?.min(left);
            let stored = groups.checked_mul(width as usize)?;
            // Writers may cut the last group short.
            let packed = bytes.get(at..)?;
            let packed = &packed[..packed.len().min(stored)];
            if wanted == 0 || packed.len() < (wanted * width as usize).div_ceil(8) {
                return None;
            }
            let first = into.len();
            unpack(packed, width, wanted, into);
            if into[first..].iter().any(|value| *value > max) {
                return None;
            }
            at = at.saturating_add(stored);
        }
    }
    (at >= bytes.len()).then_some(())
}

fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut found = 0u64;
    for shift in (0..35).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        found |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(found);
        }
    }
    None
}

fn unpack(packed: &[u8], width: u32, count: usize, into: &mut Vec<u32>) {
    let mask = (1u64 << width) - 1;
    into.reserve(count);
    let mut bit = 0usize;
    for _ in 0..count {
        let byte = bit / 8;
        let word = match packed.get(byte..byte + 8) {
            Some(word) => u64::from_le_bytes(word.try_into().expect("eight bytes were taken")),
            None => {
                let mut word = [0; 8];
                let tail = &packed[byte.min(packed.len())..];
                word[..tail.len()].copy_from_slice(tail);
                u64::from_le_bytes(word)
            }
        };
        into.push(((word >> (bit % 8)) & mask) as u32);
        bit += width as usize;
    }
}

/// Bits that a number up to `max` takes.
pub fn width(max: u32) -> u32 {
    32 - max.leading_zeros()
}

/// Appends `values`, each of at most `width` bits. Stretches of eight or more equal numbers become runs.
pub fn write(values: &[u32], width: u32, into: &mut Vec<u8>) {
    if width == 0 {
        // All are zero: a run whose value takes no bytes.
        if !values.is_empty() {
            put_varint((values.len() as u64) << 1, into);
        }
        return;
    }
    let mut literals = 0; // start of the numbers that are not written yet
    let mut at = 0;
    while at < values.len() {
        let value = values[at];
        let same = values[at..].iter().take_while(|other| **other == value).count();
        // Packed groups are of eight, so a run gives up what fills the last one.
        let fill = (8 - (at - literals) % 8) % 8;
        if same >= 8 + fill {
            pack(&values[literals..at + fill], width, into);
            put_varint(((same - fill) as u64) << 1, into);
            into.extend_from_slice(&value.to_le_bytes()[..width.div_ceil(8) as usize]);
            literals = at + same;
        }
        at += same;
    }
    pack(&values[literals..], width, into);
}

fn pack(values: &[u32], width: u32, into: &mut Vec<u8>) {
    if values.is_empty() {
        return;
    }
    let groups = values.len().div_ceil(8);
    put_varint((groups as u64) << 1 | 1, into);
    let end = into.len() + groups * width as usize;
    let (mut word, mut bits) = (0u64, 0);
    for value in values {
        word |= u64::from(*value) << bits;
        bits += width;
        while bits >= 8 {
            into.push(word as u8);
            word >>= 8;
            bits -= 8;
        }
    }
    if bits > 0 {
        into.push(word as u8);
    }
    into.resize(end, 0);
}

fn put_varint(mut value: u64, into: &mut Vec<u8>) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut state = 1u64;
        let mut next = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for case in 0..400 {
            let max = (1u64 << (case % 33)) - 1;
            let mut values = Vec::new();
            while values.len() < 700 {
                let run = if next(3) == 0 { next(60) } else { 1 };
                let value = next(max + 1) as u32;
                values.extend(std::iter::repeat_n(value, run as usize));
            }
            values.truncate(next(700) as usize);
            let width = width(max as u32);
            let mut bytes = Vec::new();
            write(&values, width, &mut bytes);
            let mut found = Vec::new();
            read(&bytes, width, values.len(), max as u32, &mut found).unwrap();
            assert_eq!(found, values, "case {case}");
            if width > 0 && !values.is_empty() {
                assert_eq!(read(&bytes[..bytes.len() / 2], width, values.len() * 2 + 8, u32::MAX, &mut found), None);
                assert_eq!(read(&[&bytes[..], &[0]].concat(), width, values.len(), u32::MAX, &mut found), None);
            }
        }
    }

    #[test]
    fn a_number_above_the_largest_is_refused() {
        let mut bytes = Vec::new();
        write(&[1, 2, 3, 1], 2, &mut bytes);
        assert_eq!(read(&bytes, 2, 4, 2, &mut Vec::new()), None);
        assert_eq!(read(&bytes, 2, 4, 3, &mut Vec::new()), Some(()));
    }
}
