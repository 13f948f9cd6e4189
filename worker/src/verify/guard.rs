//! A look over a footer before it is parsed: nothing in it may make the parser reserve memory that is not backed by
//! bytes, or recurse without end.
//!
//! The walk itself keeps nothing and recurses to a fixed depth. It knows of Parquet only where the schema is and which
//! field counts a node's children.

/// Deepest nesting of structures in a footer; a sound one needs about ten.
const THRIFT_DEPTH_MAX: usize = 64;
/// Deepest nesting of columns.
const COLUMN_DEPTH_MAX: usize = 128;
/// Most columns of a file.
const COLUMNS_MAX: usize = 20_000;
/// Field of the footer that holds the schema, and of a schema node that counts its children.
const SCHEMA_FIELD: i64 = 2;
const CHILDREN_FIELD: i64 = 5;

/// Refuses a footer that is not well formed, nests too deep or has too many columns.
pub(super) fn check_footer(footer: &[u8]) -> Result<(), String> {
    let mut walk = Walk { rest: footer, children: Vec::new() };
    walk.structure(0, Place::Footer)?;
    check_schema(&walk.children)
}

/// Where the walk is, as far as it matters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Footer,
    SchemaNode,
    Other,
}

struct Walk<'a> {
    rest: &'a [u8],
    /// Number of children of each schema node, in order.
    children: Vec<i64>,
}

impl Walk<'_> {
    fn structure(&mut self, depth: usize, place: Place) -> Result<(), String> {
        if depth > THRIFT_DEPTH_MAX {
            return Err(format!("it nests deeper than {THRIFT_DEPTH_MAX}"));
        }
        if place == Place::SchemaNode {
            self.children.push(0);
        }
        let mut field = 0i64;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Ok(());
            }
            field = match head >> 4 {
                0 => self.zigzag()?,
                step => field + i64::from(step),
            };
            let kind = head & 15;
            if place == Place::SchemaNode && field == CHILDREN_FIELD && (4..=6).contains(&kind) {
                let count = self.zigzag()?;
                if let Some(last) = self.children.last_mut() {
                    *last = count;
                }
            } else if place == Place::Footer && field == SCHEMA_FIELD {
                self.value(kind, depth, Place::SchemaNode)?;
            } else {
                self.value(kind, depth, Place::Other)?;
            }
        }
    }

    /// Passes over one value. `inner` says what the elements of a list are.
    fn value(&mut self, kind: u8, depth: usize, inner: Place) -> Result<(), String> {
        match kind {
            1 | 2 => Ok(()),
            3 => self.byte().map(|_| ()),
            4..=6 => self.varint().map(|_| ()),
            7 => self.skip(8),
            8 => {
                let length = self.varint()?;
                self.skip(length)
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = match head >> 4 {
                    15 => self.varint()?,
                    count => u64::from(count),
                };
                // Every element takes a byte at least.
                if count > self.rest.len() as u64 {
                    return Err(format!("a list claims {count} elements in {} bytes", self.rest.len()));
                }
                let kind = head & 15;
                for _ in 0..count {
                    match kind {
                        1 | 2 => self.skip(1)?,
                        12 => self.structure(depth + 1, inner)?,
                        _ => self.value(kind, depth + 1, Place::Other)?,
                    }
                }
                Ok(())
            }
            12 => self.structure(depth + 1, Place::Other),
            other => Err(format!("it holds a value of kind {other}")),
        }
    }

    fn byte(&mut self) -> Result<u8, String> {
        let (byte, rest) = self.rest.split_first().ok_or("it is cut off")?;
        self.rest = rest;
        Ok(*byte)
    }

    fn skip(&mut self, count: u64) -> Result<(), String> {
        let count = usize::try_from(count).map_err(|_| "it is cut off")?;
        self.rest = self.rest.get(count..).ok_or("it is cut off")?;
        Ok(())
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number in it is too long".into())
    }

    fn zigzag(&mut self) -> Result<i64, String> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }
}

/// Checks the tree that the counts of children describe.
fn check_schema(children: &[i64]) -> Result<(), String> {
    let leaves = children.iter().filter(|count| **count <= 0).count();
    if leaves > COLUMNS_MAX {
        return Err(format!("it has {leaves} columns: more than {COLUMNS_MAX} are refused"));
    }
    // Children still to come, of each open node.
    let mut open: Vec<i64> = Vec::new();
    for count in children {
        if let Some(left) = open.last_mut() {
            *left -= 1;
        }
        if *count > 0 {
            open.push(*count);
            if open.len() > COLUMN_DEPTH_MAX + 1 {
                return Err(format!("its columns nest deeper than {COLUMN_DEPTH_MAX}"));
            }
        }
        while open.last().is_some_and(|left| *left <= 0) {
            open.pop();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_that_lie_and_nesting_without_end_are_refused() {
        assert_eq!(check_footer(&[0]), Ok(()));
        assert!(check_footer(&[]).is_err());
        // Field 2, a list of structures that claims 2^31 - 1 elements.
        assert!(
            check_footer(&[0x29, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07, 0]).is_err_and(|error| error.contains("claims"))
        );
        assert!(check_footer(&[0x1c; 10_000]).is_err_and(|error| error.contains("deeper")));
        assert!(check_footer(&[0x19; 10_000]).is_err());
    }

    #[test]
    fn columns_are_counted_and_their_depth() {
        assert_eq!(check_schema(&[2, 0, 1, 0]), Ok(()));
        let mut deep = vec![1; COLUMN_DEPTH_MAX + 1];
        deep.push(0);
        assert_eq!(check_schema(&deep), Ok(()));
        deep.insert(0, 1);
        assert!(check_schema(&deep).is_err());
        assert!(check_schema(&vec![0; COLUMNS_MAX + 1]).is_err());
    }
}
