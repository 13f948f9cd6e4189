//! Page headers of the inputs, as they are stored: sizes, counts and encodings, before any page is decompressed.
//!
//! The fields are those of `PageHeader` in parquet-format's `parquet.thrift`, in Thrift's compact protocol.

/// What a page says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    /// Bytes of the page behind its header, uncompressed and as stored.
    pub uncompressed: usize,
    pub stored: usize,
    /// Bytes of the header itself.
    pub length: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Dictionary {
        values: usize,
    },
    Data {
        slots: usize,
        encoding: i64,
        /// Encoding of both levels.
        levels: [i64; 2],
    },
    /// A data page whose levels lie in front of the compressed part.
    DataV2 {
        slots: usize,
        encoding: i64,
        repetition_bytes: usize,
        definition_bytes: usize,
        compressed: bool,
    },
}

pub const PLAIN: i64 = 0;
pub const PLAIN_DICTIONARY: i64 = 2;
pub const RLE: i64 = 3;
pub const RLE_DICTIONARY: i64 = 8;

/// Structures in structures, at most; statistics are one deep.
const DEPTH_MAX: usize = 8;

/// Reads the header at the start of `bytes`. `None` when it is no header of a page that can be carried over.
pub fn read(bytes: &[u8]) -> Option<Header> {
    let mut input = Input { bytes, at: 0 };
    let (mut uncompressed, mut stored, mut kind) = (None, None, None);
    input.fields(|input, id, wire| {
        match (id, wire) {
            (2, INT) => uncompressed = Some(input.size()?),
            (3, INT) => stored = Some(input.size()?),
            (5, STRUCT) => kind = Some(data(input)?),
            (7, STRUCT) => kind = Some(dictionary(input)?),
            (8, STRUCT) => kind = Some(data_v2(input)?),
            _ => input.skip(wire, 0)?,
        }
        Some(())
    })?;
    Some(Header { kind: kind?, uncompressed: uncompressed?, stored: stored?, length: input.at })
}

fn data(input: &mut Input<'_>) -> Option<Kind> {
    let (mut slots, mut encoding, mut levels) = (None, None, [RLE; 2]);
    input.fields(|input, id, wire| {
        match (id, wire) {
            (1, INT) => slots = Some(input.size()?),
            (2, INT) => encoding = Some(input.int()?),
            (3, INT) => levels[0] = input.int()?,
            (4, INT) => levels[1] = input.int()?,
            _ => input.skip(wire, 0)?,
        }
        Some(())
    })?;
    Some(Kind::Data { slots: slots?, encoding: encoding?, levels })
}

fn dictionary(input: &mut Input<'_>) -> Option<Kind> {
    let (mut values, mut encoding) = (None, None);
    input.fields(|input, id, wire| {
        match (id, wire) {
            (1, INT) => values = Some(input.size()?),
            (2, INT) => encoding = Some(input.int()?),
            _ => input.skip(wire, 0)?,
        }
        Some(())
    })?;
    matches!(encoding?, PLAIN | PLAIN_DICTIONARY).then_some(Kind::Dictionary { values: values? })
}

fn data_v2(input: &mut Input<'_>) -> Option<Kind> {
    let (mut slots, mut encoding, mut repetition, mut definition, mut compressed) = (None, None, None, None, true);
    input.fields(|input, id, wire| {
        match (id, wire) {
            (1, INT) => slots = Some(input.size()?),
            (4, INT) => encoding = Some(input.int()?),
            (5, INT) => definition = Some(input.size()?),
            (6, INT) => repetition = Some(input.size()?),
            (7, TRUE | FALSE) => compressed = wire == TRUE,
            _ => input.skip(wire, 0)?,
        }
        Some(())
    })?;
    Some(Kind::DataV2 {
        slots: slots?,
        encoding: encoding?,
        repetition_bytes: repetition?,
        definition_bytes: definition?,
        compressed,
    })
}

const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const INT: u8 = 5;
const STRUCT: u8 = 12;

/// Thrift's compact protocol, as far as page headers use it.
struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut found = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            found |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(found);
            }
        }
        None
    }

    /// A zigzag number.
    fn int(&mut self) -> Option<i64> {
        let raw = self.varint()?;
        Some((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    /// A number that counts something.
    fn size(&mut self) -> Option<usize> {
        usize::try_from(i32::try_from(self.int()?).ok()?).ok()
    }

    /// Calls `take(input, field id, wire type)` for each field of a structure; it must consume the field's value.
    fn fields(&mut self, mut take: impl FnMut(&mut Self, i64, u8) -> Option<()>) -> Option<()> {
        let mut id = 0i64;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Some(());
            }
            id = match head >> 4 {
                0 => self.int()?,
                delta => id + i64::from(delta),
            };
            take(self, id, head & 0x0f)?;
        }
    }

    fn skip(&mut self, wire: u8, depth: usize) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        match wire {
            TRUE | FALSE => {}
            BYTE => self.at += 1,
            4..=6 => {
                self.varint()?;
            }
            7 => self.at += 8,
            8 => {
                let length = usize::try_from(self.varint()?).ok()?;
                self.at = self.at.checked_add(length)?;
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = match head >> 4 {
                    15 => self.varint()?,
                    count => u64::from(count),
                };
                for _ in 0..count {
                    self.element(head & 0x0f, depth + 1)?;
                }
            }
            STRUCT => self.fields(|input, _, wire| input.skip(wire, depth + 1))?,
            _ => return None,
        }
        (self.at <= self.bytes.len()).then_some(())
    }

    /// Skips a member of a list, where a truth value takes a byte.
    fn element(&mut self, wire: u8, depth: usize) -> Option<()> {
        match wire {
            TRUE | FALSE => self.byte().map(|_| ()),
            _ => self.skip(wire, depth),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_page_header_is_read_past_its_statistics() {
        // type 0, uncompressed 100, stored 60, crc 7, data {slots 30, encoding 8, levels 3 and 3, statistics {5: "ab"}}
        let bytes = [
            0x15, 0x00, 0x15, 0xc8, 0x01, 0x15, 0x78, 0x15, 0x0e, 0x1c, 0x15, 0x3c, 0x15, 0x10, 0x15, 0x06, 0x15, 0x06,
            0x1c, 0x58, 0x02, b'a', b'b', 0x00, 0x00, 0x00, 0xff,
        ];
        let kind = Kind::Data { slots: 30, encoding: RLE_DICTIONARY, levels: [RLE; 2] };
        assert_eq!(read(&bytes), Some(Header { kind, uncompressed: 100, stored: 60, length: 26 }));
        for end in 0..26 {
            assert_eq!(read(&bytes[..end]), None, "cut after {end} bytes");
        }
    }

    #[test]
    fn negative_sizes_and_deep_nests_are_no_headers() {
        assert_eq!(read(&[0x25, 0x01, 0x15, 0x02, 0x4c, 0x15, 0x02, 0x15, 0x00, 0x00, 0x00]), None);
        assert_eq!(read(&[0x1c; 64]), None);
    }
}
