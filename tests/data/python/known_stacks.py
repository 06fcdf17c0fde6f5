# SPDX-License-Identifier: Apache-2.0
"""Threads that wait in known places; prints where, then waits for a byte on standard input.

Output: "T <native id>" per thread, then "F <line>\t<function>\t<file>" per frame, outermost first; at last "END".
"""
import os
import sys
import threading

gate = threading.Lock()
gate.acquire()
arrived = threading.Semaphore(0)
threads = {}


def wait_here():
    arrived.release(); gate.acquire()


def register():
    threads[threading.get_ident()] = threading.get_native_id()


def name_of(code):
    return getattr(code, "co_qualname", code.co_name)


def print_frames(frame):
    stack = []
    while frame is not None:
        stack.append("F %d\t%s\t%s" % (frame.f_lineno, name_of(frame.f_code), frame.f_code.co_filename))
        frame = frame.f_back
    return "".join(line + "\n" for line in reversed(stack))


def report():
    frames = sys._current_frames()
    text = ""
    for ident, native in threads.items():
        frame = frames[ident]
        if ident == threading.get_ident():
            frame = sys._getframe(1)
        text += "T %d\n" % native + print_frames(frame)
    os.write(1, (text + "END\n").encode("utf-8"))


def generator():
    for i in range(3):
        yield i
        if i == 1:
            wait_here()


class Loader:
    def run(self):
        register()
        for _ in generator():
            pass


def recurse(depth):
    if depth == 0:
        register()
        wait_here()
        return 0
    return 1 + recurse(
        depth - 1
    )


def zähler():
    register()
    (lambda: wait_here())()


def 待つ():
    register()
    namespace = {"wait_here": wait_here}
    exec(compile("\n\n\ndef generated():\n    wait_here()\n\n\ngenerated()\n", "<generated>", "exec"), namespace)


def with_long_lines():
    register()
    value = 0
    if value == 0:
        for step in [1, 2, 3]:
            value += step
            try:
                if value == 6:
                    raise ValueError(value)
            except ValueError:
                wait_here()


TARGETS = [Loader().run, lambda: recurse(40), zähler, 待つ, with_long_lines]


def main():
    register()
    for target in TARGETS:
        threading.Thread(target=target, daemon=True).start()
    for _ in TARGETS:
        arrived.acquire()
    report(); os.read(0, 1)


main()
os._exit(0)
