//! Smallest and largest values, in the order that the format defines for a column's type.
//!
//! <https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift>, `ColumnOrder`. NaN is no bound;
//! −0.0 is below 0.0, which satisfies what the format asks of bounds that are zero.

use std::cmp::Ordering;

use parquet::basic::{ConvertedType, LogicalType, SortOrder, Type};
use parquet::schema::types::ColumnDescriptor;

/// How the values of a column compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    I32,
    I64,
    U32,
    U64,
    F32,
    F64,
    /// Unsigned, byte by byte.
    Bytes,
    /// Big-endian two's complement of any length.
    Decimal,
    /// No order is defined, so no bounds are written.
    None,
}

/// What is known of a column's type.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    pub order: Order,
    pub is_text: bool,
    /// Bytes of a value; `None` when values carry their length.
    pub width: Option<usize>,
}

impl Kind {
    /// `None` for types whose statistics are made elsewhere.
    pub fn of(column: &ColumnDescriptor) -> Option<Self> {
        let logical = column.logical_type_ref();
        let decimal =
            matches!(logical, Some(LogicalType::Decimal(_))) || column.converted_type() == ConvertedType::DECIMAL;
        let unsigned = column.sort_order() == SortOrder::UNSIGNED;
        let is_text = logical == Some(&LogicalType::String) || column.converted_type() == ConvertedType::UTF8;
        if matches!(
            logical,
            Some(
                LogicalType::Float16
                    | LogicalType::Geometry(_)
                    | LogicalType::Geography(_)
                    | LogicalType::Variant(_)
                    | LogicalType::Unknown
                    | LogicalType::_Unknown { .. }
            )
        ) {
            return None;
        }
        let (order, width) = match column.physical_type() {
            Type::INT32 if unsigned => (Order::U32, Some(4)),
            Type::INT32 => (Order::I32, Some(4)),
            Type::INT64 if unsigned => (Order::U64, Some(8)),
            Type::INT64 => (Order::I64, Some(8)),
            Type::INT96 => (Order::None, Some(12)),
            Type::FLOAT => (Order::F32, Some(4)),
            Type::DOUBLE => (Order::F64, Some(8)),
            Type::BYTE_ARRAY if decimal => (Order::Decimal, None),
            Type::BYTE_ARRAY => (Order::Bytes, None),
            Type::FIXED_LEN_BYTE_ARRAY => {
                let order = if decimal { Order::Decimal } else { Order::Bytes };
                let order = if column.converted_type() == ConvertedType::INTERVAL { Order::None } else { order };
                (order, Some(usize::try_from(column.type_length()).ok().filter(|width| *width > 0)?))
            }
            Type::BOOLEAN => return None,
        };
        Some(Self { order, is_text, width })
    }

    /// Whether bounds may be cut short.
    pub fn may_truncate(self, physical: Type) -> bool {
        self.order == Order::Bytes && matches!(physical, Type::BYTE_ARRAY | Type::FIXED_LEN_BYTE_ARRAY)
    }
}

impl Order {
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }

    pub fn is_nan(self, value: &[u8]) -> bool {
        match self {
            Self::F32 => f32::from_le_bytes(four(value)).is_nan(),
            Self::F64 => f64::from_le_bytes(eight(value)).is_nan(),
            _ => false,
        }
    }

    /// # Panics
    /// If a value has not the width of its type, or the type has no order.
    pub fn compare(self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Self::I32 => i32::from_le_bytes(four(a)).cmp(&i32::from_le_bytes(four(b))),
            Self::I64 => i64::from_le_bytes(eight(a)).cmp(&i64::from_le_bytes(eight(b))),
            Self::U32 => u32::from_le_bytes(four(a)).cmp(&u32::from_le_bytes(four(b))),
            Self::U64 => u64::from_le_bytes(eight(a)).cmp(&u64::from_le_bytes(eight(b))),
            Self::F32 => f32::from_le_bytes(four(a)).total_cmp(&f32::from_le_bytes(four(b))),
            Self::F64 => f64::from_le_bytes(eight(a)).total_cmp(&f64::from_le_bytes(eight(b))),
            Self::Bytes => a.cmp(b),
            Self::Decimal => decimals(a, b),
            Self::None => unreachable!("values without an order are not compared"),
        }
    }
}

fn four(value: &[u8]) -> [u8; 4] {
    value.try_into().expect("a value of four bytes")
}

fn eight(value: &[u8]) -> [u8; 8] {
    value.try_into().expect("a value of eight bytes")
}

fn decimals(a: &[u8], b: &[u8]) -> Ordering {
    let negative = |value: &[u8]| value.first().is_some_and(|byte| byte & 0x80 != 0);
    match (negative(a), negative(b)) {
        (true, false) => return Ordering::Less,
        (false, true) => return Ordering::Greater,
        _ => {}
    }
    // Of the same sign: without the bytes that only repeat the sign, a longer number is further from zero.
    let fill = if negative(a) { 0xff } else { 0 };
    let significant = |value: &'_ [u8]| value.iter().take_while(|byte| **byte == fill).count();
    let (a, b) = (&a[significant(a)..], &b[significant(b)..]);
    let by_length = if fill == 0 { a.len().cmp(&b.len()) } else { b.len().cmp(&a.len()) };
    by_length.then_with(|| a.cmp(b))
}

