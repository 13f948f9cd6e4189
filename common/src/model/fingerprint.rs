//! The value that says "these rows, in this order", whatever the encoding. Defined in `docs/fingerprint.md`.

use std::fmt;

/// Version of the definition; stored beside every fingerprint.
pub const FINGERPRINT_VERSION: u32 = 1;

/// Rows and two pairs of wrapping sums: one that depends on the order of rows, one that does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Fingerprint {
    pub rows: u64,
    pub ordered: [u64; 2],
    pub multiset: [u64; 2],
}

impl Fingerprint {
    /// Adds a piece whose `ordered` sum was taken at its own offset in the whole.
    pub fn add(&mut self, piece: &Fingerprint) {
        self.rows = self.rows.wrapping_add(piece.rows);
        for s in 0..2 {
            self.ordered[s] = self.ordered[s].wrapping_add(piece.ordered[s]);
            self.multiset[s] = self.multiset[s].wrapping_add(piece.multiset[s]);
        }
    }

    /// Chains the fingerprint of the next output of a job that writes several: rows and the order-free sums add, the
    /// ordered sums are folded so that exchanged outputs show.
    pub fn followed_by(&self, next: &Fingerprint) -> Fingerprint {
        let fold = |s: usize| {
            self.ordered[s].rotate_left(17).wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(next.ordered[s])
        };
        let mut chained = *self;
        chained.add(&Fingerprint { ordered: [0; 2], ..*next });
        chained.ordered = [fold(0), fold(1)];
        chained
    }
}

/// `rows:ordered0.ordered1:multiset0.multiset1`, the sums as 16 hexadecimal digits.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([a, b], [c, d]) = (self.ordered, self.multiset);
        write!(f, "{}:{a:016x}.{b:016x}:{c:016x}.{d:016x}", self.rows)
    }
}

impl std::str::FromStr for Fingerprint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || -> Option<Fingerprint> {
            let mut parts = text.split(':');
            let rows = parts.next()?.parse().ok()?;
            let mut pair = || -> Option<[u64; 2]> {
                let (a, b) = parts.next()?.split_once('.')?;
                Some([u64::from_str_radix(a, 16).ok()?, u64::from_str_radix(b, 16).ok()?])
            };
            let found = Fingerprint { rows, ordered: pair()?, multiset: pair()? };
            parts.next().is_none().then_some(found)
        };
        parse().ok_or_else(|| format!("{text:?} is not a fingerprint"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips() {
        let value = Fingerprint { rows: 2_999, ordered: [1, u64::MAX], multiset: [0, 0xabc] };
        assert_eq!(value.to_string().parse(), Ok(value));
        assert!("1:2".parse::<Fingerprint>().is_err());
    }
}
