//! The statistics of a column chunk, held against its values.
//!
//! A reader leaves a row group out when the chunk's minimum and maximum say that nothing in it can match, so a bound that
//! does not hold loses rows as surely as a dropped row would. Bounds of flat columns are held against every value by
//! the order of the column's type; the number of nulls against the levels. A NaN is never a bound and never outside.
//!
//! The same is asked of the bounds of each page in a file's page index (`index`).
//!
//! Absent: columns without an order of their own (INT96, intervals), and repeated columns.

use polars_parquet::parquet::schema::types::PhysicalType;
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
        let whole32 = |value: i32| whole32(leaf.form, value);
        let small = |value: &Vec<u8>| small(leaf.form, value);
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
        if let Some(order) = Order::of(leaf) {
            found.numbers = Some(Numbers { order, min: numbers.0, max: numbers.1 });
        } else if has_byte_order(leaf) {
            found.bytes = bytes;
        }
        Ok(found)
    }

    /// The bounds of a page, as the page index stores them: plain values, of which long ones may be cut.
    pub(super) fn of_page(leaf: &Leaf, min: &[u8], max: &[u8], null_count: Option<u64>) -> Result<Self, String> {
        let number = |raw: &[u8]| -> Option<u64> {
            match leaf.physical {
                PhysicalType::Boolean => raw.first().map(|bit| u64::from(*bit)),
                PhysicalType::Int32 => Some(whole32(leaf.form, i32::from_le_bytes(raw.try_into().ok()?))),
                PhysicalType::Float => Some(u64::from(u32::from_le_bytes(raw.try_into().ok()?))),
                PhysicalType::Int64 | PhysicalType::Double => Some(u64::from_le_bytes(raw.try_into().ok()?)),
                PhysicalType::ByteArray | PhysicalType::FixedLenByteArray(_) => small(leaf.form, raw),
                PhysicalType::Int96 => None,
            }
        };
        let mut found = Self { numbers: None, bytes: None, null_count };
        if let Some(order) = Order::of(leaf) {
            let both = number(min).zip(number(max)).ok_or("a bound in its page index is not one of its type")?;
            found.numbers = Some(Numbers { order, min: Some(both.0), max: Some(both.1) });
        } else if has_byte_order(leaf) {
            found.bytes = Some((Some(min.to_vec()), Some(max.to_vec())));
        }
        Ok(found)
    }

    /// Whether the limits are the same, whatever the nulls.
    pub(super) fn has_limits_of(&self, other: &Self) -> bool {
        self.numbers == other.numbers && self.bytes == other.bytes
    }

    /// Whether nothing that `inner` lets in lies outside.
    pub(super) fn covers(&self, inner: &Self) -> bool {
        let below = inner.compare(self, Limit::Min, |inner, outer| outer <= inner);
        let above = inner.compare(self, Limit::Max, |inner, outer| inner <= outer);
        below && above
    }

    /// Whether a page with these bounds may come before one with those of `next`, in ascending order.
    pub(super) fn may_precede(&self, next: &Self) -> bool {
        let holds = |this: Rank<'_>, next: Rank<'_>| this.partial_cmp(&next).is_none_or(std::cmp::Ordering::is_le);
        [Limit::Min, Limit::Max].into_iter().all(|limit| self.compare(next, limit, holds))
    }

    /// Compares one limit of both, unless the other has none; a limit that only the other has does not compare.
    fn compare(&self, other: &Self, limit: Limit, holds: impl Fn(Rank<'_>, Rank<'_>) -> bool) -> bool {
        match (self.limit(limit), other.limit(limit)) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(this), Some(other)) => holds(this, other),
        }
    }

    fn limit(&self, limit: Limit) -> Option<Rank<'_>> {
        if let Some(Numbers { order, min, max }) = self.numbers {
            let number = if limit == Limit::Min { min } else { max };
            return number.map(|number| Rank::Number(order, number));
        }
        let (min, max) = self.bytes.as_ref()?;
        (if limit == Limit::Min { min } else { max }).as_deref().map(Rank::Bytes)
    }

    /// Whether values are hashed as numbers, so that [`Bounds::excludes_number`] is to be asked.
    pub(super) fn of_numbers(&self) -> bool {
        self.numbers.is_some_and(|numbers| numbers.min.is_some() || numbers.max.is_some())
    }

    /// Minimum and maximum of values that are hashed as bytes.
    pub(super) fn byte_limits(&self) -> Option<(Option<&[u8]>, Option<&[u8]>)> {
        self.bytes.as_ref().map(|(min, max)| (min.as_deref(), max.as_deref()))
    }

    #[cfg(test)]
    pub(super) fn of_bytes_between(min: &[u8], max: &[u8]) -> Self {
        Self { numbers: None, bytes: Some((Some(min.to_vec()), Some(max.to_vec()))), null_count: None }
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

/// Which end of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    Min,
    Max,
}

