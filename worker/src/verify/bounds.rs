//! The statistics of a column chunk, held against its values.
//!
//! A reader leaves a row group out when the chunk's minimum and maximum say that nothing in it can match, so a bound that
//! does not hold loses rows as surely as a dropped row would. Bounds of flat columns are held against every value by
//! the order of the column's type; the number of nulls against the levels. A NaN is never a bound and never outside.
//!
//! Absent: columns without an order of their own (INT96, intervals), repeated columns, and the bounds of single pages in
//! the page index.

use polars_parquet::parquet::statistics::Statistics;

use super::schema::{Form, Leaf};
use super::values::decimal;

/// What the footer says of a chunk's values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bounds {
    numbers: Option<Numbers>,
    bytes: Option<(Option<Vec<u8>>, Option<Vec<u8>>)>,
    pub null_count: Option<u64>,
}

/// Bounds of values that are hashed as the number they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Numbers {
    order: Order,
    min: Option<u64>,
    max: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Signed,
    Unsigned,
    Float16,
    Float32,
    Float64,
}

impl Bounds {
    /// The bounds in `statistics` of the column `leaf`, as far as its type has an order.
    pub(super) fn new(statistics: &Statistics, leaf: &Leaf) -> Result<Self, String> {
        let order = match leaf.form {
            Form::Signed32 | Form::DecimalBytes64 => Some(Order::Signed),
            Form::Plain64 if leaf.type_text != "uint64" => Some(Order::Signed),
            Form::Plain64 | Form::Unsigned32(_) | Form::Bool => Some(Order::Unsigned),
            Form::Float16 => Some(Order::Float16),
            Form::Float32 => Some(Order::Float32),
            Form::Float64 => Some(Order::Float64),
            Form::Bytes | Form::Text | Form::Int96 => None,
            Form::DecimalIntWide | Form::DecimalBytes128 | Form::DecimalBytes256 => None,
        };
        let whole32 = |value: i32| match leaf.form {
            Form::Unsigned32(32) => u64::from(value.cast_unsigned()),
            Form::Unsigned32(bits) => u64::from(value.cast_unsigned()) & ((1 << bits) - 1),
            _ => i64::from(value).cast_unsigned(),
        };
        let small = |value: &Vec<u8>| match leaf.form {
            Form::Float16 => value.first_chunk::<2>().map(|bits| u64::from(u16::from_le_bytes(*bits))),
            _ => decimal::<8>(value).ok().map(u64::from_le_bytes),
        };
        let mut found = Self { numbers: None, bytes: None, null_count: None };
        let (numbers, bytes, null_count) = match statistics {
            Statistics::Int32(s) => ((s.min_value.map(whole32), s.max_value.map(whole32)), None, s.null_count),
            Statistics::Int64(s) => {
                ((s.min_value.map(i64::cast_unsigned), s.max_value.map(i64::cast_unsigned)), None, s.null_count)
            }
            Statistics::Float(s) => {
                let bits = |value: f32| u64::from(value.to_bits());
                ((s.min_value.map(bits), s.max_value.map(bits)), None, s.null_count)
            }
            Statistics::Double(s) => {
                ((s.min_value.map(f64::to_bits), s.max_value.map(f64::to_bits)), None, s.null_count)
            }
            Statistics::Boolean(s) => ((s.min_value.map(u64::from), s.max_value.map(u64::from)), None, s.null_count),
            Statistics::Int96(s) => ((None, None), None, s.null_count),
            Statistics::Binary(s) => (
                (s.min_value.as_ref().and_then(small), s.max_value.as_ref().and_then(small)),
                Some((s.min_value.clone(), s.max_value.clone())),
                s.null_count,
            ),
            Statistics::FixedLen(s) => (
                (s.min_value.as_ref().and_then(small), s.max_value.as_ref().and_then(small)),
                Some((s.min_value.clone(), s.max_value.clone())),
                s.null_count,
            ),
        };
        found.null_count = match null_count {
            Some(count) => Some(u64::try_from(count).map_err(|_| "its count of nulls is negative")?),
            None => None,
        };
        if let Some(order) = order {
            found.numbers = Some(Numbers { order, min: numbers.0, max: numbers.1 });
        } else if matches!(leaf.form, Form::Bytes | Form::Text) && leaf.type_text != "interval" {
            found.bytes = bytes;
        }
        Ok(found)
    }

    /// Whether values are hashed as numbers, so that [`Bounds::excludes_number`] is to be asked.
    pub(super) fn of_numbers(&self) -> bool {
        self.numbers.is_some_and(|numbers| numbers.min.is_some() || numbers.max.is_some())
    }

    /// Whether the value with this number (as it is hashed) lies outside.
    #[inline]
    pub(super) fn excludes_number(&self, value: u64) -> bool {
        let Some(Numbers { order, min, max }) = self.numbers else { return false };
        min.is_some_and(|min| order.is_less(value, min)) || max.is_some_and(|max| order.is_less(max, value))
    }

    /// Whether any of these values, as they are hashed, lies outside.
    pub(super) fn excludes_any(&self, values: &[[u64; 2]]) -> bool {
        // Whole numbers, the most frequent, in a loop without branches.
        if let Some(Numbers { order: Order::Signed, min: Some(min), max: Some(max) }) = self.numbers {
            let range = min.cast_signed()..=max.cast_signed();
            return values.iter().fold(false, |found, value| found | !range.contains(&value[0].cast_signed()));
        }
        values.iter().any(|value| self.excludes_number(value[0]))
    }

    /// Whether the value lies outside, for values that are hashed as bytes.
    #[inline]
    pub(super) fn excludes_bytes(&self, value: &[u8]) -> bool {
        let Some((min, max)) = &self.bytes else { return false };
        min.as_ref().is_some_and(|min| value < min.as_slice()) || max.as_ref().is_some_and(|max| value > max.as_slice())
    }
}

impl Order {
    /// Whether `a` comes before `b`. A NaN comes before nothing, and nothing before it.
    #[inline]
    fn is_less(self, a: u64, b: u64) -> bool {
        match self {
            Self::Signed => a.cast_signed() < b.cast_signed(),
            Self::Unsigned => a < b,
            Self::Float16 => half(a) < half(b),
            Self::Float32 => f32::from_bits(a as u32) < f32::from_bits(b as u32),
            Self::Float64 => f64::from_bits(a) < f64::from_bits(b),
        }
    }
}

/// A float16 as a number.
fn half(bits: u64) -> f64 {
    let (exponent, fraction) = ((bits >> 10 & 0x1f) as i32, (bits & 0x3ff) as f64);
    let size = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    };
    if bits & 0x8000 == 0 { size } else { -size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_those_of_the_types() {
        assert!(Order::Signed.is_less(u64::MAX, 0) && !Order::Unsigned.is_less(u64::MAX, 0));
        assert!(Order::Float64.is_less((-2f64).to_bits(), (-1f64).to_bits()));
        assert!(!Order::Float64.is_less(f64::NAN.to_bits(), 0) && !Order::Float64.is_less(0, f64::NAN.to_bits()));
        assert!(!Order::Float32.is_less(u64::from((-0f32).to_bits()), 0));
        for (bits, number) in [(0x3c00, 1.0), (0xc000, -2.0), (0x7bff, 65504.0), (1, 5.960464477539063e-8)] {
            assert_eq!(half(bits), number, "{bits:04x}");
        }
    }
}
