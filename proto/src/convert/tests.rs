use super::*;

fn spec() -> JobSpec {
    JobSpec {
        job: JobId(3),
        table: "t".into(),
        key: "en".into(),
        mode: RowMode::Copy,
        inputs: vec![InputFile {
            object: ObjectRef::new("source", "en/chunks-0000.parquet"),
            bytes: 10,
            rows: 2,
            identity: Identity::Local { device: 1, inode: 2, modified_ns: -3, changed_ns: 4 },
            first_chunk: 0,
            last_chunk: 0,
            columns: ColumnMap::Leaves(vec![Some(0), None, Some(4)]),
        }],
        output_path: "en/chunks-0000-0000.parquet".into(),
        staging: ObjectRef::new("target", "_baler/staging"),
        schema: vec![1, 2, 3],
        options: WriteOptions {
            codec: Codec::Zstd { level: 3 },
            row_group_bytes: 128 << 20,
            page_bytes: 1 << 20,
            dictionary_bytes: 1 << 20,
            chunking: Some(ContentDefinedChunking { min_bytes: 256 << 10, max_bytes: 1 << 20, norm_level: 0 }),
            bloom_filters: vec![BloomFilter { leaf: 1, false_positives_ppm: 10_000, distinct_max: 9 }],
            statistics_truncate_bytes: Some(64),
        },
        memory_millibytes_per_row: 8_000,
        target_bytes: 500,
        key_values: vec![("a".into(), None), ("b".into(), Some("c".into()))],
    }
}

#[test]
fn a_job_comes_back_as_it_was_sent() {
    let spec = spec();
    assert_eq!(JobSpec::try_from(v1::JobSpec::from(&spec)), Ok(spec));
}

#[test]
fn the_digest_ignores_index_staging_and_table_and_nothing_else() {
    let first = job_digest(&spec());
    let moved = JobSpec { job: JobId(9), table: "u".into(), staging: ObjectRef::new("x", "y"), ..spec() };
    assert_eq!(job_digest(&moved), first);
    let mut other = spec();
    other.inputs[0].rows = 3;
    assert_ne!(job_digest(&other), first);
}

#[test]
fn the_digest_is_the_same_in_every_version() {
    let digest: String = job_digest(&spec()).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        digest, "f4e2eee6dc61d33b10820914529053162c83dcd451a042e8e84231839502dcec",
        "receipts of earlier versions must be found again"
    );
}

fn receipt() -> Receipt {
    let fingerprint = Fingerprint { rows: 2, ordered: [1, u64::MAX], multiset: [3, 4] };
    Receipt {
        outputs: vec![OutputFile {
            object: ObjectRef::new("target", "_baler/staging/00000003-000001-0102-0.part"),
            path: "en/chunks-0000-0000.parquet".into(),
            bytes: 19,
            rows: 2,
            row_groups: 1,
            sha256: [9; 32],
            identity: Identity::Etag { etag: "e".into(), version: Some("v".into()) },
            first_chunk: 0,
            last_chunk: 0,
            fingerprint,
        }],
        expected: fingerprint,
        stored: fingerprint,
        verified_by: "polars-parquet 0.55.2".into(),
        input_rows: 2,
        elapsed_ms: 12,
    }
}

fn outcome(result: Result<Receipt, Failure>) -> Outcome {
    let (compaction, attempt) = (CompactionId("c".into()), AttemptId([1; 8]));
    Outcome { compaction, epoch: Epoch(2), attempt, job: JobId(3), result }
}

#[test]
fn an_outcome_comes_back_as_it_was_sent() {
    let failure = Failure::new(FailureClass::InputCorrupt, "no footer").in_file("a.parquet").in_column("x.y");
    for outcome in [outcome(Ok(receipt())), outcome(Err(failure))] {
        assert_eq!(Outcome::try_from(v1::Outcome::from(&outcome)), Ok(outcome));
    }
}

