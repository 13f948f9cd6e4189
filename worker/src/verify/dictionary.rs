//! The dictionary of a column chunk: what its values hash to, and which of them given bounds exclude.

use super::bounds::Bounds;

/// A chunk's dictionary.
#[derive(Debug, Default)]
pub(super) struct Dictionary {
    pub hashes: Vec<[u64; 2]>,
    /// What each value makes of a fresh row, for a column that is not repeated.
    pub folded: Vec<[u64; 2]>,
    /// For each value whether the chunk's statistics exclude it; empty if they exclude none.
    pub outside: Vec<bool>,
    /// The values themselves, where they are ordered as bytes.
    pub words: Words,
}

impl Dictionary {
    /// For each value whether `bounds` exclude it; empty if they exclude none. No page may use one that they do.
    pub(super) fn excluded_by(&self, bounds: &Bounds) -> Vec<bool> {
        let found: Vec<bool> = if bounds.of_numbers() {
            self.hashes.iter().map(|hash| bounds.excludes_number(hash[0])).collect()
        } else {
            self.words.excluded_by(bounds)
        };
        if found.contains(&true) { found } else { Vec::new() }
    }
}

/// Values that are ordered as bytes.
///
/// Every page of a chunk asks for all of them, so each has a key that most often decides: the eight bytes that follow
/// what all values begin with.
#[derive(Debug, Default)]
pub(super) struct Words {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Bytes that all values begin with.
    shared: usize,
    keys: Vec<u64>,
}

impl Words {
    pub(super) fn new<'a>(values: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut found = Self::default();
        for value in values {
            let first = &found.bytes[..found.ends.first().copied().unwrap_or(0)];
            found.shared = match found.ends.is_empty() {
                true => value.len(),
                false => value.iter().zip(first).take(found.shared).take_while(|(a, b)| a == b).count(),
            };
            found.bytes.extend_from_slice(value);
            found.ends.push(found.bytes.len());
        }
        found.keys = (0..found.ends.len()).map(|place| key(&found.word(place)[found.shared..])).collect();
        found
    }

    fn word(&self, place: usize) -> &[u8] {
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[place]]
    }

    fn excluded_by(&self, bounds: &Bounds) -> Vec<bool> {
        let Some((min, max)) = bounds.byte_limits() else { return Vec::new() };
        let shared = self.bytes.get(..self.shared).unwrap_or_default();
        let limits = [min, max].map(|limit| limit.and_then(|limit| limit.strip_prefix(shared)).map(key));
        let whole = |place: usize| bounds.excludes_bytes(self.word(place));
        let [Some(least), Some(most)] = limits else { return (0..self.ends.len()).map(whole).collect() };
        let excluded = |(place, key): (usize, &u64)| {
            *key < least || *key > most || ((*key == least || *key == most) && whole(place))
        };
        self.keys.iter().enumerate().map(excluded).collect()
    }
}

/// The first eight bytes as a number: where it is smaller, so is the value.
fn key(value: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let taken = value.len().min(8);
    bytes[..taken].copy_from_slice(&value[..taken]);
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_decide_as_the_values_do() {
        let words: [&[u8]; 8] = [
            b"word",
            b"word\0",
            b"word\0\0\0\0\0\0\0\0a",
            b"word 10",
            b"word 9",
            b"wording of it",
            b"word\xff",
            b"wor",
        ];
        let limits: [&[u8]; 7] = [b"", b"word", b"word\0", b"word 1", b"wording of it", b"x", b"word\xff\xff"];
        for held in [&words[..7], &words[..], &words[..1], &[]] {
            let found = Words::new(held.iter().copied());
            for min in limits {
                for max in limits {
                    let bounds = Bounds::of_bytes_between(min, max);
                    let expected: Vec<bool> = held.iter().map(|word| *word < min || *word > max).collect();
                    assert_eq!(found.excluded_by(&bounds), expected, "{min:?} to {max:?}");
                }
            }
        }
    }
}
