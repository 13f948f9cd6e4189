"""SIGKILL at every named point that a coordinator or a worker passes; a supervisor starts the process again.

Each point has a cluster of its own, with a single coordinator and short leases: what counts is that the next
process, not a standby that is warm, finds what it needs.
"""

import concurrent.futures
import contextlib
import signal
import subprocess

import pytest

from cluster.cluster import Cluster
from compaction import binary


def points(*options):
    run = subprocess.run([binary(), "kill-points", *options], capture_output=True, text=True, check=True, timeout=20)
    return run.stdout.split()


ALL = points() + points("--cluster")
WORKERS = [point for point in ALL if point.startswith("attempt-")]
COORDINATORS = [point for point in ALL if point not in WORKERS]
# Also at a later pass, when there is something to lose.
LATER = ["store-commit-after:25", "lease-after:9", "receipt-after:9", "outcome-after:9", "commit-publish-after:9"]
# Most of a test is waiting for leases, so a few clusters run beside each other.
AT_ONCE = 4


def in_groups(names):
    return [names[first : first + AT_ONCE] for first in range(0, len(names), AT_ONCE)]


def each(group, run):
    """Runs every one of a group; fails with the first that failed."""
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for done in [pool.submit(run, point) for point in group]:
            done.result(timeout=120)


@contextlib.contextmanager
def a_cluster(baler, tmp_path, source, point):
    cluster = Cluster(baler.binary, tmp_path / point.replace(":", "-"), source)
    try:
        yield cluster
    finally:
        cluster.end()


@pytest.mark.parametrize("group", in_groups(COORDINATORS + LATER), ids="+".join)
def test_a_coordinator_killed_at_a_point_is_followed_by_the_next(baler, tmp_path, small_source, group):
    def run(point):
        with a_cluster(baler, tmp_path, small_source, point) as cluster:
            cluster.start_etcd()
            coordinator = cluster.supervise(lambda env: cluster.coordinator(0, env), env={"BALER_KILL_AT": point})
            for _ in range(2):
                cluster.worker()
            client = cluster.client()
            assert client.ends(90) == 0, f"{point}\n{client.text()}\n{cluster.logs()}"
            assert coordinator.codes == [-signal.SIGKILL], f"{point}: {coordinator.codes}\n{cluster.logs()}"
            cluster.ended_well()

    each(group, run)


@pytest.mark.parametrize("group", in_groups(WORKERS), ids="+".join)
def test_a_worker_killed_at_a_point_is_followed_by_the_next(baler, tmp_path, small_source, group):
    def run(point):
        with a_cluster(baler, tmp_path, small_source, point) as cluster:
            cluster.start_etcd()
            cluster.coordinator(0)
            # In this process, so that it is the worker that dies, and not the child in which it decodes.
            worker = cluster.supervise(
                lambda env: cluster.worker(env=env, isolate=False), env={"BALER_KILL_AT": f"{point}:3"}
            )
            client = cluster.client()
            assert client.ends(90) == 0, f"{point}\n{client.text()}\n{cluster.logs()}"
            assert worker.codes == [-signal.SIGKILL], f"{point} was not reached"
            cluster.ended_well()

    each(group, run)
