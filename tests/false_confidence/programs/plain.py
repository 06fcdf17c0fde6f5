#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that train nothing: plain.py KIND. tell.py says what they tell and for how long they run."""
import asyncio
import concurrent.futures
import contextlib
import ctypes
import gc
import http.client
import http.server
import json
import mmap
import multiprocessing
import os
import queue
import random
import select
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
import threading
import time

import tell
from tell import kind

PR_SET_NAME, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 15, 22, 38, 2
ALLOW_ALL = struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000)  # BPF_RET: SECCOMP_RET_ALLOW
library = ctypes.CDLL(None, use_errno=True)


def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(number * number for number in range(500))


@kind
def sleep():
    for _ in tell.rounds():
        time.sleep(0.1)


@kind
def spin():
    for _ in tell.rounds():
        burn(0.02)


@kind
def regular():
    """A loop with the rhythm of a training job, and none of its work."""
    for _ in tell.rounds():
        burn(0.02)
        time.sleep(0.01)


@kind
def irregular():
    chance = random.Random(1)
    for _ in tell.rounds():
        burn(chance.expovariate(50))
        time.sleep(chance.expovariate(50))


@kind
def parse():
    text = json.dumps([{"key": number, "values": list(range(20))} for number in range(2000)])
    for _ in tell.rounds():
        json.loads(text)


@kind
def garbage():
    kept = []
    for number in tell.rounds():
        kept.append([kept])
        if number % 2000 == 0:
            gc.collect()


@kind
def threads():
    """Four threads that want the interpreter lock all the time: no program's fault, and no rank's."""
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for _ in tell.rounds():
            list(pool.map(burn, [0.01] * 8))


@kind
def many_threads():
    stop = threading.Event()
    for _ in range(200):
        threading.Thread(target=stop.wait, daemon=True).start()
    for _ in tell.rounds():
        time.sleep(0.05)
    stop.set()


@kind
def renamed_threads():
    def work(name):
        library.prctl(PR_SET_NAME, name, 0, 0, 0)
        burn(0.05)

    for number in tell.rounds():
        names = [f"w {number}\n".encode(), "größe→".encode(), b"DataLoader", b"pt_autograd_0", b"gloo\xff"]
        workers = [threading.Thread(target=work, args=(name,)) for name in names]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


@kind
def mutex():
    """Two threads hand a lock to each other: waiting is their protocol."""
    first, second = threading.Semaphore(1), threading.Semaphore(0)

    def other():
        while True:
            second.acquire()
            burn(0.002)
            first.release()

    threading.Thread(target=other, daemon=True).start()
    for _ in tell.rounds():
        first.acquire()
        burn(0.002)
        second.release()


@kind
def tasks():
    async def work(delay):
        await asyncio.sleep(delay)
        burn(0.001)

    async def main():
        for _ in tell.rounds():
            await asyncio.gather(*(work(0.01 * number) for number in range(10)))

    asyncio.run(main())


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"path": self.path}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments):
        pass


def ask(port):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/backward/optimizer")
    connection.getresponse().read()
    connection.close()


@kind
def web():
    """A web server with a thread a request, and its client in the same process."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for _ in tell.rounds():
            ask(server.server_address[1])
        server.shutdown()


@kind
def web_workers():
    """A server that forks four workers, all accepting on one socket; three of them seldom get anything."""
    with http.server.HTTPServer(("127.0.0.1", 0), Answer) as server:
        children = []
        for _ in range(4):
            if (child := os.fork()) == 0:
                server.serve_forever()
            children.append(child)
        for _ in tell.rounds():
            ask(server.server_address[1])
        for child in children:
            os.kill(child, signal.SIGTERM)
            os.waitpid(child, 0)


@kind
def database():
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(sqlite3.connect(os.path.join(folder, "db"))) as base:
        base.execute("create table steps (rank integer, loss real)")
        for number in tell.rounds():
            base.executemany("insert into steps values (?, ?)", [(number % 4, random.random()) for _ in range(200)])
            base.commit()
            base.execute("select rank, avg(loss) from steps group by rank").fetchall()


def uneven(number):
    burn(0.2 if number % 4 == 0 else 0.01)
    return number


@kind
def pool():
    """Work that is uneven by nature; no worker is expected to do as much as another."""
    with multiprocessing.Pool(4) as workers:
        for _ in tell.rounds():
            workers.map(uneven, range(8), chunksize=1)


@kind
def pool_with_ranks():
    """The same in processes that say RANK and WORLD_SIZE, as a launcher of tests would; nothing is trained."""
    os.environ.update(WORLD_SIZE="4", MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
    environments = [{**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "FAULT_EVENTS": ""} for rank in range(4)]
    children = [subprocess.Popen([sys.executable, __file__, "irregular" if rank else "spin"], env=environment)
                for rank, environment in enumerate(environments)]
    for _ in tell.rounds():
        time.sleep(0.1)
    for child in children:
        child.wait()


@kind
def children():
    for _ in tell.rounds():
        subprocess.run(["/bin/true"], check=True)


@kind
def failing_children():
    """Processes that end with an error or by a signal, as tests of a command do; the program goes on."""
    for number in tell.rounds():
        subprocess.run(["/bin/sh", "-c", ("exit 3", "kill -9 $$", "kill -6 $$")[number % 3]], check=False)


@kind
def forks():
    """Fork without exec, three generations deep."""
    for _ in tell.rounds():
        if (child := os.fork()) == 0:
            if (grandchild := os.fork()) == 0:
                burn(0.005)
                os._exit(0)
            os.waitpid(grandchild, 0)
            os._exit(0)
        os.waitpid(child, 0)


@kind
def zombies():
    """Children that are waited for only at the end."""
    gone = []
    for number in tell.rounds():
        if number < 200:
            if (child := os.fork()) == 0:
                os._exit(number % 5)
            gone.append(child)
        time.sleep(0.01)
    for child in gone:
        os.waitpid(child, 0)


@kind
def daemon():
    """The work goes on in a process whose parent has ended."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            sleep()
        os._exit(0)


