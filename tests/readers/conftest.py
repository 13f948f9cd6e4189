"""Data sets and the S3 server of the readers' tests; each is made once a session."""

import pathlib

import pytest

import s3_server
import shapes

# Small, and still several files a run.
SCALE = {"tiny": 0.01, "pages": 0.01, "claims": 0.01, "wide": 0.01, "logs": 0.01, "flights": 0.02, "lineitem": 0.02}


@pytest.fixture(scope="session")
def data_set(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    return lambda name: pathlib.Path(shapes.make(name, root / "src", SCALE[name]))


@pytest.fixture(scope="session")
def s3(tmp_path_factory):
    with s3_server.running(tmp_path_factory.mktemp("s3")) as server:
        yield server
