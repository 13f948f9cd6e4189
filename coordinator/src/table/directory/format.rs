//! A directory as a [`TableFormat`]: what the commit asks of it, in the words that all formats share.

use baler_common::model::error::{Failure, FailureClass};
use baler_common::runtime::killpoint::killpoint;

use super::checks::{self, Checks, RowCounter};
use super::publish::{Publication, carry_out};
use super::{DirectoryTable, generation};
use crate::table::{CommitToken, TableFormat};

/// A table with all that its commits and checks need.
pub struct DirectoryFormat<'a> {
    /// Where inputs lie; in place the table itself.
    pub source: &'a DirectoryTable,
    pub target: &'a DirectoryTable,
    pub count_rows: &'a RowCounter<'a>,
}

impl TableFormat for DirectoryFormat<'_> {
    type Replacement = Publication;

    fn newest(&self) -> Result<u64, Failure> {
        Ok(generation::numbers(self.target)?.last().copied().unwrap_or(0))
    }

    fn commit(&self, publication: &Publication) -> Result<u64, Failure> {
        let generation = carry_out(self.target, publication)?;
        killpoint("commit-generation-before");
        if !generation::create(self.target, &generation)? {
            let message = format!("another commit made generation {}: plan again", generation.generation);
            return Err(Failure::new(FailureClass::Transient, message).in_file(self.target.describe("")));
        }
        killpoint("commit-generation-after");
        Ok(generation.generation)
    }

    fn find_commit(&self, token: &CommitToken) -> Result<Option<u64>, Failure> {
        // Newest first: a commit that is looked for is one of the last.
        for number in generation::numbers(self.target)?.into_iter().rev() {
            if generation::read(self.target, number)?.token == *token {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    fn check(&self, version: u64) -> Result<Checks, Failure> {
        let generation = generation::read(self.target, version)?;
        let parent = match generation.parent {
            0 => None,
            parent => Some(generation::read(self.target, parent)?),
        };
        checks::run(self.target, Some(self.source), &generation, parent.as_ref(), self.count_rows)
    }
}
