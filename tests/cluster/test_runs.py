"""Runs that nobody disturbs, and what users may ask for twice."""

import json


def test_two_coordinators_and_two_workers_make_what_one_machine_makes(cluster):
    cluster.start()
    code, said, error = cluster.baler(*cluster.compact_arguments())
    assert code == 0, error + cluster.logs()
    cluster.ended_well()
    for table in ("pages", "claims", "labels"):
        assert f"table {table}" in said, said
    # Both workers had a share.
    assert len(cluster.status()["workers"]) == 2

    # The same once more finds nothing to do.
    before = {path: path.stat().st_mtime_ns for path in cluster.out.rglob("*.parquet")}
    code, said, error = cluster.baler(*cluster.compact_arguments())
    assert code == 0 and said.lower().count("nothing to do") == 3, said + error
    assert {path: path.stat().st_mtime_ns for path in cluster.out.rglob("*.parquet")} == before
    cluster.ended_well()


def test_a_key_names_one_request(cluster):
    cluster.start()
    first = cluster.submit("--idempotency-key", "nightly")
    assert cluster.submit("--idempotency-key", "nightly") == first
    code, said, error = cluster.baler(*cluster.compact_arguments("--detach", "--rewrite", "--idempotency-key", "nightly"))
    assert code == 1 and "idempotency key" in error and first in error, (code, said, error)
    code, ended, error = cluster.watch(first)
    assert code == 0 and ended["state"] == "done" and ended["complete"], error
    # Also after its end it is the same request.
    assert cluster.submit("--idempotency-key", "nightly") == first
    cluster.ended_well()
    assert len(cluster.status()["submissions"]) == 1


def test_the_status_says_what_there_is(cluster):
    cluster.start()
    name = cluster.submit()
    status = cluster.status()
    assert status["epoch"] == 1
    assert [one["submission"] for one in status["submissions"]] == [name]
    assert status["submissions"][0]["source"] == str(cluster.source.root)
    code, ended, error = cluster.watch(name)
    assert code == 0 and ended["jobs"]["verified"] == cluster.source.jobs and ended["jobs"]["running"] == 0, ended
    assert len(ended["tables"]) == 3
    for worker in cluster.status()["workers"]:
        assert worker["running"] == 0 and worker["free_slots"] == 2 and not worker["draining"]
    code, said, _ = cluster.baler("status")
    assert code == 0 and f"submission {name}  done" in said
    code, said, error = cluster.baler("watch", "no-such-one")
    assert code == 1 and "no-such-one" in error
    cluster.ended_well()
