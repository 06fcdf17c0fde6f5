# SPDX-License-Identifier: Apache-2.0
"""The program under test: its recorders, and its answers in JSON."""
import argparse
import json
import os
import signal
import subprocess
import sys

from kit.job import Job
from kit.outcome import Wrong, need

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NO_PERMISSION = 3  # docs/exit-codes.md


def default_kansoku():
    return os.environ.get("KANSOKU") or os.path.join(ROOT, "build", "kansoku")


def parser(usage, with_kansoku=True):
    """`with_kansoku`: takes --kansoku PROGRAM."""
    made = argparse.ArgumentParser(description=usage, formatter_class=argparse.RawDescriptionHelpFormatter)
    if with_kansoku:
        made.add_argument("--kansoku", default=os.path.join(ROOT, "build", "kansoku"), metavar="PROGRAM", type=os.path.realpath)
    return made


def words(usage, least, most=None):
    """The words of the command line, so many."""
    if not least <= len(sys.argv) - 1 <= (most or least):
        sys.exit(usage)
    return sys.argv[1:]


def answer(kansoku, *arguments, good=(0, 10, 11), **options):
    """Parsed standard output of a command that prints JSON. 10, 11: it has something to tell."""
    done = subprocess.run([kansoku, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, **options)
    if done.returncode not in good:
        raise Wrong(f"kansoku {' '.join(map(str, arguments))}: status {done.returncode}: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout)


def basis(finding):
    """The confidence of a finding, in words; an observation has none."""
    return "observed" if finding["confidence"] is None else f"{finding['confidence']:.2f}"


def cost(finding):
    """What a finding costs, in words; without steps there is none of a step."""
    return "unknown" if finding["cost_ms_per_step"] is None else f"{finding['cost_ms_per_step']:.1f} ms"


def record_command(kansoku, trace, *options, of=(), pids=()):
    """The command line that records a command (`of`) or processes."""
    targets = [word for pid in pids for word in ("-p", str(pid))]
    return [str(kansoku), "record", *options, "-o", str(trace), *targets, *(["--", *map(str, of)] if of else [])]


def record(kansoku, trace, *options, of=(), pids=(), **run_options):
    """Records to the end; what subprocess.run() gives, with the output as text."""
    return subprocess.run(record_command(kansoku, trace, *options, of=of, pids=pids),
                          **{"capture_output": True, "text": True, "check": False, **run_options})


def switch_agent(kansoku, state, word):
    """`word`: pause or resume; returns when the probes are detached or attached."""
    done = subprocess.run([kansoku, "watch", "--control", word, "--state", state], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Wrong(f"kansoku watch --control {word}: {done.stderr.strip()}")


class Recorder(Job):
    """Records processes while its block lasts: attached when it begins, the file whole behind it. `said`: its lines of standard error."""

    def __init__(self, kansoku, trace, *options, pids, until="recording into", **more):
        super().__init__(record_command(kansoku, trace, *options, pids=pids), "SIGINT", 60.0, stderr=subprocess.PIPE, text=True, **more)
        self.trace, self.until, self.said = trace, until, []

    def __enter__(self):
        for line in self.stderr:
            self.said.append(line)
            if self.until(line) if callable(self.until) else self.until in line:
                return self
        super().__exit__(None, None, None)
        need(self.returncode != NO_PERMISSION, "".join(self.said).strip())
        raise Wrong(f"the recorder ended with status {self.returncode}: {''.join(self.said)[-2000:]}")

    def __exit__(self, *cause):
        if self.poll() is None:
            self.send_signal(signal.SIGINT)
        if not self.stderr.closed:
            self.said += self.stderr.readlines()
        super().__exit__(*cause)
