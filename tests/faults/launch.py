#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Starts the ranks of a job on this host and waits for them: launch.py SCRIPT

  RANKS[4] MASTER_ADDR[127.0.0.1] MASTER_PORT[a free one]
  NETNS[]   network namespace of each rank: a,b,c,d
  CPUS[]    core of each rank: 0,1,0,0
TERM ends the ranks that it started. The exit status is the first one that is not 0.
"""
import os
import signal
import socket
import subprocess
import sys


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    ranks = int(os.environ.get("RANKS") or 4)
    spaces = [name for name in os.environ.get("NETNS", "").split(",") if name]
    cores = [core for core in os.environ.get("CPUS", "").split(",") if core]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1", "WORLD_SIZE": str(ranks)}
    children = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        for rank in range(ranks):
            command = ["nsenter", "--net=/run/netns/" + spaces[rank]] if spaces else []
            command += ["taskset", "-c", cores[rank]] if cores else []
            command += ["/usr/bin/python3", *sys.argv[1:]]
            children.append(subprocess.Popen(command, env={**common, **os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank)}))
        statuses = [child.wait() for child in children]
        sys.exit(next((status & 0xff for status in statuses if status), 0))
    finally:
        for child in children:
            child.terminate()
            child.wait()


if __name__ == "__main__":
    main()
