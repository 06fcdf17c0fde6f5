#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Undoes what a runner has done to the host, also when the runner is killed.

The runner tells this process, in a session of its own, how to undo a thing before it does it. Each undoing is the name of a function
of tests/harness/host.py with its arguments. It happens when the runner asks for it or when the pipe from the runner breaks: last in,
first out. Run without arguments it is that process; `Guard` is the runner's side.
"""
import json
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness import host  # noqa: E402

UNDOINGS = ("run_quietly", "write_file", "remove_file", "remove_folder", "end_process", "continue_process")


class Guard:
    """Serves as the `stack` of tests/harness/host.py. Not for several threads."""

    def __init__(self):
        self.count = 0
        self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        host.need(answer, "the guard process is gone")
        return json.loads(answer)

    def callback(self, function, *arguments):
        """Returns a ticket for undo()."""
        if function.__name__ not in UNDOINGS:
            raise ValueError(f"{function.__name__} cannot be called by the guard")
        self.count += 1
        self.ask(do="keep", ticket=self.count, function=function.__name__, arguments=arguments)
        return self.count

    def undo(self, *tickets):
        for ticket in tickets:
            problem = self.ask(do="undo", ticket=ticket)["problem"]
            host.need(not problem, problem)

    def forget(self, *tickets):
        """What has ended by itself."""
        for ticket in tickets:
            self.ask(do="forget", ticket=ticket)

    def watch(self, process, signal_name="SIGKILL"):
        """Ends a process of this runner later; returns its ticket."""
        return self.callback(host.end_process, process.pid, host.start_ticks(process.pid), signal_name)

    def close(self):
        self.process.communicate()


def perform(function, arguments):
    try:
        getattr(host, function)(*arguments)
    except (host.Impossible, OSError) as error:
        return str(error)
    return ""


def serve():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    kept = {}
    for line in sys.stdin:
        request, problem = json.loads(line), ""
        if request["do"] == "keep":
            kept[request["ticket"]] = (request["function"], request["arguments"])
        elif request["ticket"] in kept:
            undoing = kept.pop(request["ticket"])
            problem = perform(*undoing) if request["do"] == "undo" else ""
        print(json.dumps({"problem": problem}), flush=True)
    for _, undoing in sorted(kept.items(), reverse=True):
        problem = perform(*undoing)
        if problem:
            print(problem, file=sys.stderr)


if __name__ == "__main__":
    serve()
