//! How output files are written. Part of the plan: equal options and equal inputs give equal bytes.

/// Compression of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    Uncompressed,
    Snappy,
    Lz4Raw,
    Gzip { level: u32 },
    Brotli { level: u32 },
    Zstd { level: i32 },
}

/// Content-defined cuts between pages, so that a content-addressed store finds unchanged pages again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentDefinedChunking {
    pub min_bytes: u64,
    pub max_bytes: u64,
    /// Added to the bits of the mask; higher gives more even chunks and finds fewer repeats.
    pub norm_level: i32,
}

/// Which columns get a bloom filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BloomFilter {
    /// Depth-first number of the leaf in the output schema.
    pub leaf: u32,
    /// False-positive probability in parts per million.
    pub false_positives_ppm: u32,
    /// Upper bound of distinct values; the filter is folded to what was seen.
    pub distinct_max: u64,
}

/// Writer options of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteOptions {
    pub codec: Codec,
    /// Size of a row group in memory, in bytes of Arrow arrays.
    pub row_group_bytes: u64,
    /// Size at which a page is cut where content-defined cuts do not come first, in encoded bytes.
    pub page_bytes: u64,
    /// A dictionary above this size is given up for plain pages; 0 writes no dictionaries.
    pub dictionary_bytes: u64,
    /// `None` cuts pages by size alone.
    pub chunking: Option<ContentDefinedChunking>,
    pub bloom_filters: Vec<BloomFilter>,
    /// Longest minimum and maximum of a byte column in the page index and statistics; `None` never truncates.
    pub statistics_truncate_bytes: Option<u32>,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self {
            codec: Codec::Zstd { level: 3 },
            row_group_bytes: 128 << 20,
            page_bytes: 1 << 20,
            dictionary_bytes: 1 << 20,
            chunking: Some(ContentDefinedChunking { min_bytes: 256 << 10, max_bytes: 1 << 20, norm_level: 0 }),
            bloom_filters: Vec::new(),
            statistics_truncate_bytes: Some(64),
        }
    }
}
