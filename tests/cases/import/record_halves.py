#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Records two halves of a running job at the same time: record_halves.py KANSOKU PORT OUT_A OUT_B. As two hosts would."""
import json
import subprocess
import sys
import time


def pids_of_job(kansoku, port):
    """Processes of the four ranks, by rank; waits until all are there."""
    for _ in range(300):
        jobs = json.loads(subprocess.run([kansoku, "jobs", "--json"], capture_output=True, text=True, check=True).stdout)["jobs"]
        for job in jobs:
            if job["name"].endswith(":" + port) and len(job["ranks"]) == 4:
                return [rank["pid"] for rank in sorted(job["ranks"], key=lambda rank: rank["rank"])]
        time.sleep(0.1)
    sys.exit(f"no job of four ranks at port {port}")


def main():
    kansoku, port, *paths = sys.argv[1:]
    pids = pids_of_job(kansoku, port)
    halves = [subprocess.Popen([kansoku, "record", "-q", "-p", str(a), "-p", str(b), "--duration", "14s", "-o", path])
              for path, (a, b) in zip(paths, (pids[:2], pids[2:]))]
    return max(half.wait() for half in halves)


if __name__ == "__main__":
    sys.exit(main())
