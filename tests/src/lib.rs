//! What no single crate can prove.
//!
//! `tidy` holds the rules about the code itself. The folders beside it are pytest suites that drive the `baler` binary
//! from its command line and read its outputs with three readers that are not Baler's: `cases` (one scenario a file),
//! `bad_inputs`, `crashes` (kill points) and `readers` (whole data sets, local disk and S3).
