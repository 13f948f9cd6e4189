//! Reading input files for writing: opened, pinned, decoded column by column.

pub mod inputs;
