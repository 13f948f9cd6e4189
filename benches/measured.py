"""Runs a command and measures it: wall time, CPU of the whole process tree, peak memory."""

import os
import subprocess
import threading
import time
from dataclasses import dataclass

import psutil


@dataclass
class Measure:
    code: int
    wall_s: float
    cpu_s: float
    peak_mib: float
    others_cpu_s: float  # CPU that other processes of the machine used meanwhile
    said: str


def highest(pid):
    """The most memory a process has held since it was started, by the kernel's count. Unlike ru_maxrss it leaves out
    what the process that forked it held."""
    with open(f"/proc/{pid}/status") as status:
        return next((int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM")), 0)


def measure(command, env=None, timeout=1800):
    machine = psutil.cpu_times()
    start = time.perf_counter()
    process = subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, errors="replace",
        env={**os.environ, **(env or {})},
    )
    peak, over = 0, threading.Event()

    def watch():
        nonlocal peak
        while not over.wait(0.02):
            try:
                root = psutil.Process(process.pid)
                peak = max(peak, highest(process.pid), sum(each.memory_info().rss for each in [root, *root.children(recursive=True)]))
            except (psutil.Error, OSError):
                pass

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    alarm = threading.Timer(timeout, process.kill)
    alarm.start()
    said = process.stdout.read()
    # wait4 gives the usage of the command and of all its children that it waited for.
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    alarm.cancel()
    over.set()
    watcher.join()
    process.returncode = os.waitstatus_to_exitcode(status)
    cpu = usage.ru_utime + usage.ru_stime
    now = psutil.cpu_times()
    busy = sum(getattr(now, kind) - getattr(machine, kind) for kind in ("user", "nice", "system", "irq", "softirq"))
    return Measure(process.returncode, wall, cpu, peak / 2**20, max(0.0, busy - cpu), said)
