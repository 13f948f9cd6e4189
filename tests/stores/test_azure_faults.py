"""Azure Blob Storage whose answers are lost on their way: a proxy before Azurite ends connections without a word."""

import pytest

from stores import azurite, forgetful
from stores.runs import Runs, reads_back

# What a request of each kind looks like: part of its target, a header that it has, headers that it has not.
KINDS = {
    "create": ("", "if-none-match", {"x-ms-copy-source"}),
    "copy": ("", "x-ms-copy-source", set()),
    "block": ("comp=block&", "x-ms-version", set()),
    "block list": ("comp=blocklist", "x-ms-version", set()),
}


def first_of(kind):
    """Picks the first request of a kind for each target."""
    part, with_header, without = KINDS[kind]
    met = set()

    def concerns(method, target, headers):
        fits = method == "PUT" and part in target + "&" and with_header in headers and not without & set(headers)
        return fits and target not in met and not met.add(target)

    return concerns


SHAPES = {"create": "table", "copy": "table", "block": "large", "block list": "large"}


@pytest.mark.parametrize("kind", SHAPES)
def test_a_lost_answer_is_no_lost_write(baler, azure, place, tmp_path, request, kind):
    """The first of these requests for each object takes effect, and its answer is lost with the connection."""
    source = request.getfixturevalue(SHAPES[kind])
    azure.upload(source.root, f"{place}/in")
    with forgetful.before(azure.port, first_of(kind), times=1_000) as (port, proxy):
        runs = Runs(baler, azurite.Container(port), tmp_path / "state")
        tables = runs.result("compact", azure.location(f"{place}/in"), "--out", azure.location(f"{place}/out"))
    assert proxy.met > 0, "no request of this kind"
    assert sum(each["jobs"]["done"] for each in tables) == len(source.rows)
    reads_back(source, azure, f"{place}/out", tmp_path / "out")
    Runs(baler, azure, tmp_path / "state").is_sound(azure.location(f"{place}/out"))
