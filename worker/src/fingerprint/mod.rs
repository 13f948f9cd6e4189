//! The arithmetic of fingerprints, definition v1 (`docs/fingerprint.md`). Pure.
//!
//! A row of a leaf is its slots `(r, d, value)`; each leaf folds its slots of a row into `V`, the `V` of all leaves add
//! up to `R`, and the rows' `R` add up, mixed with their position or not, to the fingerprint.

use baler_common::model::fingerprint::Fingerprint;
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128};

/// Factor of a slot's levels, by seed.
const LEVELS: [u64; 2] = [0x9E37_79B9_7F4A_7C15, 0xD1B5_4A32_D192_ED03];
/// Factor of a row's position, by seed.
const POSITIONS: [u64; 2] = [0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB];
/// What the order-free sum is set apart by, by seed.
const MULTISET: [u64; 2] = [0xA076_1D64_78BD_642F, 0xE703_7ED1_A0B4_28DB];

/// A bijection of 64 bits in which every input bit reaches every output bit.
#[inline(always)]
pub fn mix(mut x: u64) -> u64 {
    x ^= x >> 30;
    x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x ^= x >> 27;
    x = x.wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// What leaf number `leaf` of this type starts from, for both seeds.
pub fn salts(leaf: u32, type_text: &str) -> [u64; 2] {
    let text = format!("baler-fp-v1:{leaf}:{type_text}");
    [xxh3_64_with_seed(text.as_bytes(), 0), xxh3_64_with_seed(text.as_bytes(), 1)]
}

/// What the levels of a slot add, for both seeds. `definition` is canonical.
#[inline(always)]
pub fn levels(repetition: u16, definition: u16) -> [u64; 2] {
    let both = ((u64::from(repetition) << 16) | u64::from(definition)).wrapping_add(1);
    [both.wrapping_mul(LEVELS[0]), both.wrapping_mul(LEVELS[1])]
}

/// Adds consecutive rows, the first at `position`.
pub fn add_rows(total: &mut Fingerprint, rows: &[[u64; 2]], position: u64) {
    #[cfg(target_arch = "x86_64")]
    if has_wide_registers() {
        // SAFETY: the processor has the features that the function is compiled for.
        return unsafe { add_rows_wide(total, rows, position) };
    }
    add_each(total, rows, position);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
fn add_rows_wide(total: &mut Fingerprint, rows: &[[u64; 2]], position: u64) {
    add_each(total, rows, position);
}

#[inline(always)]
fn add_each(total: &mut Fingerprint, rows: &[[u64; 2]], position: u64) {
    // Eight rows at a time, both seeds beside each other, with a sum for each place.
    let (blocks, rest) = rows.as_chunks::<8>();
    let (mut ordered, mut multiset) = ([[0u64; 2]; 8], [[0u64; 2]; 8]);
    for (number, block) in (0u64..).zip(blocks) {
        let first = position.wrapping_add(number * 8);
        for at in 0..8 {
            let place = first.wrapping_add(at as u64 + 1);
            for s in 0..2 {
                let row = block[at][s];
                ordered[at][s] = ordered[at][s].wrapping_add(mix(row.wrapping_add(place.wrapping_mul(POSITIONS[s]))));
                multiset[at][s] = multiset[at][s].wrapping_add(mix(row ^ MULTISET[s]));
            }
        }
    }
    for at in 0..8 {
        for s in 0..2 {
            total.ordered[s] = total.ordered[s].wrapping_add(ordered[at][s]);
            total.multiset[s] = total.multiset[s].wrapping_add(multiset[at][s]);
        }
    }
    total.rows += blocks.len() as u64 * 8;
    let first = position.wrapping_add(blocks.len() as u64 * 8);
    for (row, place) in rest.iter().zip(0u64..) {
        add_row(total, *row, first.wrapping_add(place));
    }
}

/// Whether 64-bit numbers can be multiplied eight at a time.
#[cfg(target_arch = "x86_64")]
fn has_wide_registers() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq") && is_x86_feature_detected!("avx512vl")
}

/// Makes each hash what its slot makes of a fresh row: `mix(base + hash)`, for both seeds.
pub fn mix_all(hashes: &mut [[u64; 2]], base: [u64; 2]) {
    #[cfg(target_arch = "x86_64")]
    if has_wide_registers() {
        // SAFETY: the processor has the features that the function is compiled for.
        return unsafe { mix_all_wide(hashes, base) };
    }
    mix_each(hashes, base);
}

/// The same, where 64-bit numbers are multiplied eight at a time.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
fn mix_all_wide(hashes: &mut [[u64; 2]], base: [u64; 2]) {
    mix_each(hashes, base);
}

#[inline(always)]
fn mix_each(hashes: &mut [[u64; 2]], base: [u64; 2]) {
    let mut bases = [0; 16];
    bases.chunks_exact_mut(2).for_each(|pair| pair.copy_from_slice(&base));
    let (blocks, rest) = hashes.as_flattened_mut().as_chunks_mut::<16>();
    for block in blocks {
        for (hash, base) in block.iter_mut().zip(bases) {
            *hash = mix(hash.wrapping_add(base));
        }
    }
    for (hash, base) in rest.iter_mut().zip(bases) {
        *hash = mix(hash.wrapping_add(base));
    }
}

/// The hash of a value that is hashed as bytes, for both seeds.
#[inline]
pub fn hash_bytes(bytes: &[u8]) -> [u64; 2] {
    let hash = xxh3_128(bytes);
    [hash as u64, (hash >> 64) as u64]
}

/// Adds a row with the sums `row` of its leaves, at `position` in the output's order.
#[inline(always)]
pub fn add_row(total: &mut Fingerprint, row: [u64; 2], position: u64) {
    for s in 0..2 {
        let placed = row[s].wrapping_add(position.wrapping_add(1).wrapping_mul(POSITIONS[s]));
        total.ordered[s] = total.ordered[s].wrapping_add(mix(placed));
        total.multiset[s] = total.multiset[s].wrapping_add(mix(row[s] ^ MULTISET[s]));
    }
    total.rows += 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_hashes_are_mixed_as_one_is() {
        for count in [0, 1, 7, 8, 9, 64, 1_001] {
            let hashes: Vec<[u64; 2]> = (0..count).map(|number: u64| [mix(number), !mix(number)]).collect();
            let base = [3, u64::MAX - 5];
            let one = |hash: &[u64; 2]| [0, 1].map(|s: usize| mix(base[s].wrapping_add(hash[s])));
            let wanted: Vec<[u64; 2]> = hashes.iter().map(one).collect();
            let mut found = hashes.clone();
            mix_all(&mut found, base);
            assert_eq!(found, wanted, "{count} hashes");
            let (mut one_by_one, mut together) = (Fingerprint::default(), Fingerprint::default());
            hashes.iter().zip(77..).for_each(|(row, position)| add_row(&mut one_by_one, *row, position));
            add_rows(&mut together, &hashes, 77);
            assert_eq!(together, one_by_one, "{count} rows");
        }
    }

    #[test]
    fn golden_vectors_of_the_definition() {
        assert_eq!(mix(1), 0x5692_161d_100b_05e5);
        assert_eq!(salts(0, "int32"), [0xc5b2_91cb_ba9c_7a29, 0xac7d_a009_269b_4c47]);
        assert_eq!(hash_bytes(b"abc"), [0x78af_5f94_892f_3950, 0x06b0_5ab6_733a_6185]);
        assert_eq!(hash_bytes(b""), [0x6001_c324_468d_497f, 0x99aa_06d3_0147_98d8]);
        assert_eq!(hash_bytes(&(-1i128).to_le_bytes()), [0xe687_3ce6_5343_027f, 0x2c75_c396_ceb7_747b]);
        let fold = |definition: u16, value: u64| -> [u64; 2] {
            let (salt, level) = (salts(0, "int32"), levels(0, definition));
            [0, 1].map(|s| mix(salt[s].wrapping_add(level[s]).wrapping_add(value)))
        };
        assert_eq!(fold(0, 0), [0xe047_b2cb_596a_f907, 0x109f_d309_267c_9465]);
        assert_eq!(fold(1, 7), [0x3b51_114a_270d_3970, 0x743b_3313_fae9_f687]);
        for (definition, ordered) in [
            (0, [0x56a8_e5c7_a0c3_8838, 0x6b68_5783_1ac6_0394]),
            (1, [0x0351_975c_aaf3_8b9f, 0xaae7_b2f0_d31d_2b64]),
            (2, [0x73fd_99e1_5857_65f5, 0x57bc_2ea5_2274_200d]),
        ] {
            let mut total = Fingerprint::default();
            add_row(&mut total, fold(definition, 0), 0);
            assert_eq!(total.ordered, ordered, "definition level {definition}");
        }
    }
}
