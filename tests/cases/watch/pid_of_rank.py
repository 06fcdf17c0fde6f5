#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""kansoku jobs --json | pid_of_rank.py JOB RANK"""
import json
import sys

for job in json.load(sys.stdin)["jobs"]:
    if job["name"] == sys.argv[1]:
        print(next(rank["pid"] for rank in job["ranks"] if rank["rank"] == int(sys.argv[2])))
