# SPDX-License-Identifier: Apache-2.0
"""The faults that a job can bring upon itself, and the report it gives of its own steps.

  FAULT         a name of KNOWN [none]
  FAULT_RANKS   ranks that get it, "1" or "0,2", or "all"
  FAULT_DOSE    share of this job's own clean step, measured in 30 steps from step 10 on; the fault begins after them
  FAULT_AFTER   clean steps before those in which the clean step is measured, so that a detector can learn [0]
  FAULT_MS      instead of FAULT_DOSE: milliseconds a step, from the first step on
  FAULT_EVENTS  pipe or file that gets one JSON line per event: started, calibrated, fault, finished

The job calls the functions below where user code has its own; they return at once unless the fault is theirs.
"""
import ctypes
import fcntl
import gc
import json
import mmap
import multiprocessing
import os
import random
import select
import tempfile
import threading
import time

import torch
import torch.distributed as dist

KNOWN = ("none", "input_sleep", "collate", "forward", "backward", "optimizer", "checkpoint", "evaluation", "everywhere", "rotating",
         "log_every_step", "double_batch", "evaluation_everywhere", "skip_collective", "stuck_loader", "deadlock",
         "interpreter_lock", "mismatch", "lock_hog", "lock", "mutex", "full_pipe", "stall", "uneven_batch", "uneven_sequence", "wandering_batch",
         "garbage", "fresh_memory")
CALIBRATE_FROM = 10 + int(os.environ.get("FAULT_AFTER") or 0)
CALIBRATE_TO = CALIBRATE_FROM + 30
PERIOD = 20  # steps between two checkpoints or evaluations
STALL_PERIOD = 25  # steps between two stalls of three times the dose: nothing that a median shows
HANG_AT = CALIBRATE_TO + 20
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
NAME = os.environ.get("FAULT") or "none"
DOSE = float(os.environ.get("FAULT_DOSE") or 0)
WORKERS = int(os.environ.get("WORKERS") or 0)
_ranks = os.environ.get("FAULT_RANKS") or ""
_mine = _ranks == "all" or str(RANK) in _ranks.split(",")
# Seconds a step; shared with data-loader workers, which are forked before the fault is calibrated.
_cost = multiprocessing.Value("d", float(os.environ.get("FAULT_MS") or 0) / 1000, lock=False)
_step = multiprocessing.Value("i", 0, lock=False)
_events = os.environ.get("FAULT_EVENTS")

if NAME not in KNOWN:
    raise SystemExit(f"FAULT={NAME} is unknown; one of {' '.join(KNOWN)}")


def on(name):
    return NAME == name and _mine


def tell(event, **facts):
    """One line to whoever planted the fault; lines this short are written in one piece."""
    if _events:
        line = json.dumps({"event": event, "rank": RANK, "pid": os.getpid(), "at": time.monotonic(), **facts}) + "\n"
        with open(_events, "ab", buffering=0) as pipe:
            pipe.write(line.encode())


def hang_is_due():
    if _step.value < HANG_AT:
        return False
    tell("fault")
    return True


def burn(seconds):
    """Tensor work for that much of this thread's own processor time."""
    end = time.thread_time() + seconds
    values = torch.ones(64, 64)
    while time.thread_time() < end:
        values = torch.tanh(values)


# --- the data set ---------------------------------------------------------------------------------

def read_slow_source(parts):
    time.sleep(_cost.value / parts)


def read_silent_source():
    silent, _kept_open = os.pipe()
    os.read(silent, 1)


def at_sample(parts):
    """In Dataset.__getitem__; `parts`: samples a step."""
    if on("input_sleep"):
        read_slow_source(parts)
    if on("stuck_loader") and hang_is_due():
        read_silent_source()


def tokenise_again(parts):
    end = time.thread_time() + _cost.value / parts
    while time.thread_time() < end:
        " ".join(str(number) for number in range(200)).split()


def at_collate(parts):
    if on("collate"):
        tokenise_again(parts)


# --- forward, backward, optimizer -----------------------------------------------------------------

def normalise_again(parts):
    burn(_cost.value / parts)


