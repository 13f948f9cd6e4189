//! The receipts beside the data: what lets a run, on this machine or another, take over what an earlier one proved.
//!
//! A verified job leaves `_baler/receipts/{digest}`, where the digest is of the work and not of the run: equal inputs,
//! cuts and options give an equal digest. [`adopt`] finds the receipts of a plan's jobs and believes each only as far as
//! it can be checked again: it proves its job as the judge asks, and every output, staged or already published, has the
//! size and SHA-256 that were measured. A receipt that cannot be used is no error, its job is done anew and writes a new
//! one over it.
//!
//! Deliberately absent: deleting receipts and outputs that nobody adopts (the sweep's).

use std::collections::HashSet;

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::id::JobId;
use baler_common::model::job::{JobSpec, RowMode};
use baler_common::model::object::ObjectRef;
use baler_common::model::outcome::Receipt;
use baler_proto::convert::job_digest;

use crate::driver::Evidence;
use crate::lifecycle::job::judge;
use crate::plan::{Plan, PublishMode};
use crate::state::records::{decode_receipt, encode_receipt};
use crate::table::directory::generation::hex;
use crate::table::directory::publish::published_object;
use crate::table::directory::{CONTROL, DirectoryTable, in_parallel};

/// The receipts of one table.
#[derive(Debug, Clone)]
pub struct TableReceipts {
    target: DirectoryTable,
}

impl TableReceipts {
    pub fn new(target: DirectoryTable) -> Self {
        Self { target }
    }
}

impl Evidence for TableReceipts {
    fn record(&self, spec: &JobSpec, receipt: &Receipt) -> Result<(), Failure> {
        for output in &receipt.outputs {
            named_as_planned(spec, &output.path)?;
            let staged = staged(&self.target, spec, &output.object)?;
            let found = self.target.head(staged)?.map(|info| info.bytes);
            if found != Some(output.bytes) {
                let message = match found {
                    Some(found) => format!("the output has {found} bytes, {} were written", output.bytes),
                    None => "the output is not there".to_owned(),
                };
                return Err(Failure::new(FailureClass::WorkerLost, message).in_file(self.target.describe(staged)));
            }
        }
        self.target.put(&receipt_path(spec), &encode_receipt(receipt))
    }
}

/// Where the receipt of a job is, below its table.
pub fn receipt_path(spec: &JobSpec) -> String {
    format!("{CONTROL}/receipts/{}", hex(&job_digest(spec)))
}

/// The jobs of the plan that an earlier run proved and whose outputs are still what it measured. Reads those outputs.
///
/// # Errors
/// The target cannot be read. A receipt that proves nothing is passed over.
pub fn adopt(plan: &Plan, target: &DirectoryTable) -> Result<Vec<(JobId, Receipt)>, Failure> {
    // One listing instead of a look for every job.
    let left: HashSet<String> =
        target.list(&format!("{CONTROL}/receipts"))?.into_iter().map(|info| info.path).collect();
    let jobs: Vec<&JobSpec> = plan.jobs.iter().filter(|spec| left.contains(&receipt_path(spec))).collect();
    let found = in_parallel(&jobs, |spec| proved(plan.publish, target, spec));
    let adopted = jobs.into_iter().zip(found).filter_map(|(spec, found)| match found {
        Ok(Some(receipt)) => Some(Ok((spec.job, receipt))),
        Ok(None) => None,
        Err(failure) if failure.class == FailureClass::Transient => Some(Err(failure)),
        Err(failure) => {
            tracing::warn!(job = %spec.job, %failure, "an earlier receipt is passed over");
            None
        }
    });
    adopted.collect()
}

fn proved(mode: PublishMode, target: &DirectoryTable, spec: &JobSpec) -> Result<Option<Receipt>, Failure> {
    let Some(content) = target.read(&receipt_path(spec))? else { return Ok(None) };
    let receipt = decode_receipt(&content)?;
    judge(spec, &receipt)?;
    for output in &receipt.outputs {
        named_as_planned(spec, &output.path)?;
        let published = published_object(mode, &output.path, &job_digest(spec));
        let mut right = false;
        for place in [staged(target, spec, &output.object)?, &published] {
            right = right || target.sha256(place, output.bytes)? == Some(output.sha256);
        }
        if !right {
            return Ok(None);
        }
    }
    Ok(Some(receipt))
}

/// The name under which an output is published comes from the plan; where a job has several, its folder does.
fn named_as_planned(spec: &JobSpec, path: &str) -> Result<(), Failure> {
    let folder = |path: &str| path.rsplit_once('/').map(|(folder, _)| folder.to_owned());
    let right = match spec.mode {
        RowMode::Copy | RowMode::Verbatim => path == spec.output_path,
        RowMode::Distinct => folder(path) == folder(&spec.output_path) && path.ends_with(".parquet"),
    };
    if !right {
        let message = format!("the output is to be named {path}, the plan says {}", spec.output_path);
        return Err(Failure::new(FailureClass::Policy, message));
    }
    Ok(())
}

/// Path below the table of an output that must lie in the job's staging folder.
fn staged<'a>(target: &DirectoryTable, spec: &JobSpec, object: &'a ObjectRef) -> Result<&'a str, Failure> {
    let inside = object.path.strip_prefix(&spec.staging.path).is_some_and(|name| name.starts_with('/'));
    target.relative(&object.path).filter(|_| inside && object.store == spec.staging.store).ok_or_else(|| {
        let message = format!("it does not lie in the staging folder {}", spec.staging);
        Failure::new(FailureClass::Policy, message).in_file(object.to_string())
    })
}

#[cfg(test)]
mod tests;
