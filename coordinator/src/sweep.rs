//! Cleans up what no reader needs any more.
