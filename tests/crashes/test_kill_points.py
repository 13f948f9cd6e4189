"""SIGKILL at every named point of a run, then the same command again: the result is that of a run nobody stopped.

`baler kill-points` prints the names; BALER_KILL_AT=name ends the process with SIGKILL when it gets there. What must be
identical afterwards is every published byte. What may differ lies in the control folders.
"""

import random
import shutil
import signal
import subprocess
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compaction import Compaction, Source, binary, digests

KEYS = ["pages/de", "pages/en", "claims/all"]


def lay_out(source):
    """Two tables, three keys, several runs: small files of ints, texts and lists."""
    for number, unit in enumerate(KEYS):
        for chunk in range(4):
            first = number * 10_000 + chunk * 500
            table = pa.table({
                "n": range(first, first + 500), "s": [f"text {i % 37}" if i % 5 else None for i in range(500)],
                "l": [list(range(i % 3)) for i in range(500)],
            })
            source.put(unit, chunk, table)
    size = source.paths(KEYS[0])[0].stat().st_size
    return ["--target-size", str(2 * size + size // 2)]  # two files a run


def leave_strangers(source, out):
    """What another program's killed run left in the destination: files that the commit sets aside."""
    for name in ("pages/de/chunks-0000-0000.parquet", "claims/gone/chunks-0000-0003.parquet"):
        path = out / name
        path.parent.mkdir(parents=True)
        path.write_bytes(source.paths(KEYS[0])[0].read_bytes())


def published(out):
    """Digests of what readers see."""
    return {name: digest for name, digest in digests(out).items() if "_baler" not in name.split("/")}


@pytest.fixture(scope="module")
def undisturbed(baler, tmp_path_factory):
    """(source, options, published digests) of a run that nobody stopped."""
    folder = tmp_path_factory.mktemp("undisturbed")
    source = Source(folder / "source")
    options = lay_out(source)
    leave_strangers(source, folder / "out")
    done = Compaction(baler, source, folder / "out", *options).succeeded().is_tidy()
    for unit in KEYS:
        done.has(unit)
    made = published(done.out)
    assert len(made) == 6
    return source, options, made


def points(program):
    run = subprocess.run([program, "kill-points"], capture_output=True, text=True, check=True)
    return run.stdout.split()


def pytest_generate_tests(metafunc):
    if "point" in metafunc.fixturenames:
        metafunc.parametrize("point", points(binary()))


def test_there_are_twenty_points_or_more(baler):
    names = points(baler.binary)
    assert len(set(names)) == len(names) >= 20


def resumed(baler, source, out, options, made):
    """Runs again without disturbance: all that a reader sees is as if nothing had happened."""
    done = Compaction(baler, source, out, *options).succeeded().is_tidy()
    assert published(out) == made
    for unit in KEYS:
        done.has(unit, readers=["pyarrow"])
    return done


def test_a_run_killed_at_a_point_is_resumed_to_the_same_bytes(baler, undisturbed, tmp_path, point):
    source, options, made = undisturbed
    out = tmp_path / "out"
    leave_strangers(source, out)
    strangers = published(out)
    killed = baler("compact", source.root, "--out", out, *options, env={"BALER_KILL_AT": point})
    assert killed.code == -signal.SIGKILL, f"{point} was not reached\n{killed.story()}"
    # A reader that comes now sees whole files only: each is one of the final ones, byte for byte.
    for name, digest in published(out).items() if out.exists() else ():
        assert digest in (made.get(name), strangers.get(name)), f"after {point}, {name} is no finished file"
    resumed(baler, source, out, options, made)


def test_a_run_killed_twice_at_the_same_point_is_resumed(baler, undisturbed, tmp_path):
    source, options, made = undisturbed
    for point in points(baler.binary)[::4]:
        out = tmp_path / point
        for _ in range(2):
            baler("compact", source.root, "--out", out, *options, env={"BALER_KILL_AT": point})
        resumed(baler, source, out, options, made)


def test_a_run_killed_at_random_moments_is_resumed(baler, undisturbed, tmp_path):
    """Ten kills in a row on one destination, each a little later than the last, then one run to the end."""
    source, options, made = undisturbed
    draw = random.Random(20)
    out = tmp_path / "out"
    start = time.monotonic()
    baler("compact", source.root, "--out", tmp_path / "timed", *options)
    whole = time.monotonic() - start
    for number in range(10):
        process = subprocess.Popen(
            [baler.binary, "compact", source.root, "--out", out, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(whole * draw.uniform(0.0, 0.9))
        process.kill()
        process.wait()
    resumed(baler, source, out, options, made)


def test_a_second_run_redoes_no_verified_output(baler, undisturbed, tmp_path):
    """Killed after the first receipts: the files of those jobs are adopted, not written anew."""
    source, options, made = undisturbed
    out = tmp_path / "out"
    late = [point for point in points(baler.binary) if "commit" in point or "publish" in point]
    assert late, "no point of the commit is named"
    baler("compact", source.root, "--out", out, *options, env={"BALER_KILL_AT": late[-1]})
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
    resumed(baler, source, out, options, made)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_an_interrupt_drains_and_a_second_run_ends_the_work(baler, undisturbed, tmp_path):
    source, options, made = undisturbed
    out = tmp_path / "out"
    process = subprocess.Popen(
        [baler.binary, "compact", source.root, "--out", out, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    # An attempt is writing.
    give_up = time.monotonic() + 30
    while not list(out.glob("*/_baler/staging/*")) and process.poll() is None and time.monotonic() < give_up:
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert "panicked at" not in said
    assert process.returncode != -signal.SIGINT, "the signal was not handled"
    resumed(baler, source, out, options, made)


def test_a_result_copied_to_another_machine_is_resumed_from_the_destination_alone(baler, undisturbed, tmp_path):
    """The embedded store is lost; receipts and outputs in the destination are enough."""
    import shutil

    source, options, made = undisturbed
    out, moved = tmp_path / "out", tmp_path / "moved"
    middle = points(baler.binary)
    baler("compact", source.root, "--out", out, *options, env={"BALER_KILL_AT": middle[len(middle) // 2]})
    shutil.copytree(out, moved)
    for store in moved.rglob("state.redb"):
        store.unlink()
    resumed(baler, source, moved, options, made)


@pytest.mark.parametrize("rare", ["commit-set-aside-before", "commit-set-aside-after"])
def test_a_run_killed_while_it_sets_files_aside_is_resumed(baler, undisturbed, tmp_path, rare):
    source, options, made = undisturbed
    out = tmp_path / "out"
    leave_strangers(source, out)
    killed = baler("compact", source.root, "--out", out, *options, env={"BALER_KILL_AT": rare})
    assert killed.code == -signal.SIGKILL, f"{rare} was not reached\n{killed.story()}"
    resumed(baler, source, out, options, made)


SWAP_POINTS = ["swap-built", "swap-between", "swap-exchanged", "swap-moved", "swap-generation"]


@pytest.mark.parametrize("rare", SWAP_POINTS)
def test_an_exchange_of_folders_that_is_killed_is_finished(baler, undisturbed, tmp_path, rare):
    """`--swap` in place. At each moment the plain names hold the old files or the new ones; then all are the new ones."""
    source, options, _ = undisturbed
    table, whole = tmp_path / "table", tmp_path / "whole"
    shutil.copytree(source.root / "pages", table)
    shutil.copytree(source.root / "pages", whole)
    old = published(table)
    baler("compact", whole, "--as", "table", "--swap", *options).ends(0)
    new = published(whole)
    assert new and not set(new) & set(old)
    killed = baler("compact", table, "--as", "table", "--swap", *options, env={"BALER_KILL_AT": rare})
    assert killed.code == -signal.SIGKILL, f"{rare} was not reached\n{killed.story()}"
    assert not table.exists() or published(table) in (old, new), f"after {rare}, a reader sees a mixture"
    again = baler("compact", table, "--as", "table", "--swap", *options).ends(0)
    assert published(table) == new, again.story()
    baler("fsck", table, "--full").ends(0)
    rows = [row for key in ("de", "en") for path in sorted((table / key).glob("*.parquet")) for row in pq.read_table(path).to_pylist()]
    assert rows == [row for unit in KEYS[:2] for path in source.paths(unit) for row in pq.read_table(path).to_pylist()]


@pytest.mark.parametrize("rare", SWAP_POINTS)
@pytest.mark.parametrize("command", [["revert"], ["gc", "--delete", "--retention", "0s"], ["fsck", "--full"], ["verify"], ["plan", "--as", "table"]])
def test_other_commands_after_an_exchange_that_was_killed_lose_nothing(baler, undisturbed, tmp_path, rare, command):
    source, options, _ = undisturbed
    table = tmp_path / "table"
    shutil.copytree(source.root / "pages", table)
    baler("compact", table, "--as", "table", "--swap", *options, env={"BALER_KILL_AT": rare})
    first, *more = command
    done = baler(first, table, *more)
    if first == "plan" and rare != "swap-generation":
        done.ends(1).names("exchange of folders", "cut short")
    assert "panicked" not in done.said and done.code in (0, 1), done.story()
    if first == "fsck" and rare != "swap-generation":
        done.ends(1).names("exchange of folders", "cut short")
    if first == "revert":
        done.ends(0)
    listed = baler("compact", table, "--as", "table", *options).ends(0)
    names = baler("files", table, "--format", "list").ends(0).out.split()
    rows = sorted(row["n"] for name in names for row in pq.read_table(table / name).to_pylist())
    wanted = sorted(row["n"] for unit in KEYS[:2] for path in source.paths(unit) for row in pq.read_table(path).to_pylist())
    assert rows == wanted, listed.story()
