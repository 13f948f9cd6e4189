//! How deep a footer's schema is nested, told before the footer is decoded.
//!
//! Schemas are decoded and dropped by recursion, so a hostile footer could overflow the stack, which no caller can
//! catch. This walk over the Thrift compact protocol keeps its own list of open groups instead, allocates nothing else,
//! and stops at the first broken byte: what is broken is the decoder's to name.

/// Fields of `FileMetaData` and `SchemaElement`.
const SCHEMA: i64 = 2;
const NUM_CHILDREN: i64 = 5;

/// Nested structs and lists that are skipped through, at most.
const SKIP_DEPTH_MAX: u32 = 64;

/// The depth of the deepest node below the root, as far as the footer can be read.
pub fn schema_depth(footer: &[u8]) -> usize {
    // A footer that breaks off inside its schema is refused by the decoder before it builds anything.
    Walk { bytes: footer, at: 0 }.depth().unwrap_or(0)
}

struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Walk<'_> {
    fn depth(&mut self) -> Option<usize> {
        let mut field = 0;
        loop {
            let kind = self.field(&mut field)?;
            if kind == 0 {
                return Some(0);
            }
            if field == SCHEMA && kind == 9 {
                return self.schema();
            }
            self.skip(kind, 0)?;
        }
    }

    fn schema(&mut self) -> Option<usize> {
        let count = self.list_head()?.1;
        // Children that the open groups still wait for.
        let mut open: Vec<i64> = Vec::new();
        let mut deepest = 0;
        for _ in 0..count {
            while open.last() == Some(&0) {
                open.pop();
            }
            if let Some(waiting) = open.last_mut() {
                *waiting -= 1;
            }
            deepest = deepest.max(open.len());
            let children = self.children()?;
            if children > 0 {
                open.push(children);
            }
        }
        Some(deepest)
    }

    /// `num_children` of the `SchemaElement` that starts here.
    fn children(&mut self) -> Option<i64> {
        let (mut field, mut children) = (0, 0);
        loop {
            match self.field(&mut field)? {
                0 => return Some(children),
                5 if field == NUM_CHILDREN => children = self.signed()?,
                kind => self.skip(kind, 0)?,
            }
        }
    }

    /// The type of the next field, 0 at the end of the struct; its number goes into `field`.
    fn field(&mut self, field: &mut i64) -> Option<u8> {
        let head = self.byte()?;
        if head == 0 {
            return Some(0);
        }
        *field = match head >> 4 {
            0 => self.signed()?,
            step => field.checked_add(i64::from(step))?,
        };
        Some(head & 15)
    }

    fn skip(&mut self, kind: u8, depth: u32) -> Option<()> {
        if depth > SKIP_DEPTH_MAX {
            return None;
        }
        match kind {
            1 | 2 => Some(()),
            3 => self.byte().map(drop),
            4..=6 => self.unsigned().map(drop),
            7 => self.take(8),
            8 => {
                let length = self.unsigned()?;
                self.take(length)
            }
            9 | 10 => {
                let (kind, count) = self.list_head()?;
                for _ in 0..count {
                    // A boolean in a list is a byte.
                    self.skip(if kind == 2 { 3 } else { kind }, depth + 1)?;
                }
                Some(())
            }
            12 => {
                let mut field = 0;
                loop {
                    match self.field(&mut field)? {
                        0 => return Some(()),
                        kind => self.skip(kind, depth + 1)?,
                    }
                }
            }
            _ => None,
        }
    }

    fn list_head(&mut self) -> Option<(u8, u64)> {
        let head = self.byte()?;
        let count = if head >> 4 == 15 { self.unsigned()? } else { u64::from(head >> 4) };
        Some((if head & 15 == 1 { 2 } else { head & 15 }, count))
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn take(&mut self, length: u64) -> Option<()> {
        let end = self.at.checked_add(usize::try_from(length).ok()?)?;
        (end <= self.bytes.len()).then(|| self.at = end)
    }

    fn unsigned(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn signed(&mut self) -> Option<i64> {
        let number = self.unsigned()?;
        Some((number >> 1) as i64 ^ -((number & 1) as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::schema_depth;

    /// A footer of groups in groups: version 1, then a root and `depth` nodes, each but the last with one child.
    fn nested(depth: usize) -> Vec<u8> {
        let mut footer = vec![0x15, 2, 0x19, 0xfc];
        let mut count = depth + 1;
        while count > 0x7f {
            footer.push((count & 0x7f) as u8 | 0x80);
            count >>= 7;
        }
        footer.push(count as u8);
        for node in 0..=depth {
            footer.extend_from_slice(&[0x48, 1, b'g']);
            if node < depth {
                footer.extend_from_slice(&[0x15, 2]);
            }
            footer.push(0);
        }
        footer
    }

    #[test]
    fn the_depth_of_a_schema_is_told_without_recursion() {
        assert_eq!([1, 3, 200, 100_000].map(|depth| schema_depth(&nested(depth))), [1, 3, 200, 100_000]);
    }

    #[test]
    fn siblings_do_not_add_to_the_depth() {
        // A root with two children: a group of one leaf, and a leaf.
        let footer = [
            0x15, 2, 0x19, 0x4c, 0x48, 1, b'r', 0x15, 4, 0, 0x48, 1, b'g', 0x15, 2, 0, 0x48, 1, b'a', 0, 0x48, 1, b'b',
            0,
        ];
        assert_eq!(schema_depth(&footer), 2);
    }

    #[test]
    fn broken_footers_have_no_depth() {
        for footer in [&[][..], &[0x19], &[0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07], &[0xff; 40]] {
            assert_eq!(schema_depth(footer), 0);
        }
    }
}
