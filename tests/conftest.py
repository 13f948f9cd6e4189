"""Fixtures of every suite: the binary, a source to lay out, a compaction of it."""

import os
import pathlib

import pytest

from compaction import Baler, Compaction, Source

ROOT = pathlib.Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def baler():
    """The binary under test: $BALER, else the development build."""
    binary = pathlib.Path(os.environ.get("BALER", ROOT / "target/debug/baler"))
    assert binary.is_file(), f"{binary} is not built: cargo build"
    return Baler(str(binary))


@pytest.fixture
def source(tmp_path):
    return Source(tmp_path / "source")


@pytest.fixture
def compact(baler, source, tmp_path):
    """Compacts `source` to a new folder."""

    def run(*options, out=None, **more):
        return Compaction(baler, source, out or tmp_path / "out", *options, **more)

    return run
