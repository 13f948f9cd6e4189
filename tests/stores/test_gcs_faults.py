"""Google Cloud Storage that loses answers and is busy, and that its stand-in here is as strict as it should be."""

import itertools

import pytest

from stores.bucket import BUCKET
from stores.runs import Runs, live, published, reads_back, three_generations
from whole_tables import are_equal


@pytest.fixture
def runs(baler, google, tmp_path):
    return Runs(baler, google, tmp_path / "state")


@pytest.fixture
def whole(runs, google, table, place, tmp_path):
    """(source, published objects) of a run that met no fault."""
    google.upload(table.root, f"{place}/in")
    source = google.location(f"{place}/in")
    runs.result("compact", source, "--out", google.location(f"{place}/whole"), state=tmp_path / "whole")
    return source, published(google, f"{place}/whole")


def first_of(kind):
    """Picks the first request of a kind for each object."""
    met = set()
    return lambda request: request.kind == kind and request.name not in met and not met.add(request.name)


@pytest.mark.parametrize("kind", ["create", "put", "copy"])
def test_a_lost_answer_is_no_lost_write(runs, google, table, place, tmp_path, whole, kind):
    """The first of these requests for each object takes effect, and its answer is lost with the connection."""
    source, made = whole
    with google.faulty(first_of(kind), times=1_000, carried_out=True) as fault:
        tables = runs.result("compact", source, "--out", google.location(f"{place}/out"))
    assert fault.met >= 4, google.store.served
    assert sum(each["jobs"]["done"] for each in tables) == 4
    assert published(google, f"{place}/out") == made
    reads_back(table, google, f"{place}/out", tmp_path / "out")
    runs.is_sound(google.location(f"{place}/out"))


@pytest.mark.parametrize("carried_out", [True, False], ids=["lost", "busy"])
@pytest.mark.parametrize("kind", ["start", "part", "complete"])
def test_an_upload_in_parts_outlives_a_fault(runs, google, large, place, tmp_path, kind, carried_out):
    google.upload(large.root, f"{place}/in")
    command = ("compact", google.location(f"{place}/in"), "--out", google.location(f"{place}/out"))
    with google.faulty(first_of(kind), times=1, carried_out=carried_out) as fault:
        runs.result(*command)
    assert fault.met == 1
    reads_back(large, google, f"{place}/out", tmp_path / "out")


def test_a_lost_answer_to_a_delete_is_no_failure(runs, google, place, tmp_path):
    source, old = three_generations(runs, google, place, tmp_path / "grown")
    location = google.location(place)
    with google.faulty(first_of("delete"), times=3, carried_out=True) as fault:
        runs("gc", location, "--delete", "--retention", "0s").ends(0)
    assert fault.met == 3
    assert not set(google.names(place)) & set(old)
    for unit, paths in live(runs, google, source, place, tmp_path / "live").items():
        are_equal(source.paths(unit), paths)
    runs.is_sound(location)


def test_a_busy_store_is_asked_again(runs, google, place, whole):
    source, made = whole
    numbers = itertools.count(1)
    with google.faulty(lambda _: next(numbers) % 7 == 0, times=1_000, carried_out=False) as fault:
        runs.result("compact", source, "--out", google.location(f"{place}/out"))
    assert fault.met > 5
    assert published(google, f"{place}/out") == made


def test_listings_came_in_pages_and_creates_were_conditional(runs, google, place, whole):
    served = google.store.served
    assert len(google.names(f"{place}/in")) == 40
    assert served["list", 200] > 3 and served["create", 200] > 0 and served["copy", 200] > 0
    assert not any(status in (400, 411, 501) for _, status in served), served


def test_the_stand_in_keeps_conditions(google, place):
    name = f"/{BUCKET}/{place}/one"

    def status(method, headers=None, body=b"", query=""):
        return google.request(method, name + query, headers, body)[0]

    assert status("GET") == status("DELETE") == 404
    assert status("PUT", {"x-goog-if-generation-match": "0"}, b"0123456789") == 200
    assert status("PUT", {"x-goog-if-generation-match": "0"}, b"other") == 412
    code, headers, content = google.request("GET", name, {"Range": "bytes=2-4"})
    assert (code, content, headers["Content-Range"]) == (206, b"234", "bytes 2-4/10")
    assert google.request("GET", name, {"Range": "bytes=-3"})[2] == b"789"
    assert status("GET", {"Range": "bytes=10-"}) == 416
    assert status("GET", {"If-Match": headers["ETag"]}) == 200
    assert status("GET", {"If-Match": '"other"'}) == 412
    generation = headers["x-goog-generation"]
    assert status("GET", query=f"?generation={generation}") == 200
    assert status("PUT", {"x-goog-if-generation-match": generation}, b"next") == 200
    assert status("PUT", {"x-goog-if-generation-match": generation}, b"late") == 412
    copy = {"x-goog-copy-source": f"{BUCKET}/{place}/one", "x-goog-if-generation-match": "0"}
    assert google.request("PUT", f"{name}-copy", copy)[0] == 200
    assert google.request("PUT", f"{name}-copy", copy)[0] == 412
    assert google.get(f"{place}/one-copy") == b"next"
    assert status("DELETE") == 204
