"""Whole data sets on a local disk: compacted, read back equal by three readers, in place and into a folder."""

import json
import shutil

import pyarrow.parquet as pq
import pytest

import rows
from compaction import digests, strays
from whole_tables import are_equal, ordered

SETS = ["tiny", "pages", "claims", "wide", "logs", "flights", "lineitem"]


@pytest.mark.parametrize("name", SETS)
def test_a_data_set_reads_back_equal(data_set, baler, tmp_path, name):
    table = data_set(name)
    before = digests(table)
    run = baler("compact", table.parent, "--out", tmp_path / "out", timeout=280).ends(0)
    assert digests(table) == before
    made = ordered(tmp_path / "out" / name / "all")
    assert len(made) == 1, run.story()
    assert are_equal(ordered(table / "all"), made) > 0
    assert strays(tmp_path / "out", {path for other in SETS for path in ordered(tmp_path / "out" / other / "all")}) == []


@pytest.mark.parametrize("name", ["lineitem", "claims"])
def test_several_outputs_read_back_equal(data_set, baler, tmp_path, name):
    table = data_set(name)
    source = tmp_path / "source"
    shutil.copytree(table, source / name)
    target = sum(path.stat().st_size for path in ordered(table / "all")) // 3
    baler("compact", source, "--out", tmp_path / "out", "--target-size", str(target), timeout=280).ends(0)
    made = ordered(tmp_path / "out" / name / "all")
    assert len(made) >= 3
    are_equal(ordered(table / "all"), made)


def test_the_result_is_said_with_its_four_checks(data_set, baler, tmp_path):
    source = tmp_path / "source"
    shutil.copytree(data_set("flights"), source / "flights")
    count = sum(pq.read_metadata(path).num_rows for path in ordered(source / "flights/all"))
    run = baler("compact", source, "--out", tmp_path / "out", timeout=200).ends(0)
    digits = "".join(c for c in run.said if c.isdigit() or c.isspace())
    assert str(count) in digits, run.story()
    assert "check" in run.said.lower(), run.story()


def test_compaction_in_place_lists_its_files_and_never_shows_a_row_twice(data_set, baler, tmp_path):
    table = tmp_path / "lake" / "flights"
    shutil.copytree(data_set("flights"), table)
    sources = ordered(table / "all")
    before = digests(table)
    baler("compact", table.parent, timeout=200).ends(0)

    # Old files stay, byte for byte, and a glob sees them alone.
    assert {name: digest for name, digest in digests(table).items() if name in before} == before
    assert sorted(path for path in table.rglob("*.parquet")) == sources
    listed = live(baler, table)
    assert 0 < len(listed) < len(sources)
    are_equal(sources, listed)


def live(baler, table):
    """The files of the current generation, as `baler files` lists them."""
    import pathlib

    run = baler("files", table, "--format", "list").ends(0)
    lines = [line for line in run.out.splitlines() if line.strip()]
    return [pathlib.Path(line.removeprefix("file://")) if line.startswith(("/", "file://")) else table / line for line in lines]


def test_in_place_is_idempotent_and_reverts(data_set, baler, tmp_path):
    table = tmp_path / "lake" / "tiny"
    shutil.copytree(data_set("tiny"), table)
    sources = ordered(table / "all")
    baler("compact", table.parent, timeout=200).ends(0)
    first = live(baler, table)
    baler("compact", table.parent, timeout=200).ends(0)
    assert live(baler, table) == first

    baler("revert", table).ends(0)
    assert sorted(live(baler, table)) == sources
    are_equal(sources, sources)


def test_gc_deletes_nothing_before_its_time(data_set, baler, tmp_path):
    table = tmp_path / "lake" / "tiny"
    shutil.copytree(data_set("tiny"), table)
    baler("compact", table.parent, timeout=200).ends(0)
    before = digests(table)
    baler("gc", table).ends(0)
    assert digests(table) == before, "a report deletes nothing"
    baler("gc", table, "--delete").ends(0)
    assert {name for name in before if name.endswith(".parquet")} <= set(digests(table))


def test_verify_status_history_and_fsck_agree_on_a_good_result(data_set, baler, tmp_path):
    source, out = tmp_path / "source", tmp_path / "out"
    shutil.copytree(data_set("tiny"), source / "tiny")
    baler("compact", source, "--out", out, timeout=200).ends(0)
    for command in ("verify", "status", "history", "fsck"):
        baler(command, out / "tiny", timeout=200).ends(0)


def test_verify_finds_one_flipped_bit_in_an_output(data_set, baler, tmp_path):
    source, out = tmp_path / "source", tmp_path / "out"
    shutil.copytree(data_set("tiny"), source / "tiny")
    baler("compact", source, "--out", out, timeout=200).ends(0)
    made = ordered(out / "tiny/all")[0]
    data = bytearray(made.read_bytes())
    data[len(data) // 3] ^= 4
    made.write_bytes(data)

    baler("verify", out / "tiny", timeout=200).ends(1).names(made.name)


def test_lists_for_scripts_are_lines_of_json(data_set, baler, tmp_path):
    source, out = tmp_path / "source", tmp_path / "out"
    shutil.copytree(data_set("tiny"), source / "tiny")
    baler("compact", source, "--out", out, timeout=200).ends(0)
    control = out / "tiny/_baler"
    for name in ("compact.jsonl", "manifest.jsonl", "files.jsonl", "audit.jsonl"):
        lines = (control / name).read_text().splitlines()
        assert lines and all(isinstance(json.loads(line), dict) for line in lines), name
    whole = json.loads((control / "TABLE.json").read_text()) if (control / "TABLE.json").exists() else json.loads((control / "tiny.json").read_text())
    count = sum(pq.read_metadata(path).num_rows for path in ordered(source / "tiny/all"))
    assert str(count) in json.dumps(whole)


def test_a_dry_run_writes_nothing(data_set, baler, tmp_path):
    baler("compact", data_set("tiny").parent, "--out", tmp_path / "out", "--dry-run", timeout=100).ends(0)
    assert not (tmp_path / "out").exists() or list((tmp_path / "out").rglob("*")) == []


def test_the_rows_of_a_nested_table_are_equal_one_by_one(data_set, baler, tmp_path):
    """The comparison by values, beside those by whole columns: null, empty and missing stay apart."""
    table = data_set("claims")
    source = tmp_path / "source"
    for path in ordered(table / "all")[:2]:
        small = source / "claims/all" / path.name
        small.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pq.read_table(path).slice(0, 600), small)
    baler("compact", source, "--out", tmp_path / "out").ends(0)
    expected = [row for path in ordered(source / "claims/all") for row in rows.by_pyarrow(path)]
    made = ordered(tmp_path / "out/claims/all")
    for name in rows.THREE:
        assert [row for path in made for row in rows.READERS[name](path)] == expected, name
