# SPDX-License-Identifier: Apache-2.0
"""Obeys one-letter commands: d(eep recursion) f(ork) e(xec cat) q(uit). Prints "END" when one was obeyed."""
import os
import sys


def next_command():
    return os.read(0, 1)


def obey(command):
    if command == b"d":
        sys.setrecursionlimit(5000)
        dive(600)
    elif command == b"f":
        child = os.fork()
        if child == 0:
            in_child()
        os.write(1, b"%d\nEND\n" % child)
    elif command == b"e":
        os.execv("/bin/cat", ["/bin/cat"])
    else:
        os._exit(0)


def dive(depth):
    if depth > 0:
        return dive(depth - 1)
    os.write(1, b"END\n")
    return os.read(0, 1)


def in_child():
    os.read(0, 1)
    os._exit(0)


def main():
    os.write(1, b"END\n")
    while True:
        obey(next_command())


main()
