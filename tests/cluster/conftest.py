"""The data that every test compacts, what one machine makes of it, and a cluster for each test."""

import pyarrow as pa
import pytest

from compaction import CONTROL, Compaction, Source, digests

from cluster.cluster import Cluster

UNITS = ["pages/de", "pages/en", "claims/all", "labels/a", "labels/b"]
FILES = 12
ROWS = 6_000


def lay_out(root, files=FILES):
    """Three tables, five keys, thirty jobs of two files; fewer where a test is about something else."""
    source = Source(root)
    for number, unit in enumerate(UNITS):
        for chunk in range(files):
            first = (number * files + chunk) * ROWS
            table = pa.table({
                "n": range(first, first + ROWS),
                "s": [f"text {i * 7919 % 100_003}" if i % 5 else None for i in range(first, first + ROWS)],
                "l": [list(range(i % 3)) for i in range(ROWS)],
            })
            source.put(unit, chunk, table)
    size = max(path.stat().st_size for unit in UNITS for path in source.paths(unit))
    source.options = ["--target-size", str(2 * size + size // 3)]
    source.jobs = len(UNITS) * files // 2
    source.before = digests(source.root)
    return source


def on_one_machine(baler, folder, files=FILES):
    """The data, with `made`: the digests of what a single machine publishes."""
    source = lay_out(folder / "source", files)
    done = Compaction(baler, source, folder / "out", *source.options).succeeded().is_tidy()
    source.made = {name: digest for name, digest in digests(done.out).items() if CONTROL not in name.split("/")}
    assert len(source.made) == source.jobs
    return source


@pytest.fixture(scope="session")
def source(baler, tmp_path_factory):
    return on_one_machine(baler, tmp_path_factory.mktemp("one-machine"))


@pytest.fixture(scope="session")
def small_source(baler, tmp_path_factory):
    """Ten jobs."""
    return on_one_machine(baler, tmp_path_factory.mktemp("small"), files=4)


@pytest.fixture
def cluster(baler, source, tmp_path):
    cluster = Cluster(baler.binary, tmp_path / "cluster", source)
    yield cluster
    cluster.end()
