# SPDX-License-Identifier: Apache-2.0
"""Programs of a test: started, waited for, heard, ended by their pids."""
import contextlib
import json
import os
import select
import signal
import subprocess
import time

from kit.outcome import Wrong

PATIENCE_S = 60.0


def wait_for(state, what, patience_s=PATIENCE_S, pause_s=0.02):
    """Looks until state() is true, and gives what it gave."""
    end = time.monotonic() + patience_s
    while not (seen := state()):
        if time.monotonic() > end:
            raise Wrong(f"{what}: not within {patience_s:g} s")
        time.sleep(pause_s)  # allowed: the pause of a poll loop
    return seen


def start_ticks(pid):
    """With the pid it names a process for ever; 0 if there is none."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return int(file.read().rsplit(")", 1)[1].split()[19])
    return 0


def end_process(pid, ticks, signal_name="SIGKILL", wait_s=10.0):
    """Sends the signal and waits; who does not obey in time is killed. Never hits a stranger with the same pid."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if start_ticks(pid) != ticks:
            return
        for name in (signal_name, "SIGKILL"):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signal.Signals[name])
            if select.select([fd], [], [], wait_s)[0]:
                return
    finally:
        os.close(fd)


class Job(subprocess.Popen):
    """A program that ends with its block: by `end_signal`, or killed if it does not obey in time."""

    def __init__(self, command, end_signal="SIGKILL", grace_s=10.0, **options):
        super().__init__(command, **options)
        self.end_signal, self.grace_s, self.ticks = end_signal, grace_s, start_ticks(self.pid)

    def wait_for(self, state, what, patience_s=PATIENCE_S, pause_s=0.02):
        """As wait_for(), while the program lives."""
        def seen():
            found = state()
            if not found and self.poll() is not None:
                raise Wrong(f"{what}: it ended before, with status {self.returncode}")
            return found
        return wait_for(seen, what, patience_s, pause_s)

    def ended(self, patience_s):
        """Gives it time to end by itself; then ends it."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(patience_s)
        self.end()

    def end(self):
        if self.poll() is None:
            end_process(self.pid, self.ticks, self.end_signal, self.grace_s)
        self.wait()

    def __exit__(self, *cause):
        self.end()
        super().__exit__(*cause)


class Events:
    """A pipe into which the programs of a run write one JSON line an event; they find its path in FAULT_EVENTS."""

    def __init__(self, folder):
        self.path, self.text = os.path.join(folder, "events"), b""
        os.mkfifo(self.path)
        self.fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)  # a writer of its own: no end of file between two events

    def close(self):
        os.close(self.fd)

    def read(self):
        """The events that have come meanwhile."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self.text += os.read(self.fd, 65536)
        *lines, self.text = self.text.split(b"\n")
        yield from map(json.loads, lines)
