#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Starts the ranks of a job on this host and waits for them: launch.py SCRIPT.py|PROGRAM [ARGUMENT...]

  PYTHON[/usr/bin/python3] RANKS[4] MASTER_ADDR[127.0.0.1] MASTER_PORT[a free one]
  NETNS[]   network namespace of each rank: a,b,c,d
  CPUS[]    core of each rank: 0,1,0,0
  CGROUPS[] control groups that a rank enters before it starts, {rank} in place of its number: a/r{rank},b/r{rank}
Scripts find the modules beside this file. TERM ends the ranks that it started. The exit status is the first one that is not 0.
"""
import os
import signal
import socket
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ENTER = ["/bin/sh", "-c", 'while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 1; shift; done; shift; exec "$@"', "enter"]


def listed(name):
    return [word for word in os.environ.get(name, "").split(",") if word]


def command_of(rank):
    spaces, cores, groups = listed("NETNS"), listed("CPUS"), listed("CGROUPS")
    command = [*ENTER, *(group.replace("{rank}", str(rank)) for group in groups), "--"] if groups else []
    command += ["nsenter", "--net=/run/netns/" + spaces[rank]] if spaces else []
    command += ["taskset", "-c", cores[rank]] if cores else []
    command += [os.environ.get("PYTHON") or "/usr/bin/python3"] if sys.argv[1].endswith(".py") else []
    return command + [word.replace("{rank}", str(rank)) for word in sys.argv[1:]]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    ranks = int(os.environ.get("RANKS") or 4)
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1", "WORLD_SIZE": str(ranks),
              "PYTHONPATH": HERE}
    children = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        for rank in range(ranks):
            children.append(subprocess.Popen(command_of(rank), env={**common, **os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank)}))
        statuses = [child.wait() for child in children]
        sys.exit(next((status & 0xff for status in statuses if status), 0))
    finally:
        for child in children:
            child.terminate()
            child.wait()


if __name__ == "__main__":
    main()
