"""A cluster of real processes: etcd, coordinators, workers, and the commands that users send to it.

A `Cluster` gives each process its port and its log, starts it again where a supervisor would, and kills all of them at
its end. Every wait has a limit, and what is waited for is looked at from outside: receipts and outputs on disk, exit
codes, `baler status`. An `Outcome` is a finished submission with the checks that every test ends with.
"""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import threading
import time

from compaction import CONTROL, OUTPUT, digests, first_and_last
from whole_tables import are_equal

LEASE = "2s"
WORKER_LEASE = "3s"
LOST_THE_LEAD = 75


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(condition, seconds, what):
    """Waits for something to be true; gives what it was."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")


class Process:
    """One process with its log. Its group goes with it at the end."""

    def __init__(self, name, arguments, log, env=None):
        self.name, self.arguments, self.log = name, [os.fspath(part) for part in arguments], log
        with open(log, "ab") as sink:
            self.popen = subprocess.Popen(
                self.arguments, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True,
                env={**os.environ, "RUST_BACKTRACE": "0", "BALER_LOG": "info", **(env or {})},
            )

    def text(self):
        return self.log.read_text(errors="replace")

    def is_alive(self):
        return self.popen.poll() is None

    def send(self, number):
        self.popen.send_signal(number)

    def kill(self):
        self.send(signal.SIGKILL)
        self.popen.wait(10)

    def ends(self, seconds=30):
        """The exit code, once it has ended."""
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end within {seconds} s\n{self.text()[-3000:]}") from None

    def clear_away(self):
        """The process and the children that it left."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait(10)


class Supervised:
    """A process that is started again whenever it ends, as systemd or Kubernetes does. `env` is the first one's only."""

    def __init__(self, start, env=None):
        self.start, self.codes, self.over = start, [], threading.Event()
        self.process = start(env)
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self):
        while not self.over.wait(0.05):
            code = self.process.popen.poll()
            if code is None:
                continue
            self.codes.append(code)
            if self.over.wait(0.2):
                return
            self.process = self.start(None)

    def stop(self):
        self.over.set()
        self.thread.join(10)


