//! Keeps footers readable: the order of INT96 columns is told as every writer before told it.
//!
//! parquet-rs marks an INT96 column with an order that was added to the format later, which several readers cannot parse.
//! The list of column orders is the last field of a footer and each entry takes three bytes, so the mark is put right in
//! place. INT96 columns carry no minimum and maximum here, so the order speaks of nothing.

use std::io::{self, Write};

/// Bytes of one entry: a union with one empty structure.
const ENTRY: usize = 3;
/// First byte of an entry that says "by the type's own order": field 1, a structure.
const TYPE_ORDER: u8 = 0x1C;
/// Bytes behind the last entry: the end of the footer's structure, its length, and the magic.
const BEHIND: usize = 9;

/// Puts the orders of `leaves` columns right in the end of a Parquet file. A file of another shape is left alone.
pub fn settle_column_orders(file_end: &mut [u8], leaves: usize) {
    let Some(first) = file_end.len().checked_sub(BEHIND + leaves * ENTRY) else { return };
    let entries = &mut file_end[first..first + leaves * ENTRY];
    let known = |entry: &[u8]| entry[0] & 0x0f == 0x0c && entry[1] == 0 && entry[2] == 0;
    if entries.chunks_exact(ENTRY).all(known) {
        entries.chunks_exact_mut(ENTRY).for_each(|entry| entry[0] = TYPE_ORDER);
    }
}

/// Passes a file on and holds its end back, so that the column orders can be put right.
pub struct HoldingEnd<'a> {
    inner: &'a mut (dyn Write + Send),
    end: Vec<u8>,
    leaves: usize,
}

impl<'a> HoldingEnd<'a> {
    pub fn new(inner: &'a mut (dyn Write + Send), leaves: usize) -> Self {
        Self { inner, end: Vec::new(), leaves }
    }

    fn held(&self) -> usize {
        BEHIND + self.leaves * ENTRY
    }

    /// Passes the end on.
    pub fn finish(mut self) -> io::Result<()> {
        settle_column_orders(&mut self.end, self.leaves);
        self.inner.write_all(&self.end)
    }
}

impl Write for HoldingEnd<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let held = self.held();
        if buffer.len() >= held {
            self.inner.write_all(&self.end)?;
            self.end.clear();
            let (pass, hold) = buffer.split_at(buffer.len() - held);
            self.inner.write_all(pass)?;
            self.end.extend_from_slice(hold);
        } else {
            self.end.extend_from_slice(buffer);
            let excess = self.end.len().saturating_sub(held);
            self.inner.write_all(&self.end[..excess])?;
            self.end.drain(..excess);
        }
        Ok(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_back_is_passed_on_whole_and_in_order() {
        let content: Vec<u8> = (0..200u8).collect();
        for piece in [1, 3, 14, 15, 16, 200] {
            let mut passed = Vec::new();
            let mut holding = HoldingEnd::new(&mut passed, 2);
            content.chunks(piece).for_each(|chunk| holding.write_all(chunk).unwrap());
            holding.finish().unwrap();
            assert_eq!(passed, content, "pieces of {piece}");
        }
    }

    #[test]
    fn only_a_list_of_orders_is_touched() {
        let mut file = vec![9, 9, 0x3C, 0, 0, 0x1C, 0, 0, 0, 1, 2, 3, 4, b'P', b'A', b'R', b'1'];
        settle_column_orders(&mut file, 2);
        assert_eq!(file[2..8], [0x1C, 0, 0, 0x1C, 0, 0]);
        let mut other = vec![9, 9, 0x3C, 0, 7, 0x1C, 0, 0, 0, 1, 2, 3, 4, b'P', b'A', b'R', b'1'];
        let before = other.clone();
        settle_column_orders(&mut other, 2);
        assert_eq!(other, before);
    }
}