@kind
def pipeline():
    """Producer, worker and consumer with bounded queues; the worker is the slow one, the others wait by design."""
    first, second = multiprocessing.Queue(2), multiprocessing.Queue(2)

    def work():
        while (item := first.get()) is not None:
            burn(0.02)
            second.put(item)
        second.put(None)

    def consume():
        while second.get() is not None:
            pass

    workers = [multiprocessing.Process(target=work), multiprocessing.Process(target=consume)]
    for worker in workers:
        worker.start()
    for number in tell.rounds():
        first.put(number)
    first.put(None)
    for worker in workers:
        worker.join()


@kind
def thread_queue():
    items = queue.Queue(4)

    def work():
        while items.get() is not None:
            burn(0.005)

    worker = threading.Thread(target=work)
    worker.start()
    for number in tell.rounds():
        items.put(number)
    items.put(None)
    worker.join()


@kind
def ping_pong():
    here, there = socket.socketpair()
    if (child := os.fork()) == 0:
        here.close()
        while data := there.recv(64):
            there.send(data)
        os._exit(0)
    there.close()
    for _ in tell.rounds():
        here.send(b"ping")
        here.recv(64)
    here.close()
    os.waitpid(child, 0)


@kind
def signals():
    """A timer signal every millisecond, and one to itself a round."""
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    for _ in tell.rounds():
        os.kill(os.getpid(), signal.SIGUSR1)
        burn(0.002)
    signal.setitimer(signal.ITIMER_REAL, 0)


@kind
def ignores_term():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sleep()


@kind
def poll():
    reader, writer = os.pipe()
    for _ in tell.rounds():
        select.select([reader], [], [], 0.005)
        os.write(writer, b"x")
        os.read(reader, 1)


@kind
def files():
    with tempfile.TemporaryFile() as file:
        file.truncate(1 << 22)
        with mmap.mmap(file.fileno(), 1 << 22) as pages:
            for number in tell.rounds():
                pages[(number * 4096) % (1 << 22)] = 1
                if number % 100 == 0:
                    pages.flush()
                    os.fsync(file.fileno())


@kind
def numbers():
    import numpy
    matrix = numpy.random.default_rng(1).normal(size=(200, 200))
    for _ in tell.rounds():
        numpy.linalg.svd(matrix)


@kind
def regression():
    """Gradient descent by hand, in numpy: training, but none that PyTorch's events tell of."""
    import numpy
    chance = numpy.random.default_rng(1)
    inputs, weights = chance.normal(size=(4096, 64)), numpy.zeros(64)
    targets = inputs @ chance.normal(size=64)
    for _ in tell.rounds():
        weights -= 0.1 * inputs.T @ (inputs @ weights - targets) / len(targets)


@kind
def seccomp():
    """Every system call passes a filter, which allows it."""
    program = ctypes.create_string_buffer(ALLOW_ALL)
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 1, ctypes.addressof(program)))
    if library.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or library.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    regular()


@kind
def lookalike():
    """Functions and classes with the names of PyTorch's, and nothing behind them."""
    class Optimizer:
        def step(self):
            burn(0.005)

    class DataLoader:
        def __next__(self):
            time.sleep(0.02)

    def backward():
        burn(0.01)

    loader, optimizer = DataLoader(), Optimizer()
    for _ in tell.rounds():
        next(loader.__next__() for _ in range(1))
        backward()
        optimizer.step()


@kind
def exec_chain():
    left = int(os.environ.get("LEFT") or 30)
    if left:
        os.execve(sys.executable, [sys.executable, __file__, "exec_chain"], {**os.environ, "LEFT": str(left - 1), "FAULT_EVENTS": ""})
    sleep()


if __name__ == "__main__":
    tell.choose(sys.argv[1])
