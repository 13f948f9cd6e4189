"""Fixtures of every suite: the binary, a source to lay out, a compaction of it."""

import pytest

from compaction import Baler, Compaction, Source, binary


@pytest.fixture(scope="session")
def baler():
    return Baler(binary())


@pytest.fixture
def source(tmp_path):
    return Source(tmp_path / "source")


@pytest.fixture
def compact(baler, source, tmp_path):
    """Compacts `source` to a new folder."""

    def run(*options, out=None, **more):
        return Compaction(baler, source, out or tmp_path / "out", *options, **more)

    return run
