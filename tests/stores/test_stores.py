"""`baler compact` on Azure Blob Storage and on Google Cloud Storage, over HTTP: into another prefix, again, in place,
killed in the middle, and with an object that is uploaded in parts."""

import signal

import pytest

from stores.runs import Runs, live, published, reads_back, three_generations
from whole_tables import are_equal


@pytest.fixture
def runs(baler, store, tmp_path):
    return Runs(baler, store, tmp_path / "state")


def count(tables, word):
    return sum(table["jobs"][word] for table in tables)


def test_into_another_prefix_and_again(runs, store, table, place, tmp_path):
    store.upload(table.root, f"{place}/in")
    before = store.contents(f"{place}/in")
    assert len(before) == 40
    command = ("compact", store.location(f"{place}/in"), "--out", store.location(f"{place}/out"))

    tables = runs.result(*command)
    assert [(each["before"]["files"], each["after"]["files"]) for each in tables] == [(20, 2), (20, 2)]
    assert count(tables, "done") == 4
    assert len(reads_back(table, store, f"{place}/out", tmp_path / "out")) == 4
    assert store.contents(f"{place}/in") == before

    made = published(store, f"{place}/out")
    again = runs.result(*command)
    assert count(again, "done") == 0 and not any(each["changed"] for each in again)
    # Another machine, which has no state of the first, finds the work done as well.
    other = runs.result(*command, state=tmp_path / "other")
    assert count(other, "done") == 0
    assert published(store, f"{place}/out") == made
    runs.is_sound(store.location(f"{place}/out"))


def test_in_place_and_back(runs, store, table, place, tmp_path):
    store.upload(table.root, place)
    before = store.contents(place)
    location = store.location(place)

    tables = runs.result("compact", location)
    assert count(tables, "done") == 4
    assert published(store, place) == before
    files = live(runs, store, table, place, tmp_path / "compacted")
    assert sorted(files) == sorted(table.rows) and all(len(paths) == 1 for paths in files.values())
    for unit, paths in files.items():
        are_equal(table.paths(unit), paths)
    runs.is_sound(location)

    runs("revert", location).ends(0)
    files = live(runs, store, table, place, tmp_path / "reverted")
    assert sum(map(len, files.values())) == 40
    for unit, paths in files.items():
        are_equal(table.paths(unit), paths)
    assert published(store, place) == before
    runs.is_sound(location)


def test_a_killed_run_is_resumed_to_the_same_objects(runs, store, table, place, tmp_path):
    store.upload(table.root, f"{place}/in")
    source = store.location(f"{place}/in")
    runs.result("compact", source, "--out", store.location(f"{place}/whole"), state=tmp_path / "whole")
    whole = published(store, f"{place}/whole")
    for point in ("attempt-written", "attempt-stored", "commit-publish-after", "commit-generation-before"):
        command = ("compact", source, "--out", store.location(f"{place}/{point}"))
        killed = runs(*command, state=tmp_path / point, kill_at=point)
        assert killed.code == -signal.SIGKILL, f"{point} was not reached\n{killed.story()}"
        for name, content in published(store, f"{place}/{point}").items():
            assert content == whole[name], f"after {point}, {name} is no finished file"
        # Another machine goes on: the first one's state folder is not there.
        runs.result(*command, state=tmp_path / f"{point}-other")
        assert published(store, f"{place}/{point}") == whole, point
        runs.is_sound(store.location(f"{place}/{point}"))


def test_a_large_output_is_uploaded_in_parts(runs, store, large, place, tmp_path):
    store.upload(large.root, f"{place}/in")
    runs.result("compact", store.location(f"{place}/in"), "--out", store.location(f"{place}/out"))
    assert [len(content) > (17 << 20) for content in published(store, f"{place}/out").values()] == [True]
    reads_back(large, store, f"{place}/out", tmp_path / "out")
    runs.is_sound(store.location(f"{place}/out"))


def test_superseded_objects_are_removed(runs, store, place, tmp_path):
    source, old = three_generations(runs, store, place, tmp_path / "grown")
    runs("gc", store.location(place), "--delete", "--retention", "0s").ends(0)
    left = store.names(place)
    assert not set(left) & set(old)
    for unit, paths in live(runs, store, source, place, tmp_path / "live").items():
        are_equal(source.paths(unit), paths)
    runs.is_sound(store.location(place))
