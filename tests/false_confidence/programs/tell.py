# SPDX-License-Identifier: Apache-2.0
"""What a program of this suite tells its runner, one JSON line an event into the pipe FAULT_EVENTS: started, ready, half.

  SECONDS[5]  how long a program does its work, from ready on
"""
import json
import os
import time

SECONDS = float(os.environ.get("SECONDS") or 5)
_events = os.environ.get("FAULT_EVENTS")
KINDS = {}


def kind(function):
    """Marks one of the kinds that a program has."""
    KINDS[function.__name__] = function
    return function


def say(event):
    """Lines this short are written in one piece."""
    if _events:
        with open(_events, "ab", buffering=0) as pipe:
            pipe.write((json.dumps({"event": event, "pid": os.getpid(), "rank": os.environ.get("RANK")}) + "\n").encode())


def rounds(seconds=SECONDS):
    """Numbers until the time is over."""
    begin, half, number = time.monotonic(), False, 0
    say("ready")
    while (now := time.monotonic() - begin) < seconds:
        if not half and now >= seconds / 2:
            half = True
            say("half")
        yield number
        number += 1


def choose(name):
    if name not in KINDS:
        raise SystemExit(f"{name!r} is unknown; one of {' '.join(KINDS)}")
    say("started")
    KINDS[name]()
