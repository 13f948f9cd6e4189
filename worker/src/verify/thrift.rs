//! Thrift's compact protocol, as far as page headers and page indexes need it.
//!
//! Written for this reader alone: page headers and indexes are read here without polars-parquet and without parquet-rs,
//! so that what either says of a page can be held against a third opinion. A list is believed only as far as there are
//! bytes, and nesting to a fixed depth.

/// Deepest nesting; page headers need three levels.
const DEPTH_MAX: usize = 16;

/// Why a structure could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Broken {
    /// It goes on beyond the bytes at hand.
    Cut,
    /// It is not thrift.
    Malformed,
}

/// One value. Bytes are borrowed from what was read.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Value<'a> {
    Bool(bool),
    Int(i64),
    Double,
    Bytes(&'a [u8]),
    List(Vec<Value<'a>>),
    Structure(Structure<'a>),
}

/// A structure: its fields by number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Structure<'a>(Vec<(i64, Value<'a>)>);

impl<'a> Structure<'a> {
    /// Reads one structure from the front of `data`, and how many bytes it takes.
    pub(super) fn read(data: &'a [u8]) -> Result<(Self, usize), Broken> {
        let mut reader = Reader { rest: data };
        let found = reader.structure(0)?;
        Ok((found, data.len() - reader.rest.len()))
    }

    fn field(&self, number: i64) -> Option<&Value<'a>> {
        self.0.iter().find(|(field, _)| *field == number).map(|(_, value)| value)
    }

    pub(super) fn int(&self, number: i64) -> Option<i64> {
        match self.field(number)? {
            Value::Int(value) => Some(*value),
            _ => None,
        }
    }

    pub(super) fn structure(&self, number: i64) -> Option<&Structure<'a>> {
        match self.field(number)? {
            Value::Structure(found) => Some(found),
            _ => None,
        }
    }

    /// A list of which `element` takes every element.
    fn list<'b, T>(&'b self, number: i64, element: impl Fn(&'b Value<'a>) -> Option<T>) -> Option<Vec<T>> {
        match self.field(number)? {
            Value::List(values) => values.iter().map(element).collect(),
            _ => None,
        }
    }

    pub(super) fn bools(&self, number: i64) -> Option<Vec<bool>> {
        self.list(number, |value| match value {
            Value::Bool(value) => Some(*value),
            _ => None,
        })
    }

    pub(super) fn ints(&self, number: i64) -> Option<Vec<i64>> {
        self.list(number, |value| match value {
            Value::Int(value) => Some(*value),
            _ => None,
        })
    }

    pub(super) fn byte_strings(&self, number: i64) -> Option<Vec<&'a [u8]>> {
        self.list(number, |value| match value {
            Value::Bytes(value) => Some(*value),
            _ => None,
        })
    }

    pub(super) fn structures<'b>(&'b self, number: i64) -> Option<Vec<&'b Structure<'a>>> {
        self.list(number, |value| match value {
            Value::Structure(found) => Some(found),
            _ => None,
        })
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn structure(&mut self, depth: usize) -> Result<Structure<'a>, Broken> {
        if depth > DEPTH_MAX {
            return Err(Broken::Malformed);
        }
        let mut fields = Vec::new();
        let mut number = 0i64;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Ok(Structure(fields));
            }
            number = match head >> 4 {
                0 => self.zigzag()?,
                step => number.checked_add(i64::from(step)).ok_or(Broken::Malformed)?,
            };
            let value = match head & 15 {
                1 => Value::Bool(true),
                2 => Value::Bool(false),
                kind => self.value(kind, depth)?,
            };
            fields.push((number, value));
        }
    }

    fn value(&mut self, kind: u8, depth: usize) -> Result<Value<'a>, Broken> {
        Ok(match kind {
            // A boolean in a list takes a byte of its own.
            1 | 2 => Value::Bool(self.byte()? == 1),
            3 => Value::Int(i64::from(self.byte()?.cast_signed())),
            4..=6 => Value::Int(self.zigzag()?),
            7 => {
                self.take(8)?;
                Value::Double
            }
            8 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Broken::Malformed)?;
                Value::Bytes(self.take(length)?)
            }
            9 | 10 if depth < DEPTH_MAX => {
                let head = self.byte()?;
                let count = match head >> 4 {
                    15 => usize::try_from(self.varint()?).map_err(|_| Broken::Malformed)?,
                    count => usize::from(count),
                };
                // Every element takes a byte at least.
                if count > self.rest.len() {
                    return Err(Broken::Cut);
                }
                Value::List((0..count).map(|_| self.value(head & 15, depth + 1)).collect::<Result<_, _>>()?)
            }
            12 => Value::Structure(self.structure(depth + 1)?),
            _ => return Err(Broken::Malformed),
        })
    }

    fn byte(&mut self) -> Result<u8, Broken> {
        Ok(self.take(1)?[0])
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Broken> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Broken::Cut)?;
        self.rest = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, Broken> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Broken::Malformed)
    }

    fn zigzag(&mut self) -> Result<i64, Broken> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_every_kind_are_read() {
        // 1: -1, 2: true, 3: "ab", 4: [5, 6], 5: { 1: false }, and a byte that is not of it.
        let data = [0x15, 1, 0x11, 0x18, 2, b'a', b'b', 0x19, 0x25, 10, 12, 0x1c, 0x12, 0, 0, 99];
        let (found, length) = Structure::read(&data).expect("a structure");
        assert_eq!(length, data.len() - 1);
        assert_eq!((found.int(1), found.ints(4)), (Some(-1), Some(vec![5, 6])));
        assert_eq!(found.field(2), Some(&Value::Bool(true)));
        assert_eq!(found.structure(5).and_then(|inner| inner.field(1)), Some(&Value::Bool(false)));
        assert_eq!((found.int(2), found.int(9), found.bools(4)), (None, None, None));
        for cut in 0..length {
            assert_eq!(Structure::read(&data[..cut]), Err(Broken::Cut), "{cut} bytes");
        }
    }

    #[test]
    fn what_is_not_thrift_is_refused() {
        assert_eq!(Structure::read(&[0x1c; 100]), Err(Broken::Malformed), "nesting without end");
        assert_eq!(Structure::read(&[0x1d, 0]), Err(Broken::Malformed), "no such kind");
        assert_eq!(Structure::read(&[0x19, 0xf5, 0xff, 0xff, 0xff, 0x07, 0]), Err(Broken::Cut), "a list that lies");
        assert_eq!(Structure::read(&[0x16; 12].map(|_| 0x96)), Err(Broken::Malformed), "a number without end");
    }
}
