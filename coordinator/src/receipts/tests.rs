use std::io::Write;

use baler_common::model::fingerprint::Fingerprint;
use baler_common::model::id::CompactionId;
use baler_common::model::job::{ColumnMap, InputFile, RowMode};
use baler_common::model::object::{Identity, ObjectRef};
use baler_common::model::options::WriteOptions;
use baler_common::model::outcome::OutputFile;
use baler_common::runtime::storage::Store;
use tempfile::TempDir;

use super::*;

struct Table {
    _folder: TempDir,
    target: DirectoryTable,
    plan: Plan,
}

fn table() -> Table {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open("target", folder.path().to_str().unwrap(), true).unwrap();
    let spec = |n: u32| JobSpec {
        job: JobId(n),
        table: "t".into(),
        key: "k".into(),
        mode: RowMode::Copy,
        inputs: vec![InputFile {
            object: ObjectRef::new("source", format!("t/k/chunks-{n:04}.parquet")),
            bytes: 1,
            rows: 10,
            identity: Identity::Unknown,
            first_chunk: n.into(),
            last_chunk: n.into(),
            columns: ColumnMap::Same,
        }],
        output_path: format!("k/chunks-{n:04}-{n:04}.parquet"),
        staging: ObjectRef::new("target", "t/_baler/staging"),
        schema: Vec::new(),
        options: WriteOptions::default(),
        memory_millibytes_per_row: 1,
        target_bytes: 1,
        key_values: Vec::new(),
    };
    let plan = Plan {
        compaction: CompactionId("run".into()),
        table: "t".into(),
        source_location: "/".into(),
        base_generation: 0,
        publish: PublishMode::Destination,
        jobs: vec![spec(0), spec(1)],
        skips: Vec::new(),
        refusals: Vec::new(),
        keys: Vec::new(),
        notes: Vec::new(),
    };
    Table { _folder: folder, target: DirectoryTable::new(store, "t"), plan }
}

/// Writes the staged output of a job and gives the receipt of it.
fn stage(table: &Table, n: usize) -> Receipt {
    let path = format!("t/_baler/staging/{n:08x}-000001-0102030405060708-0.part");
    let mut sink = table.target.store().create(&path).unwrap();
    write!(sink, "rows of {n}").unwrap();
    let stored = sink.finish().unwrap();
    let fingerprint = Fingerprint { rows: 10, ordered: [1, 2], multiset: [3, 4] };
    Receipt {
        outputs: vec![OutputFile {
            object: ObjectRef::new("target", path),
            path: table.plan.jobs[n].output_path.clone(),
            bytes: stored.bytes,
            rows: 10,
            row_groups: 1,
            sha256: stored.sha256,
            identity: stored.identity,
            first_chunk: n as u64,
            last_chunk: n as u64,
            fingerprint,
        }],
        expected: fingerprint,
        stored: fingerprint,
        verified_by: "test".into(),
        input_rows: 10,
        elapsed_ms: 1,
    }
}

fn record(table: &Table, n: usize, receipt: &Receipt) -> Result<(), Failure> {
    TableReceipts::new(table.target.clone()).record(&table.plan.jobs[n], receipt)
}

fn adopted(table: &Table) -> Vec<u32> {
    adopt(&table.plan, &table.target).unwrap().iter().map(|(job, _)| job.0).collect()
}

#[test]
fn a_recorded_job_is_adopted_staged_and_published() {
    let table = table();
    assert_eq!(adopted(&table), [0u32; 0]);
    let receipt = stage(&table, 1);
    record(&table, 1, &receipt).unwrap();
    assert_eq!(adopt(&table.plan, &table.target), Ok(vec![(JobId(1), receipt.clone())]));
    let staged = table.target.relative(&receipt.outputs[0].object.path).unwrap();
    table.target.publish(staged, &receipt.outputs[0].path).unwrap();
    assert_eq!(adopted(&table), [1]);
}

#[test]
fn an_output_in_place_is_found_under_its_name_there() {
    let mut table = table();
    table.plan.publish = PublishMode::InPlace;
    let receipt = stage(&table, 0);
    record(&table, 0, &receipt).unwrap();
    let name = published_object(PublishMode::InPlace, &receipt.outputs[0].path, &job_digest(&table.plan.jobs[0]));
    assert!(name.starts_with("_baler/data/") && !name.ends_with(".parquet"), "{name}");
    table.target.publish(table.target.relative(&receipt.outputs[0].object.path).unwrap(), &name).unwrap();
    assert_eq!(adopted(&table), [0]);
}

#[test]
fn a_changed_or_missing_output_is_not_adopted() {
    for change in [true, false] {
        let table = table();
        let receipt = stage(&table, 0);
        record(&table, 0, &receipt).unwrap();
        let staged = table.target.relative(&receipt.outputs[0].object.path).unwrap();
        if change {
            // The same size, so that only the digest tells.
            table.target.put(staged, b"rows of 9").unwrap();
        } else {
            table.target.publish(staged, "elsewhere").unwrap();
        }
        assert_eq!(adopted(&table), [0u32; 0], "changed: {change}");
    }
}

#[test]
fn a_damaged_or_foreign_receipt_is_passed_over_and_written_over() {
    let table = table();
    let receipt = stage(&table, 0);
    let path = receipt_path(&table.plan.jobs[0]);
    table.target.put(&path, b"BALE and then nothing").unwrap();
    assert_eq!(adopted(&table), [0u32; 0]);
    let refuted = Receipt { stored: Fingerprint { rows: 10, ..Fingerprint::default() }, ..receipt.clone() };
    table.target.put(&path, &encode_receipt(&refuted)).unwrap();
    assert_eq!(adopted(&table), [0u32; 0]);
    record(&table, 0, &receipt).unwrap();
    assert_eq!(adopted(&table), [0]);
}

#[test]
fn an_output_that_is_elsewhere_or_has_another_size_is_not_recorded() {
    let table = table();
    let mut receipt = stage(&table, 0);
    receipt.outputs[0].bytes += 1;
    let failure = record(&table, 0, &receipt).unwrap_err();
    assert_eq!(failure.class, FailureClass::WorkerLost);
    assert_eq!(failure.message, "the output has 9 bytes, 10 were written");
    for (store, path) in [("target", "t/k/chunks-0000.parquet"), ("source", "t/_baler/staging/x"), ("target", "u/x")] {
        receipt.outputs[0].object = ObjectRef::new(store, path);
        assert_eq!(record(&table, 0, &receipt).unwrap_err().class, FailureClass::Policy, "{store}:{path}");
    }
    let other = Receipt {
        outputs: vec![OutputFile { path: "k/other.parquet".into(), ..stage(&table, 1).outputs[0].clone() }],
        ..receipt
    };
    let failure = record(&table, 1, &other).unwrap_err();
    assert_eq!(failure.message, "the output is to be named k/other.parquet, the plan says k/chunks-0001-0001.parquet");
    assert_eq!(table.target.list("_baler/receipts").unwrap().len(), 0);
}
