"""SIGKILL at every named point that a coordinator or a worker passes; a supervisor starts the process again.

The points are taken in turn, one cluster each, with a single coordinator and short leases: what counts is that the next
process, not a standby that is warm, finds what it needs.
"""

import signal
import subprocess

import pytest

from compaction import binary


def points(*options):
    run = subprocess.run([binary(), "kill-points", *options], capture_output=True, text=True, check=True, timeout=20)
    return run.stdout.split()


ALL = points() + points("--cluster")
WORKERS = [point for point in ALL if point.startswith("attempt-")]
# Also at a later pass, when there is something to lose.
LATER = ["store-commit-after:25", "lease-after:9", "receipt-after:9", "outcome-after:9", "commit-publish-after:9"]


@pytest.mark.parametrize("point", [point for point in ALL if point not in WORKERS] + LATER)
def test_a_coordinator_killed_at_a_point_is_followed_by_the_next(cluster, point):
    cluster.start_etcd()
    coordinator = cluster.supervise(lambda env: cluster.coordinator(0, env), env={"BALER_KILL_AT": point})
    for _ in range(2):
        cluster.worker()
    client = cluster.client()
    assert client.ends(60) == 0, client.text() + cluster.logs()
    assert coordinator.codes[:1] == [-signal.SIGKILL], f"{point} was not reached: {coordinator.codes}"
    assert len(coordinator.codes) == 1, coordinator.codes
    cluster.ended_well()


@pytest.mark.parametrize("point", WORKERS)
def test_a_worker_killed_at_a_point_is_followed_by_the_next(cluster, point):
    cluster.start_etcd()
    cluster.coordinator(0)
    # In this process, so that it is the worker that dies, and not the child in which it decodes.
    worker = cluster.supervise(lambda env: cluster.worker(env=env, isolate=False), env={"BALER_KILL_AT": f"{point}:3"})
    client = cluster.client()
    assert client.ends(60) == 0, client.text() + cluster.logs()
    assert worker.codes == [-signal.SIGKILL], f"{point} was not reached"
    cluster.ended_well()
