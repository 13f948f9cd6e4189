"""Folders with links, pipes, strange names and strange times; arguments that contradict each other."""

import os
import socket
import stat

import pyarrow as pa
import pytest

from compaction import digests


def small(number=0):
    return pa.table({"n": [number, number + 1]})


def two_keys(source):
    for unit in ("t/bad", "t/good"):
        for chunk in range(2):
            source.put(unit, chunk, small(chunk))


def outside(tmp_path):
    """A file that is not below the source."""
    from compaction import Source

    return Source(tmp_path / "elsewhere").put("t/secret", 0, small(77))


def refuses_the_bad_key(source, compact, name):
    done = compact(timeout=60).refused("t/bad", name)
    done.has("t/good")


def test_a_link_to_a_file_outside_is_not_followed(source, compact, tmp_path):
    two_keys(source)
    os.symlink(outside(tmp_path), source.place("t/bad", 2))
    refuses_the_bad_key(source, compact, "chunks-0002.parquet")


def test_a_dangling_link_is_refused(source, compact, tmp_path):
    two_keys(source)
    os.symlink(tmp_path / "nowhere", source.place("t/bad", 2))
    refuses_the_bad_key(source, compact, "chunks-0002.parquet")


def test_a_loop_of_links_ends(source, compact):
    two_keys(source)
    os.symlink("chunks-0003.parquet", source.place("t/bad", 2))
    os.symlink("chunks-0002.parquet", source.place("t/bad", 3))
    refuses_the_bad_key(source, compact, "chunks-0002.parquet")


def test_a_folder_that_links_to_its_parent_is_not_walked(source, compact):
    two_keys(source)
    os.symlink("..", source.root / "t/good/up")
    done = compact(timeout=60)
    assert done.run.code in (0, 1) and "panicked at" not in done.run.said
    done.has("t/good")
    assert not (done.out / "t/good/up").exists()


def test_a_hard_link_is_a_file_like_any_other(source, compact):
    two_keys(source)
    os.link(source.place("t/good", 0), source.place("t/good", 2))
    source.rows["t/good"]["chunks-0002.parquet"] = source.rows["t/good"]["chunks-0000.parquet"]
    compact().succeeded().has("t/good")


def test_a_pipe_is_refused_without_waiting_for_a_writer(source, compact):
    two_keys(source)
    os.mkfifo(source.place("t/bad", 2))
    refuses_the_bad_key(source, compact, "chunks-0002.parquet")