/// What is said of an assignment whose message was changed.
fn of_job(change: impl Fn(&mut v1::JobSpec)) -> String {
    let assignment =
        Assignment { compaction: CompactionId("c".into()), epoch: Epoch(1), attempt: AttemptId([1; 8]), spec: spec() };
    let mut wire = v1::Assignment::from(&assignment);
    change(wire.spec.as_mut().unwrap());
    Assignment::try_from(wire).expect_err("the field is wrong").message
}

#[test]
fn a_wrong_field_is_named() {
    let cases: [(&str, fn(&mut v1::JobSpec)); 12] = [
        ("spec.mode: 77 is unknown", |spec| spec.mode = 77),
        ("spec.mode: 0 is unknown", |spec| spec.mode = 0),
        ("spec.inputs: are missing", |spec| spec.inputs.clear()),
        ("spec.inputs: are several, a file is taken over alone", |spec| {
            spec.mode = 2;
            spec.inputs.push(spec.inputs[0].clone());
        }),
        ("spec.inputs: bytes add up to more than can be stored", |spec| {
            spec.inputs[0].bytes = u64::MAX / 2;
            spec.inputs = vec![spec.inputs[0].clone(); 3];
        }),
        ("spec.inputs[0].object.path: \"/etc\" has an empty, \".\" or \"..\" segment", |spec| {
            spec.inputs[0].object.as_mut().unwrap().path = "/etc".into();
        }),
        ("spec.inputs[0].first_chunk: 1 is above the last chunk 0", |spec| spec.inputs[0].first_chunk = 1),
        ("spec.staging: is missing", |spec| spec.staging = None),
        ("spec.staging.store: \"a:b\" is not the alias of a store", |spec| {
            spec.staging.as_mut().unwrap().store = "a:b".into();
        }),
        ("spec.options.codec: -1 is unknown", |spec| spec.options.as_mut().unwrap().codec = -1),
        ("spec.options.page_bytes: is 0", |spec| spec.options.as_mut().unwrap().page_bytes = 0),
        ("spec.options.chunking.min_bytes: 9 is 0 or above max_bytes 8", |spec| {
            let cut = spec.options.as_mut().unwrap().chunking.as_mut().unwrap();
            (cut.min_bytes, cut.max_bytes) = (9, 8);
        }),
    ];
    for (message, change) in cases {
        assert_eq!(of_job(change), format!("message field {message}"));
    }
}

#[test]
fn a_path_that_leaves_its_root_is_refused() {
    let long = "a".repeat(256);
    for path in ["", "/a", "../a", "a/../b", "a/./b", "a//b", "a/", ".", "..", "a\0b", "a\nb", long.as_str()] {
        let message = of_job(|spec| spec.output_path = path.into());
        assert!(message.starts_with("message field spec.output_path: "), "{path:?}: {message}");
    }
    for path in ["a", "a/..b", "a/b.", "k=v/...", " ", "é"] {
        assert_eq!(check_path("p", path), Ok(()));
    }
}

#[test]
fn a_receipt_of_another_fingerprint_is_refused() {
    let mut wire = v1::Receipt::from(&receipt());
    wire.stored.as_mut().unwrap().version = 2;
    let message = Receipt::try_from(wire).expect_err("version 2").message;
    assert_eq!(message, "message field stored: is of version 2, this program has 1");
    let mut wire = v1::Outcome::from(&outcome(Ok(receipt())));
    let Some(v1::outcome::Result::Receipt(receipt)) = &mut wire.result else { panic!("it was a receipt") };
    receipt.outputs[0].sha256 = vec![1; 31].into();
    let message = Outcome::try_from(wire).expect_err("31 bytes").message;
    assert_eq!(message, "message field receipt.outputs[0].sha256: is not 32 bytes");
}

#[test]
fn an_unknown_class_of_failures_is_refused() {
    let mut wire = v1::Outcome::from(&outcome(Err(Failure::new(FailureClass::Policy, "x"))));
    let Some(v1::outcome::Result::Failure(failure)) = &mut wire.result else { panic!("it was a failure") };
    failure.code = "NEW".into();
    let message = Outcome::try_from(wire).expect_err("unknown").message;
    assert_eq!(message, "message field failure.code: \"NEW\" is unknown");
}
