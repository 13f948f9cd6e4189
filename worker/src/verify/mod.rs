//! The checking side: an independent reader that folds what is stored straight into fingerprints.

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::fingerprint::Fingerprint;
use baler_common::runtime::storage::Source;

use crate::context::Context;
use crate::mask::RowMask;
use crate::read::inputs::Inputs;

/// The output's schema as the checking side needs it.
#[derive(Debug)]
pub struct CheckSchema {}

impl CheckSchema {
    /// Reads the schema from the bytes of a Parquet file (or of the end of one), as a job carries it.
    pub fn from_parquet(_bytes: &[u8]) -> Result<Self, Failure> {
        Err(absent())
    }
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    pub fingerprint: Fingerprint,
    /// The decoder that read the rows, and columns that another one had to check.
    pub verified_by: String,
}

/// Fingerprint of all inputs concatenated. Rows outside the mask are left out: positions count kept rows only.
pub fn check_inputs(
    _inputs: &Inputs,
    _schema: &CheckSchema,
    _mask: Option<&RowMask>,
    _context: &Context,
) -> Result<Checked, Failure> {
    Err(absent())
}

/// Fingerprint of one stored object whose first row has `first_position` in the output's order. Checks the footer too.
pub fn check_object(
    _source: &Source,
    _schema: &CheckSchema,
    _first_position: u64,
    _context: &Context,
) -> Result<Checked, Failure> {
    Err(absent())
}

/// A 128-bit hash of every row of the inputs, in order, handed over in blocks: equal rows have equal hashes, where any
/// NaN equals any other, null equals null, and -0.0 differs from 0.0.
pub fn row_hashes(
    _inputs: &Inputs,
    _schema: &CheckSchema,
    _context: &Context,
    _sink: &mut dyn FnMut(&[[u64; 2]]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    Err(absent())
}

fn absent() -> Failure {
    Failure::new(FailureClass::Unsupported, "this build has no checking reader yet")
}
