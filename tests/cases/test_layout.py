"""Names and folders: which files form a key, in which order, and what the outputs are called."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import parquet_bytes

HIVE = [
    "region=a%2Fb", "region=a%252Fb", "region=50%25", "region=x y", "region=x%20y", "region=k%3Dv", "region=__HIVE_DEFAULT_PARTITION__",
    "region=na\u00efve", "region=nai\u0308ve", "region=\u6771\u4eac", "region=[a-c]*?", "region='q'", "region=a+b", "region=%C3%9F",
    "region=\u00df", "region=#1&2", "region={x}", "region=end.", "region=-", "region=~",
]


def numbered(number):
    return pa.table({"chunk": pa.array([number, number], pa.int64()), "row": pa.array([0, 1], pa.int32())})


def test_chunks_are_taken_in_the_order_of_their_numbers_at_any_width(source, compact):
    for number in (9998, 9999):
        source.put("claims/all", f"chunks-{number:04d}.parquet", numbered(number))
    for number in (10000, 10001, 10010, 99999, 100000):
        source.put("claims/all", f"chunks-{number}.parquet", numbered(number))
    for number in (0, 1, 2, 9, 10, 11, 100):
        source.put("claims/bare", f"chunks-{number}.parquet", numbered(number))
    for number in (7, 8):
        source.put("claims/wide", f"chunks-{number:06d}.parquet", numbered(number))

    done = compact().succeeded().is_tidy()
    for unit in source.rows:
        done.has(unit)
    assert [path.name for path in done.outputs("claims/all")] == ["chunks-009998-100000.parquet"]
    assert [path.name for path in done.outputs("claims/bare")] == ["chunks-0000-0100.parquet"]
    assert [path.name for path in done.outputs("claims/wide")] == ["chunks-0007-0008.parquet"]


def test_ranges_of_an_earlier_compaction_and_new_chunks_join_in_order(source, compact):
    source.put("claims/all", "chunks-0000-0003.parquet", numbered(0))
    source.put("claims/all", "chunks-0004.parquet", numbered(4))
    source.put("claims/all", "chunks-0005-0006.parquet", numbered(5))

    done = compact().succeeded().has("claims/all").is_tidy()
    assert [path.name for path in done.outputs("claims/all")] == ["chunks-0000-0006.parquet"]


@pytest.mark.parametrize(
    "names",
    [
        ["chunks-1.parquet", "chunks-0001.parquet"],
        ["chunks-0000-0003.parquet", "chunks-0002.parquet"],
        ["chunks-0000-0003.parquet", "chunks-0003-0005.parquet"],
    ],
    ids=["the same number twice", "a number inside a range", "overlapping ranges"],
)
def test_duplicate_or_overlapping_chunks_refuse_their_key_alone(source, compact, names):
    for name in names:
        source.put("claims/all", name, numbered(1))
    for chunk in range(2):
        source.put("claims/en", chunk, numbered(chunk))

    compact().refused("claims/all", *names).has("claims/en")


def test_files_without_numbers_are_taken_in_natural_order(source, compact):
    for number in (2, 10, 1):
        source.put("events/all", f"part{number}of12.parquet", numbered(number))

    done = compact().succeeded()
    done.has("events/all", expected=[row for number in (1, 2, 10) for row in source.rows["events/all"][f"part{number}of12.parquet"]])
    assert [path.name for path in done.outputs("events/all")] == ["chunks-0000-0002.parquet"]


def test_hive_folders_are_keys_byte_for_byte(source, compact):
    for number, folder in enumerate(HIVE):
        unit = f"events/{folder}" + (f"/day=2024-01-0{number % 3 + 1}" if number % 2 else "")
        for chunk in range(2):
            table = pa.table({"id": pa.array([number * 100 + chunk * 2, number * 100 + chunk * 2 + 1], pa.int64()), "v": [str(number), None]})
            source.put(unit, chunk, table)

    done = compact().succeeded().is_tidy()
    for unit in source.rows:
        done.has(unit).keeps_schema(unit)


def test_keys_of_any_depth_are_kept_apart(source, compact):
    for unit in ("t/a", "t/a/b", "t/a/b/c", "t/z"):
        for chunk in range(2):
            source.put(unit, chunk, numbered(len(unit) * 10 + chunk))

    done = compact().succeeded()
    for unit in source.rows:
        done.has(unit)


def test_files_that_are_not_parquet_by_name_are_left_alone(source, compact):
    for chunk in range(2):
        source.put("claims/all", chunk, numbered(chunk))
    for name in ("_SUCCESS", "notes.txt", ".hidden.parquet", "chunks-0000.parquet.crc"):
        source.put_bytes("claims/all", name, b"not data")

    compact().succeeded().has("claims/all").is_tidy()


def test_hundreds_of_tiny_row_groups_become_one(source, compact):
    for chunk in range(4):
        ids = range(chunk * 250, chunk * 250 + 250)
        source.put("trickle/all", chunk, pa.table({"id": pa.array(ids, pa.int64()), "s": [f"row {i}" for i in ids]}), row_group_size=1)

    done = compact().succeeded().has("trickle/all").keeps_schema("trickle/all").is_tidy()
    assert len(parquet_bytes.row_groups(parquet_bytes.footer(done.outputs("trickle/all")[0]))) == 1


def test_what_a_killed_foreign_run_left_doubles_no_row(source, compact, tmp_path):
    def people(first, last):
        return pa.table({"id": list(range(first, last)), "s": [f"r{i}" for i in range(first, last)]})

    for chunk in range(4):
        source.put("claims/all", chunk, people(chunk * 5, chunk * 5 + 5))
    for chunk in range(2):
        source.put("claims/en", chunk, people(100 + chunk * 3, 103 + chunk * 3))
    half, whole = io.BytesIO(), io.BytesIO()
    pq.write_table(people(0, 10), half)
    pq.write_table(people(0, 20), whole)
    out = tmp_path / "out"
    left = {
        "claims/all/chunks-0000-0001.parquet": half.getvalue(), "claims/all/chunks-0000-0003.parquet": whole.getvalue()[:400],
        "claims/all/chunks-0002-0003.parquet.tmp": whole.getvalue()[:100], "claims/en/chunks-0000-0001.parquet": b"",
        "claims/gone/chunks-0000-0000.parquet": whole.getvalue(),
    }
    for name, data in left.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(data)

    done = compact(out=out).succeeded()
    for unit in source.rows:
        done.has(unit)
    done.is_tidy()
    # Set aside, not thrown away: every byte is still in the control folder.
    kept = {path.read_bytes() for path in (out / "claims/_baler").rglob("*") if path.is_file()}
    assert half.getvalue() in kept
    assert not list((out / "claims/_baler").rglob("*.parquet")), "a glob would read what was set aside"


def test_a_second_run_has_nothing_to_do_and_changes_nothing(source, compact, baler, tmp_path):
    from compaction import digests

    for unit in ("claims/all", "claims/en"):
        for chunk in range(3):
            source.put(unit, chunk, numbered(chunk))

    first = compact().succeeded().is_tidy()
    published = {name: digest for name, digest in digests(first.out).items() if name.endswith(".parquet")}
    second = compact(out=first.out).succeeded()
    assert {name: digest for name, digest in digests(first.out).items() if name.endswith(".parquet")} == published
    for unit in source.rows:
        second.has(unit)


def test_a_changed_key_is_redone_and_its_old_outputs_leave_the_glob(source, compact):
    for unit in ("claims/all", "claims/en"):
        for chunk in range(3):
            source.put(unit, chunk, numbered(chunk))
    first = compact().succeeded()
    untouched = [path.stat().st_mtime_ns for path in first.outputs("claims/en")]

    source.put("claims/all", 3, numbered(3))
    second = compact(out=first.out).succeeded().has("claims/all").has("claims/en").is_tidy()
    assert [path.name for path in second.outputs("claims/all")] == ["chunks-0000-0003.parquet"]
    assert [path.stat().st_mtime_ns for path in second.outputs("claims/en")] == untouched


def test_a_key_that_is_gone_leaves_the_glob_too(source, compact):
    import shutil

    for unit in ("claims/all", "claims/en"):
        for chunk in range(2):
            source.put(unit, chunk, numbered(chunk))
    first = compact().succeeded()
    shutil.rmtree(source.root / "claims/en")
    del source.rows["claims/en"]

    second = compact(out=first.out).succeeded().has("claims/all").is_tidy()
    assert second.outputs("claims/en") == []


def test_a_lone_file_that_is_already_right_is_copied_byte_for_byte(source, compact, tmp_path):
    for chunk in range(2):
        source.put("claims/all", chunk, numbered(chunk))
    first = compact().succeeded()
    made = first.outputs("claims/all")[0]

    source.put("claims/one", made.name, numbered(0))
    (source.root / "claims/one" / made.name).write_bytes(made.read_bytes())
    second = compact(out=tmp_path / "second").succeeded()
    assert second.outputs("claims/one")[0].read_bytes() == made.read_bytes()


def test_equal_runs_give_equal_bytes(source, compact, tmp_path):
    for unit in ("claims/all", "claims/en"):
        for chunk in range(4):
            source.put(unit, chunk, numbered(chunk))

    digests = []
    for number in range(2):
        done = compact(out=tmp_path / f"out-{number}").succeeded()
        digests.append([path.read_bytes() for unit in source.rows for path in done.outputs(unit)])
    assert digests[0] == digests[1]


def test_a_target_size_cuts_runs_between_files(source, compact):
    for chunk in range(6):
        source.put("claims/all", chunk, pa.table({"n": range(chunk * 20_000, chunk * 20_000 + 20_000)}), compression="none", use_dictionary=False)
    size = source.paths("claims/all")[0].stat().st_size

    done = compact("--target-size", str(2 * size + 100)).succeeded().has("claims/all").is_tidy()
    assert [path.name for path in done.outputs("claims/all")] == ["chunks-0000-0001.parquet", "chunks-0002-0003.parquet", "chunks-0004-0005.parquet"]
