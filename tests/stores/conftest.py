"""The two stores, and one small table that every test uploads; each is made once a session."""

import random

import pyarrow as pa
import pytest

from compaction import Source
from stores import azurite, gcs_server

# The second has what a URL must quote.
KEYS = ["pages/lang=de", "pages/lang=en é+%", "claims/all", "claims/old"]


@pytest.fixture(scope="session")
def azure(tmp_path_factory):
    with azurite.running(tmp_path_factory.mktemp("azurite")) as container:
        yield container


@pytest.fixture(scope="session")
def google():
    with gcs_server.running() as bucket:
        yield bucket


@pytest.fixture(params=["azure", "google"])
def store(request):
    """Each of the stores in turn."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    """Two tables of two keys, forty files: numbers, texts with nulls, lists."""
    source, draw = Source(tmp_path_factory.mktemp("table")), random.Random(3)
    for number, unit in enumerate(KEYS):
        for chunk in range(10):
            count = draw.randrange(50, 300)
            first = number * 100_000 + chunk * 1_000
            source.put(unit, chunk, pa.table({
                "n": range(first, first + count),
                "s": [f"text {draw.randrange(90)}" if i % 5 else None for i in range(count)],
                "l": [list(range(i % 3)) for i in range(count)],
            }))
    return source


@pytest.fixture(scope="session")
def large(tmp_path_factory):
    """20 MiB of numbers by chance, which get no smaller: two parts of 8 MiB and a rest, once compacted."""
    source, draw = Source(tmp_path_factory.mktemp("large")), random.Random(5)
    for chunk in range(5):
        numbers = pa.Array.from_buffers(pa.int64(), 1 << 19, [None, pa.py_buffer(draw.randbytes(4 << 20))])
        source.put("large/all", chunk, pa.table({"n": numbers}))
    return source


@pytest.fixture
def place(request):
    """A prefix of its own for each test."""
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name).strip("-")
