"""What a cluster refuses: places that were not named to it, and addresses that anybody could reach."""

import subprocess

from cluster.cluster import free_port, until


def test_a_worker_without_the_place_refuses_its_jobs_and_lives(cluster, tmp_path):
    cluster.start(workers=0)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    worker = cluster.worker(stores=["--store", f"other=file://{elsewhere}"])
    code, ended, error = cluster.watch(cluster.submit(), seconds=120)
    assert code == 1 and ended["state"] == "done" and not ended["complete"], error
    failures = [failure for table in ended["tables"] for failure in table["failed"]]
    assert failures and all("no store has the alias" in failure["failure"]["message"] for failure in failures), ended
    assert worker.is_alive() and list(elsewhere.iterdir()) == []
    assert cluster.published() == {}
    # A worker that has the place does it.
    cluster.worker()
    assert cluster.baler("drain", worker.text().partition("worker ")[2].split("\n")[0].strip())[0] == 0
    assert worker.ends(30) == 0
    code, _, error = cluster.baler(*cluster.compact_arguments())
    assert code == 0, error + cluster.logs()
    cluster.ended_well()


def test_an_address_that_others_reach_needs_certificates(cluster):
    cluster.out.mkdir()
    for address in ("0.0.0.0", "[::]"):
        run = subprocess.run(
            [cluster.binary, "coordinator", "--state", cluster.folder / "state.redb", "--listen", f"{address}:{free_port()}",
             *cluster.stores], capture_output=True, text=True, timeout=20,
        )
        assert run.returncode == 1 and "--tls-cert" in run.stderr, run.stderr


def test_a_location_outside_the_stores_is_refused_by_field(cluster, tmp_path):
    cluster.start(coordinators=1, workers=0)
    inside, outside = cluster.source.root, tmp_path / "outside"
    outside.mkdir()
    asked = [
        (["compact", outside, "--out", cluster.out], "spec.source"),
        (["compact", inside, "--out", outside], "spec.out"),
        (["compact", f"{inside}/../../outside", "--out", cluster.out], "spec.source"),
        (["compact", "s3://elsewhere/table", "--out", cluster.out], "spec.source"),
        ([*cluster.compact_arguments(), "--idempotency-key", "k" * 129], "idempotency_key"),
    ]
    for arguments, field in asked:
        code, said, error = cluster.baler(*arguments, "--detach")
        assert code == 1 and field in error, (arguments, code, said, error)
    assert cluster.status()["submissions"] == [] and list(outside.iterdir()) == []


def test_what_only_one_machine_can_do_is_refused_at_once(cluster):
    for option in (["--dry-run"], ["--swap"], ["--jobs", "2"], ["--until", "2h"]):
        arguments = ["compact", cluster.source.root, *([] if option == ["--swap"] else ["--out", cluster.out]), *option]
        code, _, error = cluster.baler(*arguments)
        assert code in (1, 2) and option[0] in error, error


def test_a_hostile_file_costs_its_key_and_no_process(baler, tmp_path):
    """A file that is no Parquet refuses its key; the others are done, and the worker lives."""
    from cluster.cluster import Cluster
    from cluster.conftest import lay_out

    source = lay_out(tmp_path / "source")
    source.put_bytes("pages/en", 3, b"PAR1" + b"\xff" * 4000 + b"PAR1")
    cluster = Cluster(baler.binary, tmp_path / "cluster", source)
    try:
        _, workers = cluster.start()
        code, ended, error = cluster.watch(cluster.submit(), seconds=60)
        assert code == 1 and ended["state"] == "done" and not ended["complete"], error
        assert "pages/en" not in {name.rsplit("/", 1)[0] for name in cluster.published()}
        assert {name.rsplit("/", 1)[0] for name in cluster.published()} == {"pages/de", "claims/all", "labels/a", "labels/b"}
        assert all(worker.is_alive() for worker in workers)
        until(lambda: cluster.baler("fsck")[0] == 0, 5, lambda: cluster.baler("fsck"))
    finally:
        cluster.end()
