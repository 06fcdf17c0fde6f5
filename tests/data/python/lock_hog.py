# SPDX-License-Identifier: Apache-2.0
"""A thread that keeps the interpreter lock, and a main thread that wants it."""
import os
import threading


def hog():
    while True:
        sum(range(1000))


def want():
    while True:
        sum(range(10))


threading.Thread(target=hog, daemon=True).start()
os.write(1, b"END\n")
want()
