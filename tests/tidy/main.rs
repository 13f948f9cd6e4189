//! Rules about the code itself, held by reading the sources as text.
//!
//! Each test is one "never" of the architecture; its message names the file, the line and the rule. The rules look at
//! code alone: comments, string literals and test modules are taken out first by [`sources::Source`].

mod dependencies;
mod directions;
mod naming;
mod purity;
mod sources;
