# SPDX-License-Identifier: Apache-2.0
"""What the suites that run for hours share: events of their programs, results that are kept, and an end by Ctrl-C."""
import contextlib
import hashlib
import json
import os
import signal
import subprocess

from host import ROOT


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


def commit_of_tree():
    """The commit, with a hash of what differs from it: results of another tree are not taken for this one's."""
    def git(*arguments):
        return subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=False).stdout
    changed = git("diff", "HEAD")
    return (git("rev-parse", "--short=12", "HEAD").strip() or "none") + ("+" + hashlib.sha1(changed.encode()).hexdigest()[:6] if changed else "")


def read_results(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def add_result(path, result):
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(result) + "\n")


def _interrupt_once(_number, _frame):
    """A second Ctrl-C does not stop the removal of what the run has made."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def run_until_stopped(run):
    """Calls `run`; False if Ctrl-C or TERM ended it."""
    signal.signal(signal.SIGINT, _interrupt_once)
    signal.signal(signal.SIGTERM, _interrupt_once)
    try:
        run()
    except KeyboardInterrupt:
        print("stopped; what is finished is kept")
        return False
    return True