def touch_fresh_memory(parts):
    """A mapping made, touched and dropped, over and over: its time is the kernel's."""
    end = time.thread_time() + _cost.value / parts
    while time.thread_time() < end:
        with mmap.mmap(-1, 1 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            memory[::mmap.PAGESIZE] = bytes(len(memory) // mmap.PAGESIZE)


def wait_for_device(parts):
    """Not a burn: where all ranks do it they may outnumber the processors, and the dose would grow."""
    time.sleep(_cost.value / parts)


def scan_gradient(gradient, parts):
    burn(_cost.value / parts)
    return gradient


def at_forward(hidden, parts):
    """In Module.forward, on the output of its first layers; `parts`: forward passes a step."""
    if on("forward"):
        normalise_again(parts)
    if on("fresh_memory"):
        touch_fresh_memory(parts)
    if on("everywhere"):
        wait_for_device(parts)
    if on("backward") and hidden.requires_grad:
        hidden.register_hook(lambda gradient: scan_gradient(gradient, parts))
    return hidden


def scan_for_overflow():
    burn(_cost.value)


def optimizer_kind(kind):
    """The optimizer class, or one with a costly step()."""

    class CarefulOptimizer(kind):
        def step(self, closure=None):
            scan_for_overflow()
            return super().step(closure)

    return CarefulOptimizer if on("optimizer") else kind


# --- waits for somebody else ------------------------------------------------------------------------

class Helper:
    """A thread that works once for each ask(), and is not waited for."""

    def __init__(self, work):
        self.asked = threading.Semaphore(0)
        self.begun = threading.Semaphore(0)
        threading.Thread(target=self.run, args=(work,), daemon=True).start()

    def run(self, work):
        while True:
            self.asked.acquire()
            work()

    def ask(self):
        self.asked.release()


_helpers, _lock, _mutex, _pipe = {}, threading.Lock(), ctypes.create_string_buffer(64), []


def parse_metrics():
    """Pure Python, which keeps the interpreter lock until it is asked for it."""
    end = time.thread_time() + _cost.value
    while time.thread_time() < end:
        sum(number * number for number in range(2000))


def flush_under_lock():
    with _lock:
        _helpers["lock"].begun.release()
        time.sleep(_cost.value)


def flush_under_mutex():
    library = ctypes.CDLL(None)
    library.pthread_mutex_lock(_mutex)
    _helpers["mutex"].begun.release()
    time.sleep(_cost.value)
    library.pthread_mutex_unlock(_mutex)


def read_log_slowly(reader, parent):
    """A log collector that takes its time for each batch of lines."""
    while os.getppid() == parent:
        if select.select([reader], [], [], 0.2)[0]:
            time.sleep(_cost.value)
            os.read(reader, 16384)


def write_log(lines):
    os.write(_pipe[0], lines)


def helper(name, work):
    if name not in _helpers:
        _helpers[name] = Helper(work)
    return _helpers[name]


def at_step_begin():
    """Before the first forward pass."""
    if _step.value < CALIBRATE_TO:
        return
    if on("lock_hog"):
        helper("lock_hog", parse_metrics).ask()


def wait_for_others():
    if on("lock"):
        helper("lock", flush_under_lock).ask()
        _helpers["lock"].begun.acquire()
        with _lock:
            pass
    if on("mutex"):
        helper("mutex", flush_under_mutex).ask()
        _helpers["mutex"].begun.acquire()
        library = ctypes.CDLL(None)
        library.pthread_mutex_lock(_mutex)
        library.pthread_mutex_unlock(_mutex)
    if on("full_pipe"):
        if not _pipe:
            reader, writer = os.pipe()
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
            parent = os.getpid()
            if os.fork() == 0:
                read_log_slowly(reader, parent)
                os._exit(0)
            _pipe.append(writer)
        write_log(b"step\n" * 1600)  # 8,000 bytes: twice what the pipe holds


def grown(batch, uneven):
    """The batch, or as large a one as the fault wants this rank to have; `uneven`: how many times the dose larger it must be to make
    a step about the dose longer (measured)."""
    times = 1.0
    if _step.value >= CALIBRATE_TO and (on("uneven_batch") or (on("wandering_batch") and random.random() < 0.5)):
        times += uneven * DOSE
    if times == 1.0:
        return batch
    if isinstance(batch, (list, tuple)):
        return [grow(part, times) for part in batch]
    return grow(batch, times)


def lengthened(sequences, uneven):
    """The sequences [batch, tokens], or as long ones as the fault wants this rank to have; `uneven` as for grown()."""
    if _step.value < CALIBRATE_TO or not on("uneven_sequence"):
        return sequences
    length = sequences.size(1)
    return sequences[:, torch.arange(round(length * (1 + uneven * DOSE))) % length]


def grow(values, times):
    return values[torch.arange(round(len(values) * times)) % len(values)]


# --- between the steps ----------------------------------------------------------------------------

def save_checkpoint(model):
    """Writes and syncs until the dose of all steps since the last one is spent: a disk that is too slow for its job."""
    end = time.monotonic() + _cost.value * PERIOD
    with tempfile.TemporaryFile() as file:
        torch.save(model.state_dict(), file)
        while time.monotonic() < end:
            file.seek(0)
            file.write(b"\1" * (1 << 20))
            file.flush()
            os.fsync(file.fileno())


def evaluate(model, batch, loss_of, seconds):
    end = time.monotonic() + seconds
    with torch.no_grad():
        while time.monotonic() < end:
            loss_of(model.module, batch)


def collect_garbage():
    end = time.monotonic() + _cost.value
    while time.monotonic() < end:
        gc.collect()


def compile_kernels(seconds):
    """What a shape that was not seen before costs."""
    burn(seconds)


class Node:
    def __init__(self, other):
        self.other = [other, self]


_kept = []


def keep_cycles():
    """Cycles that stay alive, and a collection that looks at all of them each step, until it takes the dose."""
    before = time.monotonic()
    gc.collect()
    if time.monotonic() - before < _cost.value:
        for _ in range(20000):
            _kept.append(Node(_kept[-1] if _kept else None))


def log_step(step, loss):
    if step % 100 == 1:
        print(f"step {step} loss {float(loss):.4f}", flush=True)
    with open(os.devnull, "w", encoding="utf-8") as log:
        log.write(json.dumps({"step": step, "loss": float(loss), "at": time.time()}))


def decode_natively():
    ctypes.PyDLL(None).pause()  # PyDLL keeps the interpreter lock


def merge_statistics(count):
    dist.all_reduce(torch.zeros(count))


def report_metrics():
    """Two locks, taken in opposite order by two threads."""
    totals, file = threading.Lock(), threading.Lock()
    file_taken, totals_taken = threading.Event(), threading.Event()

    def flush_metrics():
        with file:
            file_taken.set()
            totals_taken.wait()
            with totals:
                pass

    threading.Thread(target=flush_metrics, daemon=True).start()
    with totals:
        totals_taken.set()
        file_taken.wait()
        with file:
            pass


def wait_for_peers(step):
    """A barrier that every rank takes but the faulted one."""
    if NAME == "skip_collective" and step == HANG_AT:
        if _mine:
            tell("fault")
        else:
            dist.barrier()


def at_step_end(step, model, batch, loss, loss_of):
    """After optimizer.step(); `loss_of(model, batch)` computes a loss."""
    if step > CALIBRATE_TO and step % PERIOD == 0:
        if on("checkpoint"):
            save_checkpoint(model)
        if on("evaluation"):
            evaluate(model, batch, loss_of, _cost.value * PERIOD)
        if on("evaluation_everywhere"):
            evaluate(model, batch, loss_of, 0.1)
    if on("log_every_step") and RANK == 0:
        log_step(step, loss)
    if on("rotating") and step % WORLD == RANK:
        collect_garbage()
    if on("stall") and step > CALIBRATE_TO and step % STALL_PERIOD == 0:
        compile_kernels(_cost.value * 3)
    if on("garbage") and step > CALIBRATE_TO:
        keep_cycles()
    if step > CALIBRATE_TO:
        wait_for_others()
    wait_for_peers(step)
    if step == HANG_AT:
        if NAME == "mismatch":
            if _mine:
                tell("fault")
            merge_statistics(300_000 if _mine else 100_000)
        if on("deadlock"):
            tell("fault")
            report_metrics()
        if on("interpreter_lock"):
            tell("fault")
            decode_natively()


def epochs(batch):
    """Batch size and steps of each epoch; None: until the time is over."""
    return [(batch, CALIBRATE_TO + 80), (2 * batch, None)] if on("double_batch") else [(batch, None)]


# --- the job's own clock --------------------------------------------------------------------------

class Clock:
    """Times the steps, plants the dose once enough clean ones are known, ends the job in time on all ranks together."""

    def __init__(self, seconds):
        self.steps, self.seconds, self.began = [], seconds, time.monotonic()
        self.last, self.cpu = self.began, 0.0
        self.keep_going = torch.ones(1)

    def step_done(self, gradient_bytes):
        """True as long as the job shall go on."""
        now = time.monotonic()
        self.steps.append(now - self.last)
        self.last = now
        count = _step.value = len(self.steps)
        if count == CALIBRATE_FROM:
            self.cpu = time.process_time()
        if count == CALIBRATE_TO:
            self.calibrate(gradient_bytes)
        if count % 8 == 0:  # rank 0 decides for all
            self.keep_going[0] = float(now - self.began < self.seconds)
            dist.broadcast(self.keep_going, 0)
        return bool(self.keep_going[0])

    def clean_step(self):
        return sum(self.steps[CALIBRATE_FROM:CALIBRATE_TO]) / (CALIBRATE_TO - CALIBRATE_FROM)

    def calibrate(self, gradient_bytes):
        cpu = (time.process_time() - self.cpu) / (CALIBRATE_TO - CALIBRATE_FROM)
        clean = torch.tensor([self.clean_step()])
        dist.broadcast(clean, 0)
        if DOSE:
            # A worker fetches while its rank computes: it costs a step only what it takes beyond one.
            _cost.value = (DOSE + (WORKERS > 0)) * float(clean)
        tell("calibrated", step_ms=float(clean) * 1000, cpu_ms=cpu * 1000, gradient_bytes=gradient_bytes)

    def finish(self):
        faulted = self.steps[CALIBRATE_TO + 5:]
        tell("finished", steps=len(self.steps), clean_ms=self.clean_step() * 1000,
             fault_ms=1000 * sum(faulted) / max(1, len(faulted)))


tell("started")
