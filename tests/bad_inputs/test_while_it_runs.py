"""What happens to a run from outside while it runs: inputs change, a decoder runs out of memory, a row group is huge."""

import contextlib
import os
import resource
import signal
import subprocess
import time

import numpy
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compaction import Compaction, Source, binary, digests

# The largest comes first, so the smallest is still untouched when the plan has just been written.
LARGE, SMALL = "t/large", "t/small"
ROWS_LARGE, ROWS_SMALL = 1_000_000, 1_000


def numbers(count, seed):
    made = numpy.random.default_rng(seed)
    return pa.table({"n": made.integers(0, 1 << 40, count), "s": made.integers(0, 1 << 20, count).astype(str)})


def lay_out(source):
    for chunk in range(2):
        pq.write_table(numbers(ROWS_LARGE, chunk), source.place(LARGE, chunk))
        source.put(SMALL, chunk, numbers(ROWS_SMALL, 10 + chunk))
    return source


@contextlib.contextmanager
def started(source, out, *options):
    """`baler compact`, running. What it says goes to a file beside the output."""
    said = out.parent / "said.txt"
    with open(said, "wb") as log:
        process = subprocess.Popen(
            [binary(), "compact", source.root, "--out", out, "--jobs", "1", *options],
            stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )
    try:
        yield process, lambda: said.read_text(errors="replace")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)
        process.kill()
        process.wait(30)


def until(condition, process, seconds=60):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert process.poll() is None, "the run ended too early"
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.002)
    return found


def replace(path):
    other = path.with_name("new")
    pq.write_table(numbers(ROWS_SMALL, 99), other)
    other.rename(path)


def append(path):
    with open(path, "ab") as file:
        file.write(b"more")


def rewrite(path):
    """The same size, the same inode, other bytes."""
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    with open(path, "r+b") as file:
        file.write(data)


def truncate(path):
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("change", [replace, append, rewrite, truncate, os.unlink])
def test_an_input_that_changes_stops_its_key_and_no_other(tmp_path, change):
    source, out = lay_out(Source(tmp_path / "source")), tmp_path / "out"
    victim = source.paths(SMALL)[1]
    with started(source, out) as (process, said):
        until(lambda: list(out.glob("t/_baler/plan/*")), process)
        os.kill(process.pid, signal.SIGSTOP)
        assert not list(out.glob("t/small/*.parquet")), "it was too fast"
        change(victim)
        os.kill(process.pid, signal.SIGCONT)
        assert process.wait(120) == 1, said()
        assert "panicked" not in said()
        assert victim.name in said() and ("INPUT_CHANGED" in said() or "INPUT_MISSING" in said()), said()
    assert not list(out.glob("t/small/*.parquet")), "a key that changed was published"
    assert len(list(out.glob("t/large/*.parquet"))) == 1, said()


def children(process):
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
        main = file.read().split()
    found = set(map(int, main))
    for task in os.listdir(f"/proc/{process.pid}/task"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{process.pid}/task/{task}/children") as file:
            found.update(map(int, file.read().split()))
    return found


def starve(process, how_many):
    """Takes the memory of the next children as they start: their address space must not grow. Returns how many."""
    starved = set()
    end = time.monotonic() + 90
    while process.poll() is None and len(starved) < how_many and time.monotonic() < end:
        try:
            new = children(process) - starved
        except FileNotFoundError:
            break
        for child in new:
            with contextlib.suppress(ProcessLookupError, PermissionError, FileNotFoundError):
                if os.readlink(f"/proc/{child}/exe") != os.path.realpath(binary()):
                    continue
                with open(f"/proc/{child}/cmdline") as file:
                    if "attempt" not in file.read():
                        continue
                resource.prlimit(child, resource.RLIMIT_AS, (1 << 20, 1 << 20))
                starved.add(child)
        time.sleep(0.001)
    return len(starved)


def test_a_decoder_without_memory_costs_one_attempt(tmp_path):
    source, out = lay_out(Source(tmp_path / "source")), tmp_path / "out"
    with started(source, out, "--isolate") as (process, said):
        assert starve(process, 1) == 1
        # How a process without memory dies is its own affair; that it costs nothing but the attempt is ours.
        assert process.wait(120) == 0, said()
    for unit in (LARGE, SMALL):
        made = list(out.glob(f"{unit}/*.parquet"))
        assert len(made) == 1
        before = pa.concat_tables(pq.read_table(path) for path in sorted((source.root / unit).iterdir()))
        assert pq.read_table(made[0]).equals(before)


def test_decoders_that_never_get_memory_fail_by_name(tmp_path):
    source, out = lay_out(Source(tmp_path / "source")), tmp_path / "out"
    before = digests(source.root)
    with started(source, out, "--isolate") as (process, said):
        assert starve(process, 1_000) > 1
        assert process.wait(10) == 1, said()
        assert "memory" in said() and "large/chunks-0000.parquet" in said(), said()
    assert digests(source.root) == before
    # A decoder of the small key may have ended before its memory was taken; the large one's never can.
    assert not list(out.glob("t/large/*.parquet"))


def resident_peak(process):
    """The most memory that the process had so far, in bytes; 0 when it is over."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{process.pid}/status") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    return 0


def test_a_row_group_larger_than_the_memory_streams(tmp_path):
    """Two files of one row group each, several times as large in memory as the run may take."""
    source, out = Source(tmp_path / "source"), tmp_path / "out"
    rows = 6_000_000
    for chunk in range(2):
        made = numpy.random.default_rng(chunk)
        table = pa.table({"a": made.integers(0, 1 << 62, rows), "b": made.integers(0, 1 << 40, rows)})
        pq.write_table(table, source.place("t/k", chunk), row_group_size=rows, use_dictionary=False)
        assert pq.read_metadata(source.place("t/k", chunk)).num_row_groups == 1
        assert table.nbytes > 90 << 20
    peak = 0
    with started(source, out, "--memory", "128MiB") as (process, said):
        while process.poll() is None:
            peak = max(peak, resident_peak(process))
            time.sleep(0.01)
        assert process.returncode == 0, said()
    # Each group takes 92 MiB as values, and both 183.
    assert 0 < peak < 140 << 20, peak
    made = list(out.glob("t/k/*.parquet"))
    assert len(made) == 1
    before = pa.concat_tables(pq.read_table(path) for path in sorted((source.root / "t/k").iterdir()))
    assert pq.read_table(made[0]).equals(before)
