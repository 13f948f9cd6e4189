use super::*;

fn generation() -> Generation {
    let fingerprint = Fingerprint { rows: 7, ordered: [1, u64::MAX], multiset: [3, 4] };
    let file = ListedFile {
        key: "en".into(),
        path: "en/chunks-0000-0001.parquet".into(),
        object: "_baler/data/en/chunks-0000-0001.parquet.0011223344556677.bale".into(),
        bytes: 120,
        rows: 7,
        identity: Identity::Local { device: 1, inode: u64::MAX, modified_ns: -5, changed_ns: 6 },
        first_chunk: 0,
        last_chunk: 1,
        sha256: Some([9; 32]),
        settled: true,
        since: 3,
        proof: Some(Proof {
            job: [8; 32],
            fingerprint,
            expected: fingerprint,
            stored: fingerprint,
            verified_by: "polars-parquet".into(),
        }),
        sources: vec![SourceFile {
            path: "en/\"ü\".parquet".into(),
            bytes: 60,
            rows: 3,
            identity: Identity::Etag { etag: "\"e\"".into(), version: Some("v".into()) },
        }],
    };
    let old = ListedFile { proof: None, sha256: None, identity: Identity::Unknown, sources: vec![], ..file.clone() };
    Generation {
        generation: 3,
        parent: 2,
        table: "claims".into(),
        source_location: "/data/claims".into(),
        token: CommitToken { compaction: "c".into(), plan: "ab".into() },
        created_ms: 5,
        publish: PublishMode::InPlace,
        made_by: MadeBy::Revert { undone: 2 },
        before: Figures { files: 2, bytes: 3, rows: 7 },
        listed_before: 2,
        added: 1,
        removed: 2,
        duplicate_rows: 0,
        live: vec![file],
        superseded: vec![SupersededFile { file: old, why: Why::Compacted, superseded_in: 3 }],
        kept_keys: vec![KeptKey { key: "all".into(), reason: "it was not selected".into() }],
    }
}

fn stored() -> String {
    String::from_utf8(encode(&generation()).unwrap()).unwrap()
}

fn refused(text: &str) -> String {
    decode(text.as_bytes()).unwrap_err().to_string()
}

#[test]
fn a_generation_round_trips_and_is_one_json_document() {
    assert_eq!(decode(stored().as_bytes()), Ok(generation()));
    let value: serde_json::Value = serde_json::from_str(&stored()).unwrap();
    assert_eq!(value["body"]["totals"]["rows"], 7);
}

#[test]
fn a_changed_body_is_refused() {
    let text = stored().replace("\"rows\":7", "\"rows\":8");
    assert_eq!(
        refused(&text),
        "INPUT_CORRUPT: manifest: its content is not what its digest says: it was changed or damaged, restore it from a copy"
    );
    let text = stored();
    for cut in 0..text.len() {
        if text.is_char_boundary(cut) && cut < text.trim_end().len() {
            assert!(decode(&text.as_bytes()[..cut]).is_err(), "cut at {cut}");
        }
    }
}

#[test]
fn another_version_is_refused_with_what_to_do() {
    let text = stored().replace("\"version\":1,\"sha256\"", "\"version\":2,\"sha256\"");
    assert_eq!(
        refused(&text),
        "UNSUPPORTED: manifest: it has version 2 and this Baler knows version 1: use the Baler that wrote it, or a newer one"
            .replace("manifest: ", "")
    );
}

#[test]
fn a_path_out_of_the_table_is_refused() {
    let mut bad = generation();
    bad.live[0].object = "../other/x.parquet".into();
    let message = decode(&encode(&bad).unwrap()).unwrap_err().message;
    assert_eq!(message, "manifest: \"../other/x.parquet\" is not a path below the table");
}