/// A limit that compares with another of the same column; a NaN with none.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Rank<'a> {
    Number(Order, u64),
    Bytes(&'a [u8]),
}

impl PartialOrd for Rank<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        use std::cmp::Ordering::{Equal, Greater, Less};
        match (self, other) {
            (Self::Bytes(this), Self::Bytes(other)) => Some(this.cmp(other)),
            (Self::Number(order, this), Self::Number(_, other)) => {
                match (order.is_less(*this, *other), order.is_less(*other, *this)) {
                    (true, _) => Some(Less),
                    (_, true) => Some(Greater),
                    _ if order.is_nan(*this) || order.is_nan(*other) => None,
                    _ => Some(Equal),
                }
            }
            _ => None,
        }
    }
}

/// Whether the column's values are ordered as bytes.
pub(super) fn has_byte_order(leaf: &Leaf) -> bool {
    matches!(leaf.form, Form::Bytes | Form::Text) && leaf.type_text != "interval"
}

/// Four stored bytes as the number that is hashed.
fn whole32(form: Form, value: i32) -> u64 {
    match form {
        Form::Unsigned32(32) => u64::from(value.cast_unsigned()),
        Form::Unsigned32(bits) => u64::from(value.cast_unsigned()) & ((1 << bits) - 1),
        _ => i64::from(value).cast_unsigned(),
    }
}

/// Stored bytes that are hashed as a number.
fn small(form: Form, value: &[u8]) -> Option<u64> {
    match form {
        Form::Float16 => value.first_chunk::<2>().map(|bits| u64::from(u16::from_le_bytes(*bits))),
        _ => decimal::<8>(value).ok().map(u64::from_le_bytes),
    }
}

impl Order {
    /// The order of the column's numbers, if its values are hashed as numbers.
    fn of(leaf: &Leaf) -> Option<Self> {
        match leaf.form {
            Form::Signed32 | Form::DecimalBytes64 => Some(Self::Signed),
            Form::Plain64 if leaf.type_text != "uint64" => Some(Self::Signed),
            Form::Plain64 | Form::Unsigned32(_) | Form::Bool => Some(Self::Unsigned),
            Form::Float16 => Some(Self::Float16),
            Form::Float32 => Some(Self::Float32),
            Form::Float64 => Some(Self::Float64),
            Form::Bytes | Form::Text | Form::Int96 => None,
            Form::DecimalIntWide | Form::DecimalBytes128 | Form::DecimalBytes256 => None,
        }
    }

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

    fn is_nan(self, value: u64) -> bool {
        match self {
            Self::Signed | Self::Unsigned => false,
            Self::Float16 => half(value).is_nan(),
            Self::Float32 => f32::from_bits(value as u32).is_nan(),
            Self::Float64 => f64::from_bits(value).is_nan(),
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
    fn a_bound_that_is_no_number_covers_nothing_and_has_no_place() {
        let bounds = |min: f64, max: f64| Bounds {
            numbers: Some(Numbers { order: Order::Float64, min: Some(min.to_bits()), max: Some(max.to_bits()) }),
            bytes: None,
            null_count: None,
        };
        assert!(bounds(0.0, 9.0).covers(&bounds(-0.0, 8.0)) && !bounds(0.0, 9.0).covers(&bounds(0.0, 9.5)));
        assert!(!bounds(0.0, 9.0).covers(&bounds(f64::NAN, f64::NAN)));
        assert!(bounds(0.0, 9.0).may_precede(&bounds(1.0, 9.0)) && !bounds(0.0, 9.0).may_precede(&bounds(1.0, 8.0)));
        assert!(bounds(0.0, 9.0).may_precede(&bounds(f64::NAN, f64::NAN)));
    }

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
