"""What users may do to a submission while it goes on."""

from cluster.cluster import until


def state_of(cluster, name):
    return next(one for one in cluster.status()["submissions"] if one["submission"] == name)


def test_a_paused_submission_starts_no_jobs_until_it_is_resumed(cluster):
    cluster.start()
    name = cluster.submit()
    cluster.some_are_done(2)
    code, said, error = cluster.baler("pause", name)
    assert code == 0 and "paused" in said, error
    until(lambda: state_of(cluster, name)["jobs"]["running"] == 0, 20, "running attempts end")
    done = cluster.receipts()
    assert 2 <= len(done) < cluster.source.jobs
    until(lambda: all(worker["free_slots"] == 2 for worker in cluster.status()["workers"]), 10, "workers are free")
    assert cluster.receipts() == done and state_of(cluster, name)["state"] == "paused"
    code, said, error = cluster.baler("resume", name)
    assert code == 0 and "running" in said, error
    code, ended, error = cluster.watch(name)
    assert code == 0 and ended["complete"], error
    cluster.ended_well()
    for control in ("pause", "resume", "cancel"):
        code, _, error = cluster.baler(control, name)
        assert code == 1 and "ended" in error


def test_a_pause_outlives_the_leader(cluster):
    (leader, standby), _ = cluster.start()
    name = cluster.submit()
    cluster.some_are_done(2)
    assert cluster.baler("pause", name)[0] == 0
    leader.kill()
    cluster.leads(standby)
    assert state_of(cluster, name)["state"] == "paused"
    assert cluster.baler("resume", name)[0] == 0
    code, ended, error = cluster.watch(name)
    assert code == 0 and ended["complete"], error
    cluster.ended_well()


def test_a_cancelled_submission_leaves_tables_as_they_were_or_wholly_committed(cluster):
    _, workers = cluster.start()
    name = cluster.submit()
    cluster.some_are_done(3)
    code, said, error = cluster.baler("cancel", name)
    assert code == 0 and "cancelled" in said, error
    code, ended, error = cluster.watch(name)
    assert code == 1 and ended["state"] == "cancelled" and "cancelled" in ended["reason"], error
    until(lambda: all(worker["running"] == 0 for worker in cluster.status()["workers"]), 10, "attempts are stopped")
    made, published = cluster.source.made, cluster.published()
    for table in ("pages", "claims", "labels"):
        whole = {path: digest for path, digest in made.items() if path.startswith(table + "/")}
        found = {path: digest for path, digest in published.items() if path.startswith(table + "/")}
        assert found in ({}, whole), f"{table} is half committed"
    # The next one takes up what was verified.
    done = len(cluster.receipts())
    code, said, error = cluster.baler(*cluster.compact_arguments())
    assert code == 0, error + cluster.logs()
    assert done >= 3 and all(worker.is_alive() for worker in workers)
    cluster.ended_well()


def test_workers_are_free_of_a_cancelled_submission_under_the_next_leader(cluster):
    (leader, standby), workers = cluster.start()
    name = cluster.submit()
    cluster.some_are_done(3)
    assert cluster.baler("cancel", name)[0] == 0
    leader.kill()
    cluster.leads(standby)
    assert state_of(cluster, name)["state"] == "cancelled"
    names = until(lambda: (found := cluster.status()["workers"]) and len(found) == 2 and found, 10, "workers report")
    for worker in names:
        assert cluster.baler("drain", worker["worker"])[0] == 0
    # They hold nothing back for a run that nobody will take up.
    assert [worker.ends(15) for worker in workers] == [0, 0]
    cluster.worker()
    assert cluster.baler(*cluster.compact_arguments())[0] == 0, cluster.logs()
    cluster.ended_well()
