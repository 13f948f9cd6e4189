use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::id::{CompactionId, JobId};
use baler_common::model::job::{ColumnMap, InputFile};
use baler_common::model::object::{Identity, ObjectRef};
use baler_common::model::options::WriteOptions;
use baler_coordinator::plan::{KeyFigures, Refusal};

use super::*;

fn input(number: u64, mebibytes: u64) -> InputFile {
    InputFile {
        object: ObjectRef::new("source", format!("claims/en/chunks-{number:04}.parquet")),
        bytes: mebibytes << 20,
        rows: 1_000,
        identity: Identity::Unknown,
        first_chunk: number,
        last_chunk: number,
        columns: ColumnMap::Same,
    }
}

fn job(number: u32, mode: RowMode, inputs: Vec<InputFile>) -> JobSpec {
    let (first, last) = (inputs[0].first_chunk, inputs[inputs.len() - 1].last_chunk);
    JobSpec {
        job: JobId(number),
        table: "claims".into(),
        key: "en".into(),
        mode,
        inputs,
        output_path: format!("en/chunks-{first:04}-{last:04}.parquet"),
        staging: ObjectRef::new("target", "claims/_baler/staging"),
        schema: Vec::new(),
        options: WriteOptions::default(),
        memory_millibytes_per_row: 1,
        target_bytes: 500 << 20,
        key_values: Vec::new(),
    }
}

fn plan() -> Plan {
    let skip = Skip {
        key: "en".into(),
        file: "en/chunks-0012.parquet".into(),
        bytes: 505 << 20,
        rows: 1_000,
        reason: SkipReason::TooFewFiles { files: 1, min: 2 },
    };
    let failure = Failure::new(FailureClass::SchemaMismatch, "columns differ").in_file("de/b.parquet").in_column("a.b");
    Plan {
        compaction: CompactionId("run".into()),
        table: "claims".into(),
        source_location: "/data/claims".into(),
        base_generation: 0,
        publish: PublishMode::Destination,
        jobs: vec![
            job(0, RowMode::Copy, vec![input(1, 180), input(2, 210)]),
            job(1, RowMode::Verbatim, vec![input(3, 500)]),
            job(2, RowMode::Copy, (4..=13).map(|number| input(number, 1)).collect()),
        ],
        skips: vec![skip],
        refusals: vec![Refusal { key: "de".into(), failure }],
        keys: vec![KeyFigures { key: "en".into(), files: 14, bytes: 1_405 << 20, rows: 14_000 }],
        notes: vec!["taken for a table".into()],
    }
}

#[test]
fn a_plan_is_a_picture() {
    let expected = "\
table claims (/data/claims)
  note: taken for a table
key en: 14 files, 1.37 GiB, 14,000 rows
  chunks-0001.parquet                         180 MiB ┐
  chunks-0002.parquet                         210 MiB ┴─► en/chunks-0001-0002.parquet  390 MiB, 2,000 rows
  chunks-0003.parquet                         500 MiB ──► en/chunks-0003-0003.parquet  500 MiB, 1,000 rows, copy byte for byte
  chunks-0004.parquet                        1.00 MiB ┐
  chunks-0005.parquet                        1.00 MiB │
  chunks-0006.parquet                        1.00 MiB │
  … 5 more                                            │
  chunks-0012.parquet                        1.00 MiB │
  chunks-0013.parquet                        1.00 MiB ┴─► en/chunks-0004-0013.parquet  10.0 MiB, 10,000 rows
  chunks-0012.parquet                         505 MiB ──  stays: its run has 1 file, --min-input-files is 2
key de
  refused: SCHEMA_MISMATCH: de/b.parquet: column a.b: columns differ
3 jobs: 13 files (900 MiB) become 3 files or more of about 900 MiB in all, in about 7 s on 2 cores (a guess from the input bytes); 1 file stays as they are, 1 key is refused
";
    assert_eq!(picture(&plan(), 2, Style::plain()), expected);
}

#[test]
fn the_same_plan_for_machines_gives_every_reason() {
    let value = plan_json(&plan(), 2);
    assert_eq!(value["jobs"][1]["mode"], "copy byte for byte");
    assert_eq!(value["jobs"][0]["inputs"][1]["path"], "claims/en/chunks-0002.parquet");
    assert_eq!(value["skips"][0]["reason"], "too_few_files");
    assert_eq!(value["refusals"][0]["failure"]["column"], "a.b");
    assert_eq!(value["estimate"]["output_bytes"], 900u64 << 20);
}
