#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A process that harms its neighbours until it is ended, by its runner or after MOST_S at the latest.

  helper.py burn                    computes
  helper.py write FILE              writes and syncs a file of bounded size
  helper.py stop ON_S OFF_S PID...  stops and continues processes in turn
  helper.py count RATE COMMAND...   runs the command every COUNT_S with {n}, a number that grows by RATE a second
"""
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time

MOST_S = 180
COUNT_S = 1.0
FILE_BYTES, CHUNK = 64 << 20, 4 << 20
PR_SET_PDEATHSIG = 1


def burn(_arguments, end):
    while time.monotonic() < end:
        sum(range(10000))


def write(arguments, end):
    chunk = os.urandom(CHUNK)
    fd = os.open(arguments[0], os.O_RDWR | os.O_CREAT, 0o600)
    os.unlink(arguments[0])  # nothing is left, whatever ends this process
    while time.monotonic() < end:
        for offset in range(0, FILE_BYTES, CHUNK):
            os.pwrite(fd, chunk, offset)
            os.fdatasync(fd)


def stop(arguments, end):
    on_s, off_s = map(float, arguments[:2])
    pids = list(map(int, arguments[2:]))
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < end:
            for number, pause_s in ((signal.SIGSTOP, on_s), (signal.SIGCONT, off_s)):
                for pid in pids:
                    os.kill(pid, number)
                time.sleep(pause_s)


def count(arguments, end):
    rate = float(arguments[0])
    while time.monotonic() < end:
        number = str(int(time.monotonic() * rate))
        subprocess.run([word.replace("{n}", number) for word in arguments[1:]], check=True)
        time.sleep(COUNT_S)


def main():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    {"burn": burn, "write": write, "stop": stop, "count": count}[sys.argv[1]](sys.argv[2:], time.monotonic() + MOST_S)


if __name__ == "__main__":
    main()
