# SPDX-License-Identifier: Apache-2.0
"""Runs a training script, and writes the kernel's own account of the thread that trains: account.py SCRIPT.py

ACCOUNT names a folder; rank R leaves R.json there: system_ms, user_ms, faults of the thread from the last model's wrapping to the end.
"""
import atexit
import json
import os
import resource
import runpy
import sys

from torch.nn.parallel import DistributedDataParallel

ACCOUNT = {}
WRAP = DistributedDataParallel.__init__


def now():
    use = resource.getrusage(resource.RUSAGE_THREAD)
    return {"system_ms": use.ru_stime * 1e3, "user_ms": use.ru_utime * 1e3, "faults": use.ru_minflt}


def wrap(self, *arguments, **options):
    WRAP(self, *arguments, **options)
    ACCOUNT.update(now())


def write():
    spent = {name: value - ACCOUNT.get(name, 0) for name, value in now().items()}
    with open(os.path.join(os.environ["ACCOUNT"], os.environ["RANK"] + ".json"), "w", encoding="ascii") as file:
        json.dump(spent, file)


if __name__ == "__main__":
    DistributedDataParallel.__init__ = wrap
    atexit.register(write)
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")