/// Smallest and largest value of what was shown to it.
#[derive(Debug, Clone, Default)]
pub struct Bounds<'a> {
    pub bounds: Option<(&'a [u8], &'a [u8])>,
    pub nans: u64,
}

impl<'a> Bounds<'a> {
    /// Takes `times` equal values in.
    pub fn take(&mut self, order: Order, value: &'a [u8], times: u64) {
        if order == Order::None {
            return;
        }
        if order.is_nan(value) {
            self.nans += times;
            return;
        }
        match &mut self.bounds {
            None => self.bounds = Some((value, value)),
            Some((smallest, largest)) => {
                if order.compare(value, smallest) == Ordering::Less {
                    *smallest = value;
                } else if order.compare(value, largest) == Ordering::Greater {
                    *largest = value;
                }
            }
        }
    }
}

/// A bound below `value` of at most `length` bytes; `value` itself where there is none. Tells whether it was cut.
pub fn below(value: &[u8], length: Option<usize>, is_text: bool) -> (Vec<u8>, bool) {
    let Some(length) = length.filter(|length| value.len() > *length && *length > 0) else {
        return (value.to_vec(), false);
    };
    match is_text.then(|| std::str::from_utf8(value).ok()).flatten() {
        None => (value[..length].to_vec(), true),
        Some(text) => match text.floor_char_boundary(length) {
            0 => (value.to_vec(), false),
            end => (value[..end].to_vec(), true),
        },
    }
}

/// A bound above `value` of at most `length` bytes; `value` itself where there is none. Tells whether it was cut.
pub fn above(value: &[u8], length: Option<usize>, is_text: bool) -> (Vec<u8>, bool) {
    let Some(length) = length.filter(|length| value.len() > *length && *length > 0) else {
        return (value.to_vec(), false);
    };
    let raised = match is_text.then(|| std::str::from_utf8(value).ok()).flatten() {
        None => raise_bytes(&value[..length]),
        Some(text) => raise_text(&text[..text.floor_char_boundary(length)]),
    };
    raised.map_or_else(|| (value.to_vec(), false), |raised| (raised, true))
}

/// The shortest prefix's successor that is above every value with this prefix.
fn raise_bytes(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut raised = prefix[..=last].to_vec();
    raised[last] += 1;
    Some(raised)
}

fn raise_text(prefix: &str) -> Option<Vec<u8>> {
    for (at, letter) in prefix.char_indices().rev() {
        // A letter that needs more bytes would sort right too, but the bound could grow.
        let next = char::from_u32(letter as u32 + 1).filter(|next| next.len_utf8() == letter.len_utf8());
        if let Some(next) = next {
            let mut raised = prefix[..at].to_owned();
            raised.push(next);
            return Some(raised.into_bytes());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_of_any_length_compare_as_numbers() {
        let bytes = |value: i128, length: usize| value.to_be_bytes()[16 - length..].to_vec();
        let numbers = [-70_000i128, -32_769, -32_768, -257, -129, -128, -1, 0, 1, 127, 128, 255, 256, 32_767, 70_000];
        for a in numbers {
            for b in numbers {
                for (x, y) in [(3, 3), (4, 16), (16, 5)] {
                    assert_eq!(Order::Decimal.compare(&bytes(a, x), &bytes(b, y)), a.cmp(&b), "{a} {b}");
                }
            }
        }
        assert_eq!(Order::Decimal.compare(&[], &[0, 0]), Ordering::Equal);
    }

    #[test]
    fn bounds_leave_nan_out() {
        let values = [f64::NAN, 0.0, -0.0, -3.5, f64::INFINITY].map(f64::to_le_bytes);
        let mut bounds = Bounds::default();
        values.iter().for_each(|value| bounds.take(Order::F64, value, 1));
        assert_eq!(bounds.nans, 1);
        assert_eq!(bounds.bounds, Some((&values[3][..], &values[4][..])));
    }

    #[test]
    fn a_cut_bound_still_bounds() {
        assert_eq!(below(b"abcdef", Some(3), true), (b"abc".to_vec(), true));
        assert_eq!(above(b"abcdef", Some(3), true), (b"abd".to_vec(), true));
        assert_eq!(above(b"ab\xff\xff\xff", Some(3), false), (b"ac".to_vec(), true));
        assert_eq!(above(b"\xff\xff\xff", Some(2), false), (b"\xff\xff\xff".to_vec(), false));
        assert_eq!(below("aéé".as_bytes(), Some(4), true), ("aé".as_bytes().to_vec(), true));
        let (raised, cut) = above("aé\u{7ff}x".as_bytes(), Some(5), true);
        assert!(cut && raised.as_slice() > "aé\u{7ff}x".as_bytes() && raised.len() <= 5, "{raised:?}");
        assert_eq!(above(b"abc", Some(3), true), (b"abc".to_vec(), false));
    }
}