def test_a_socket_is_refused(source, compact, monkeypatch):
    two_keys(source)
    monkeypatch.chdir(source.root / "t/bad")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("chunks-0002.parquet")
        refuses_the_bad_key(source, compact, "chunks-0002.parquet")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_a_device_is_refused(source, compact):
    two_keys(source)
    try:
        os.mknod(source.place("t/bad", 2), stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("this machine lets nobody make devices")
    refuses_the_bad_key(source, compact, "chunks-0002.parquet")


def test_a_folder_named_like_a_file_does_not_stop_the_others(source, compact):
    two_keys(source)
    source.place("t/bad", 2).mkdir()
    done = compact(timeout=60)
    assert done.run.code in (0, 1) and "panicked at" not in done.run.said
    done.has("t/good")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission_is_refused(source, compact):
    two_keys(source)
    source.place("t/bad", 1).chmod(0)
    refuses_the_bad_key(source, compact, "chunks-0001.parquet")


NAMES = ["%2e%2e", "#1", "a b", "back\\slash", "line\nbreak", "tab\there", "a" * 250, "\u202egnp", "\U0001f600", "-", "~", "a;b", "$(x)", "k=v=w", "\u2028"]


def test_strange_names_are_copied_as_they_are_or_refused_by_name(source, compact):
    for number, name in enumerate(NAMES):
        for chunk in range(2):
            source.put(f"t/{name}", chunk, small(number * 10 + chunk))
    source.put("t/good", 0, small())

    done = compact(timeout=60)
    assert done.run.code in (0, 1) and "panicked at" not in done.run.said, done.run.story()
    done.has("t/good")
    for name in NAMES:
        if done.outputs(f"t/{name}"):
            done.has(f"t/{name}", readers=["pyarrow"])
        else:
            assert done.run.code == 1, f"{name!r} was left out in silence"
    made = {path.name for path in (done.out / "t").iterdir()}
    assert made <= {*NAMES, "good", "_baler"}, "a name was changed"


def test_a_name_that_is_not_unicode_does_not_stop_the_others(source, compact):
    two_keys(source)
    folder = os.fsencode(source.root) + b"/t/\xff\xfe"
    os.mkdir(folder)
    with open(folder + b"/chunks-0000.parquet", "wb") as file:
        file.write(source.place("t/good", 0).read_bytes())

    done = compact(timeout=60)
    assert done.run.code in (0, 1) and "panicked at" not in done.run.said
    done.has("t/good")


@pytest.mark.parametrize("name", ["chunks-99999999999999999999999.parquet", "chunks--1.parquet", "chunks-0x10.parquet", "chunks-5-3.parquet"])
def test_a_number_that_is_none_is_refused_or_taken_as_a_plain_name(source, compact, name):
    two_keys(source)
    source.put_bytes("t/bad", name, source.place("t/bad", 0).read_bytes())
    done = compact(timeout=60)
    done.has("t/good")
    assert "panicked at" not in done.run.said
    if done.run.code == 0:  # all rows of all three files
        import pyarrow.parquet as pq

        counted = sum(pq.read_metadata(path).num_rows for path in (done.out / "t/bad").iterdir())
        assert counted == 6
    else:
        done.refused("t/bad", name)


@pytest.mark.parametrize("moment", [0, 1, 4_000_000_000], ids=["1970", "a second later", "2096"])
def test_times_of_files_do_not_matter(source, compact, moment):
    two_keys(source)
    for unit in source.rows:
        for path in source.paths(unit):
            os.utime(path, (moment, moment))
    compact().succeeded().has("t/good").has("t/bad")


def test_hundreds_of_files_of_one_row(source, compact):
    for chunk in range(600):
        source.put("t/many", chunk, pa.table({"n": [chunk]}))
    done = compact(timeout=250).succeeded().has("t/many", readers=["pyarrow"]).is_tidy()
    assert [path.name for path in done.outputs("t/many")] == ["chunks-0000-0599.parquet"]


def test_a_file_larger_than_the_target_is_alone_in_its_run(source, compact):
    for chunk in range(3):
        source.put("t/big", chunk, pa.table({"n": range(20_000)}), compression="none", use_dictionary=False)
    done = compact("--target-size", "1000").succeeded().has("t/big").is_tidy()
    assert [path.name for path in done.outputs("t/big")] == [f"chunks-000{i}-000{i}.parquet" for i in range(3)]


def test_a_destination_inside_its_source_is_refused_before_anything_is_done(source, baler):
    two_keys(source)
    before = digests(source.root)
    run = baler("compact", source.root, "--out", source.root / "out")
    assert run.code in (1, 2) and "panicked at" not in run.said, run.story()
    assert digests(source.root) == before and not (source.root / "out").exists()


def test_a_source_inside_its_destination_is_refused(source, baler, tmp_path):
    two_keys(source)
    before = digests(source.root)
    run = baler("compact", source.root, "--out", tmp_path)
    assert run.code in (1, 2) and "panicked at" not in run.said, run.story()
    assert digests(source.root) == before


def test_a_source_that_is_not_there_is_named(baler, tmp_path):
    run = baler("compact", tmp_path / "nowhere", "--out", tmp_path / "out")
    assert run.code in (1, 2), run.story()
    run.names("nowhere")


def test_an_empty_source_is_said(baler, tmp_path):
    (tmp_path / "empty").mkdir()
    run = baler("compact", tmp_path / "empty", "--out", tmp_path / "out")
    assert "panicked at" not in run.said and run.code in (0, 1, 2), run.story()
    assert run.said.strip(), "nothing was said"


def test_a_destination_that_cannot_be_written_is_refused_before_work(source, baler, tmp_path):
    two_keys(source)
    (tmp_path / "file").write_text("not a folder")
    run = baler("compact", source.root, "--out", tmp_path / "file")
    assert run.code in (1, 2) and "panicked at" not in run.said, run.story()
    run.names("file")
    assert (tmp_path / "file").read_text() == "not a folder"


@pytest.mark.parametrize("arguments", [["compact"], ["compact", "a", "--nonsense"], ["nonsense"], ["compact", "a", "--out", "b", "--target-size", "many"]])
def test_wrong_use_exits_with_2_and_touches_nothing(baler, tmp_path, arguments):
    run = baler(*arguments, cwd=tmp_path)
    run.ends(2)
    assert list(tmp_path.iterdir()) == []


def test_secrets_in_a_location_are_refused_and_not_repeated(baler, tmp_path):
    run = baler("compact", "s3://AKIAEXAMPLE:hunter2secret@bucket/path", "--out", tmp_path / "out", timeout=60)
    assert run.code in (1, 2), run.story()
    assert "hunter2secret" not in run.said


def test_a_plan_that_was_altered_is_not_applied(source, baler, tmp_path):
    two_keys(source)
    plan = tmp_path / "plan.json"
    baler("plan", source.root, "--out", tmp_path / "out", "--save", plan).ends(0)
    data = plan.read_bytes()
    assert b"chunks-0001" in data
    plan.write_bytes(data.replace(b"chunks-0001", b"chunks-0009", 1))

    run = baler("apply", plan)
    assert run.code in (1, 2) and "panicked at" not in run.said, run.story()
    assert not list((tmp_path / "out").rglob("*.parquet")) if (tmp_path / "out").exists() else True


def test_a_plan_that_was_saved_is_applied(source, baler, tmp_path, compact):
    two_keys(source)
    plan, out = tmp_path / "plan.json", tmp_path / "out"
    baler("plan", source.root, "--out", out, "--save", plan).ends(0)
    assert not list(out.rglob("*.parquet")) if out.exists() else True
    baler("apply", plan).ends(0)
    compact(out=out).succeeded().has("t/good").has("t/bad")
