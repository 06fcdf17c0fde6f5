# SPDX-License-Identifier: Apache-2.0
"""Reasons by which one rank's step is longer though its code is the same: REASON names one, rank 1 gets REASON_MS [25] a step of it.

  cow          memory shared with a child that was forked is written: each page is copied (COW_MS [8] a step)
  mapping      memory is mapped, touched and dropped
  dontneed     memory is given back (madvise) and touched again
  evicted      a file's pages are dropped from the page cache and touched again
  limit        more of a file is touched than the control group's memory holds
  calls        system calls that leave nothing behind
  lock         a file that another process keeps locked for that long
The reasons that the host brings about (interrupts) are not here: run.py does.
"""
import atexit
import fcntl
import mmap
import os
import tempfile
import time

NAME, SECONDS = os.environ.get("REASON") or "", float(os.environ.get("REASON_MS") or 25) / 1e3
COW_SECONDS = float(os.environ.get("COW_MS") or 8) / 1e3
FIRST_STEP = 5
SHARED_BYTES = 2 << 30
BYTES, FILE_BYTES, MADV_DONTNEED = 1 << 20, 256 << 20, 4
PAGES = BYTES // mmap.PAGESIZE
_kept = {}


def kept(name, make):
    if name not in _kept:
        _kept[name] = make()
    return _kept[name]


def until_spent(work):
    end = time.thread_time() + (COW_SECONDS if work is write_shared else SECONDS)
    while time.thread_time() < end:
        work()


def anonymous():
    return mmap.mmap(-1, BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def touch(memory, begin=0):
    memory[begin:begin + BYTES:mmap.PAGESIZE] = bytes(PAGES)


def share_memory():
    """Touched, and shared with a child that lives until the end."""
    memory = mmap.mmap(-1, SHARED_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for begin in range(0, SHARED_BYTES, BYTES):
        touch(memory, begin)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    os.close(reader)
    atexit.register(lambda: (os.close(writer), os.waitpid(child, 0)))
    return memory


def write_shared():
    memory, begin = kept("shared", share_memory), _kept.get("at", 0)
    if begin < SHARED_BYTES:
        touch(memory, begin)
        _kept["at"] = begin + BYTES


def map_and_drop():
    with anonymous() as memory:
        touch(memory)


def give_back():
    memory = kept("memory", anonymous)
    touch(memory)
    memory.madvise(MADV_DONTNEED)


def sparse_file():
    file = tempfile.TemporaryFile()
    file.truncate(FILE_BYTES)
    return file


def touch_evicted():
    file = kept("file", sparse_file)
    with mmap.mmap(file.fileno(), 8 * BYTES, mmap.MAP_SHARED, mmap.PROT_READ) as memory:
        sum(memory[::mmap.PAGESIZE])
    os.posix_fadvise(file.fileno(), 0, 8 * BYTES, os.POSIX_FADV_DONTNEED)


def touch_beyond_limit():
    file = kept("file", sparse_file)
    memory = kept("mapped", lambda: mmap.mmap(file.fileno(), FILE_BYTES, mmap.MAP_SHARED, mmap.PROT_READ))
    begin = _kept["at"] = (_kept.get("at", 0) + BYTES) % FILE_BYTES
    sum(memory[begin:begin + BYTES:mmap.PAGESIZE])


def call_often():
    zeros, buffer = kept("zeros", lambda: open("/dev/zero", "rb", buffering=0)), kept("buffer", lambda: bytearray(64 << 10))
    for _ in range(20):
        zeros.readinto(buffer)


def keep_locked(path, asked, parent):
    with open(path, "r+b") as file:
        while os.getppid() == parent and os.read(asked, 1):
            fcntl.flock(file, fcntl.LOCK_EX)
            os.write(_kept["held"], b".")
            time.sleep(SECONDS)  # allowed: so long is the lock held
            fcntl.flock(file, fcntl.LOCK_UN)


def start_holder():
    file = tempfile.NamedTemporaryFile()
    asked, ask = os.pipe()
    holds, _kept["held"] = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(ask)
        keep_locked(file.name, asked, parent)
        os._exit(0)
    atexit.register(lambda: (os.close(ask), os.waitpid(child, 0)))
    return file, ask, holds


def wait_for_lock():
    file, ask, holds = kept("holder", start_holder)
    os.write(ask, b".")
    os.read(holds, 1)
    fcntl.flock(file, fcntl.LOCK_EX)
    fcntl.flock(file, fcntl.LOCK_UN)


WORK = {"cow": write_shared, "mapping": map_and_drop, "dontneed": give_back, "evicted": touch_evicted, "limit": touch_beyond_limit,
        "calls": call_often}


def prepare(rank):
    """Before the training: the memory that is shared takes seconds to make."""
    if rank == 1 and NAME == "cow":
        kept("shared", share_memory)


def at_step(step, rank):
    if rank != 1 or step < FIRST_STEP:
        return
    if NAME == "lock":
        wait_for_lock()
    elif NAME in WORK:
        until_spent(WORK[NAME])
