//! Compression contexts that are made once a thread and used for every page.

use std::cell::RefCell;

use parquet::basic::CompressionCodec;
use zstd::bulk::{Compressor, Decompressor};

thread_local! {
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Whether pages of this codec can be read here.
pub fn is_known(codec: CompressionCodec) -> bool {
    matches!(codec, CompressionCodec::ZSTD | CompressionCodec::SNAPPY | CompressionCodec::UNCOMPRESSED)
}

/// Replaces `into` by the content of a page, which must be `length` bytes.
pub fn decompress(codec: CompressionCodec, stored: &[u8], length: usize, into: &mut Vec<u8>) -> Option<()> {
    into.clear();
    if length == 0 {
        return Some(());
    }
    match codec {
        CompressionCodec::UNCOMPRESSED => into.extend_from_slice(stored),
        CompressionCodec::SNAPPY => {
            if snap::raw::decompress_len(stored).ok()? != length {
                return None;
            }
            into.resize(length, 0);
            snap::raw::Decoder::new().decompress(stored, into).ok()?;
        }
        CompressionCodec::ZSTD => {
            into.reserve(length);
            DECOMPRESSOR.with_borrow_mut(|pooled| {
                if pooled.is_none() {
                    *pooled = Some(Decompressor::new().ok()?);
                }
                pooled.as_mut()?.decompress_to_buffer(stored, into).ok()
            })?;
        }
        _ => return None,
    }
    (into.len() == length).then_some(())
}

/// Compresses a page with zstd.
pub fn compress(content: &[u8], level: i32) -> Option<Vec<u8>> {
    COMPRESSOR.with_borrow_mut(|pooled| {
        if pooled.is_none() {
            *pooled = Some(Compressor::new(level).ok()?);
        }
        let compressor = pooled.as_mut()?;
        compressor.set_compression_level(level).ok()?;
        compressor.compress(content).ok()
    })
}
