"""The same on an S3 server: into another prefix, in place, killed in the middle, and from S3 to a local disk."""

import signal

import pytest

from s3_server import BUCKET
from whole_tables import are_equal, ordered


@pytest.fixture
def place(s3, request):
    """A prefix of its own for each test."""
    return request.node.name.replace("[", "-").replace("]", "")


@pytest.mark.parametrize("name", ["flights", "lineitem", "claims"])
def test_a_data_set_reads_back_equal(s3, data_set, baler, tmp_path, place, name):
    table = data_set(name)
    s3.upload(table, f"{place}/in/{name}")
    before = s3.names(f"{place}/in")
    baler("compact", f"s3://{BUCKET}/{place}/in", "--out", f"s3://{BUCKET}/{place}/out", "--state", tmp_path / "state", env=s3.environment, timeout=280).ends(0)

    assert s3.names(f"{place}/in") == before
    s3.download(f"{place}/out", tmp_path / "out")
    made = ordered(tmp_path / "out" / name / "all")
    assert len(made) == 1
    are_equal(ordered(table / "all"), made)
    others = [key for key in s3.names(f"{place}/out") if "_baler/" not in key]
    assert others == [f"{name}/all/{made[0].name}"]


def test_from_s3_to_a_local_disk(s3, data_set, baler, tmp_path, place):
    table = data_set("flights")
    s3.upload(table, f"{place}/in/flights")
    baler("compact", f"s3://{BUCKET}/{place}/in", "--out", tmp_path / "out", env=s3.environment, timeout=280).ends(0)
    are_equal(ordered(table / "all"), ordered(tmp_path / "out/flights/all"))


def test_in_place_leaves_the_old_objects_and_lists_the_new(s3, data_set, baler, tmp_path, place):
    table = data_set("tiny")
    s3.upload(table, f"{place}/tiny")
    before = s3.names(f"{place}/tiny")
    location = f"s3://{BUCKET}/{place}"
    baler("compact", location, "--state", tmp_path / "state", env=s3.environment, timeout=280).ends(0)
    after = s3.names(f"{place}/tiny")
    assert [name for name in after if name.endswith(".parquet")] == before
    listed = baler("files", f"{location}/tiny", "--format", "list", env=s3.environment).ends(0).out.split()
    assert 0 < len(listed) < len(before)


def test_a_killed_run_is_resumed_to_the_same_objects(s3, data_set, baler, tmp_path, place):
    table = data_set("flights")
    s3.upload(table, f"{place}/in/flights")
    source = f"s3://{BUCKET}/{place}/in"
    points = baler("kill-points").ends(0).out.split()

    def published(prefix):
        s3.download(prefix, tmp_path / prefix)
        return {path.name: path.read_bytes() for path in ordered(tmp_path / prefix / "flights/all")}

    baler("compact", source, "--out", f"s3://{BUCKET}/{place}/whole", "--state", tmp_path / "whole", env=s3.environment, timeout=200).ends(0)
    whole = published(f"{place}/whole")
    for number, point in enumerate(points[:: max(1, len(points) // 4)]):
        arguments = ("compact", source, "--out", f"s3://{BUCKET}/{place}/{number}", "--state", tmp_path / f"state-{number}")
        killed = baler(*arguments, env={**s3.environment, "BALER_KILL_AT": point}, timeout=200)
        assert killed.code == -signal.SIGKILL, f"{point}\n{killed.story()}"
        # Another machine goes on: the first one's state folder is not there.
        again = (*arguments[:-1], tmp_path / f"other-{number}")
        baler(*again, env=s3.environment, timeout=200).ends(0)
        assert published(f"{place}/{number}") == whole, point
