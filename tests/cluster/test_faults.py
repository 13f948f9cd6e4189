"""Processes that die, stop and come back in the middle of a run. Whatever happens, the client ends with 0."""

import signal
import time

from cluster.cluster import LOST_THE_LEAD, until


def test_the_leader_is_killed_and_the_standby_goes_on(cluster):
    (leader, standby), _ = cluster.start()
    client = cluster.client()
    cluster.some_are_done(4)
    leader.kill()
    assert client.ends(60) == 0, client.text() + cluster.logs()
    cluster.leads(standby)
    assert cluster.status()["epoch"] == 2
    cluster.ended_well()
    # The new leader went on from the job records: most jobs were leased once, and none was done twice.
    verified = [line["output"] for line in cluster.audit() if line["to"] == "verified"]
    assert len(set(verified)) == len(verified) < cluster.source.jobs, "the audit of the dead leader is lost with it"


def test_attempts_that_outlive_their_leader_are_adopted(cluster):
    """No attempt ends before the second leader is there: its receipts must come from the first one's assignments."""
    (leader, standby), workers = cluster.start()
    client = cluster.client()
    cluster.some_are_done(4)
    # Workers that stand still hold attempts of the first leader.
    running = until(lambda: held(cluster), 20, "a worker runs something")
    for worker in workers:
        worker.send(signal.SIGSTOP)
    leader.kill()
    cluster.leads(standby)
    for worker in workers:
        worker.send(signal.SIGCONT)
    assert client.ends(60) == 0, client.text() + cluster.logs()
    cluster.ended_well()
    assert running > 0
    leased = [line for line in cluster.audit() if line["to"] == "leased"]
    adopted = [line for line in cluster.audit() if line["to"] == "verified" and line["detail"] not in
               {lease["detail"] for lease in leased}]
    assert adopted, "the second leader took no attempt over from the first"


def held(cluster):
    return sum(worker["running"] for worker in cluster.status()["workers"])


def test_workers_come_and_go(cluster):
    """One is killed, one joins late, one is drained, one is asked to end."""
    _, (first, second) = cluster.start()
    client = cluster.client()
    cluster.some_are_done(2)
    first.kill()
    third = cluster.worker()
    cluster.some_are_done(8)
    second.send(signal.SIGTERM)
    name = until(lambda: third.text().partition("worker ")[2].split("\n")[0].strip(), 10, third.text)
    until(lambda: name in {worker["worker"] for worker in cluster.status()["workers"]}, 10, "the late worker is known")
    assert second.ends(30) == 0, second.text()
    fourth = cluster.worker()
    code, said, error = cluster.baler("drain", name)
    assert code == 0 and name in said, error
    assert third.ends(30) == 0, third.text()
    assert client.ends(60) == 0, client.text() + cluster.logs()
    assert fourth.is_alive()
    cluster.ended_well()
    code, _, error = cluster.baler("drain", "w-nobody")
    assert code == 1 and "w-nobody" in error


def test_a_leader_that_stood_still_writes_nothing_more(cluster):
    (leader, standby), _ = cluster.start()
    client = cluster.client()
    cluster.some_are_done(4)
    leader.send(signal.SIGSTOP)
    cluster.leads(standby)
    assert client.ends(60) == 0, client.text() + cluster.logs()
    leader.send(signal.SIGCONT)
    assert leader.ends(10) == LOST_THE_LEAD, leader.text()
    cluster.ended_well()
    assert cluster.status()["epoch"] == 2


def test_a_leader_that_stood_still_wakes_in_the_middle_of_its_successors_run(cluster):
    (leader, standby), _ = cluster.start()
    client = cluster.client()
    cluster.some_are_done(2)
    leader.send(signal.SIGSTOP)
    cluster.leads(standby)
    leader.send(signal.SIGCONT)
    assert leader.ends(10) == LOST_THE_LEAD, leader.text()
    assert client.ends(60) == 0, client.text() + cluster.logs()
    cluster.ended_well()


def test_etcd_dies_and_comes_back(cluster):
    cluster.start_etcd()
    coordinators = [cluster.supervise(lambda env, number=number: cluster.coordinator(number, env)) for number in range(2)]
    for _ in range(2):
        cluster.worker()
    client = cluster.client()
    cluster.some_are_done(4)
    for seconds in (0.5, 4):  # shorter and longer than the lease
        cluster.etcd.kill()
        until(lambda: not cluster.answers(cluster.etcd_port), 5, "etcd is gone")
        time.sleep(seconds)
        cluster.start_etcd()
    assert client.ends(90) == 0, client.text() + cluster.logs()
    cluster.ended_well()
    codes = [code for coordinator in coordinators for code in coordinator.codes]
    assert set(codes) <= {1, LOST_THE_LEAD}, codes


def test_a_single_coordinator_is_killed_and_started_again(cluster):
    cluster.start_etcd()
    coordinator = cluster.supervise(lambda env: cluster.coordinator(0, env))
    cluster.worker()
    client = cluster.client()
    for done in (2, 6):
        cluster.some_are_done(done)
        coordinator.process.kill()
    assert client.ends(90) == 0, client.text() + cluster.logs()
    assert coordinator.codes == [-signal.SIGKILL] * 2
    cluster.ended_well()