class Cluster:
    def __init__(self, binary, folder, source):
        self.binary, self.folder, self.source = binary, pathlib.Path(folder), source
        self.out = self.folder / "out"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.processes, self.supervisors = [], []
        self.etcd_port, self.ports = free_port(), [free_port(), free_port()]
        self.etcd = None
        self.workers_started = 0

    # Processes

    def run(self, name, arguments, env=None):
        process = Process(name, arguments, self.folder / f"{name}.log", env)
        self.processes.append(process)
        return process

    def start_etcd(self):
        at, peers = f"http://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{free_port()}"
        self.etcd = self.run("etcd", [
            "/usr/bin/etcd", "--name", "one", "--data-dir", self.folder / "etcd", "--listen-client-urls", at,
            "--advertise-client-urls", at, "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
            "--initial-cluster", f"one={peers}", "--log-level", "error", "--unsafe-no-fsync",
        ], {"ETCD_UNSUPPORTED_ARCH": os.uname().machine.replace("aarch64", "arm64").replace("x86_64", "")})
        until(lambda: self.answers(self.etcd_port), 20, "etcd listens")
        return self.etcd

    @staticmethod
    def answers(port):
        with socket.socket() as probe:
            probe.settimeout(0.5)
            return probe.connect_ex(("127.0.0.1", port)) == 0

    @property
    def addresses(self):
        return ",".join(f"http://127.0.0.1:{port}" for port in self.ports)

    @property
    def stores(self):
        """The only places that the cluster may touch."""
        return ["--store", f"source=file://{self.source.root}", "--store", f"out=file://{self.out}"]

    def coordinator(self, number=0, env=None):
        self.out.mkdir(exist_ok=True)
        return self.run(f"coordinator-{number}", [
            self.binary, "coordinator", "--etcd", f"http://127.0.0.1:{self.etcd_port}",
            "--listen", f"127.0.0.1:{self.ports[number]}", "--lease-ttl", LEASE, "--worker-lease", WORKER_LEASE, *self.stores,
        ], env)

    def worker(self, slots=2, stores=None, isolate=True, env=None):
        self.workers_started += 1
        process = self.run(f"worker-{self.workers_started}", [
            self.binary, "worker", "--coordinator", self.addresses, "--slots", str(slots), "--memory", "512MiB",
            "--spill", self.folder, *(self.stores if stores is None else stores), *([] if isolate else ["--no-isolate"]),
        ], env)
        return process

    def supervise(self, start, env=None):
        self.supervisors.append(Supervised(start, env))
        return self.supervisors[-1]

    def start(self, coordinators=2, workers=2):
        """etcd, coordinators of which the first leads, workers."""
        self.start_etcd()
        first = self.coordinator(0)
        self.leads(first)
        return [first, *(self.coordinator(number) for number in range(1, coordinators))], [self.worker() for _ in range(workers)]

    def leads(self, process, seconds=20):
        until(lambda: "this coordinator leads" in process.text(), seconds, lambda: f"it leads\n{process.text()}")

    def end(self):
        for supervisor in self.supervisors:
            supervisor.stop()
        for process in self.processes:
            process.clear_away()

    # What users do

    def baler(self, *arguments, timeout=60):
        """(exit code, standard output, standard error) of a command that is sent to the cluster."""
        run = subprocess.run(
            [self.binary, *map(os.fspath, arguments), "--coordinator", self.addresses], capture_output=True, text=True,
            timeout=timeout, stdin=subprocess.DEVNULL,
        )
        assert "panicked at" not in run.stdout + run.stderr, run.stderr
        return run.returncode, run.stdout, run.stderr

    def compact_arguments(self, *options):
        return ["compact", self.source.root, "--out", self.out, *self.source.options, *options]

    def client(self, *options):
        """`baler compact --coordinator` in the background."""
        number = sum(process.name.startswith("client") for process in self.processes)
        return self.run(f"client-{number}", [self.binary, *self.compact_arguments(*options), "--coordinator", self.addresses])

    def submit(self, *options):
        """The name of a submission that nobody waits for."""
        code, said, error = self.baler(*self.compact_arguments("--detach", *options))
        assert code == 0, error
        return said.strip()

    def watch(self, name, seconds=60):
        code, said, error = self.baler("watch", name, "--json", timeout=seconds)
        return code, json.loads(said), error

    def status(self):
        code, said, error = self.baler("status", "--json")
        assert code == 0, error
        return json.loads(said)

    # What is seen from outside

    def receipts(self):
        """Jobs whose outputs were verified."""
        return {path.name for path in self.out.glob(f"*/{CONTROL}/receipts/*")}

    def some_are_done(self, number, seconds=40):
        until(lambda: len(self.receipts()) >= number, seconds, lambda: f"{number} receipts\n{self.logs()}")
        assert len(self.receipts()) < self.source.jobs, "the fault comes too late: all jobs are done"

    def audit(self):
        """The lines of every table's audit list."""
        lists = [path.read_text().splitlines() for path in self.out.glob(f"*/{CONTROL}/audit.jsonl")]
        return [json.loads(line) for lines in lists for line in lines]

    def logs(self):
        return "\n".join(f"== {path.name}\n{path.read_text(errors='replace')[-2500:]}" for path in sorted(self.folder.glob("*.log")))

    def published(self):
        return {name: digest for name, digest in digests(self.out).items() if CONTROL not in name.split("/")}

    def ended_well(self):
        """Rows, bytes, state and folders are those of a run on one machine that nobody disturbed."""
        assert self.published() == self.source.made, self.logs()
        for unit in self.source.rows:
            outputs = [path for path in (self.out / unit).iterdir() if OUTPUT.fullmatch(path.name)]
            assert are_equal(self.source.paths(unit), sorted(outputs, key=lambda path: first_and_last(path.name)))
        code, said, error = self.baler("fsck")
        assert code == 0, said + error + self.logs()
        local = subprocess.run([self.binary, "fsck", self.out], capture_output=True, text=True, timeout=60)
        assert local.returncode == 0, local.stdout + local.stderr
        assert digests(self.source.root) == self.source.before, "sources were touched"
        for process in self.processes:
            assert "panicked at" not in process.text(), process.text()[-3000:]
