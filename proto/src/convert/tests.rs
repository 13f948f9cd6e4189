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
            bloom_filters: vec![BloomFilter { leaf: 1, false_positives_ppm: 10_000, distinct_max: 9 }],
            ..WriteOptions::default()
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
fn a_wrong_field_is_named() {
    let message = |change: &dyn Fn(&mut v1::JobSpec)| {
        let mut wire = v1::JobSpec::from(&spec());
        change(&mut wire);
        JobSpec::try_from(wire).expect_err("the field is wrong").message
    };
    assert!(message(&|wire| wire.mode = 77).contains("mode: 77"));
    assert!(message(&|wire| wire.output_path = "a/../b".into()).contains("output_path"));
    assert!(message(&|wire| wire.inputs.clear()).contains("inputs"));
    assert!(message(&|wire| wire.staging = None).contains("staging: is missing"));
    assert!(message(&|wire| wire.inputs[0].object.as_mut().unwrap().path = "/etc".into()).contains("inputs.object"));
    assert!(message(&|wire| wire.options.as_mut().unwrap().codec = -1).contains("options.codec"));
}
