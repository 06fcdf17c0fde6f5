#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks of a distributed job (gloo), one a process, started by tests/harness/launch.py: ranks.py KIND

Rank 0 decides when the work is over, except where a kind says otherwise. WIDTH[256] BATCH[64]; tell.py says what they tell.
"""
import contextlib
import datetime
import os
import random
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

import small_model
import tell
from small_model import BATCH, CLASSES, FEATURES, WIDTH, batch, loss_of, step
from tell import kind


def together(group=None, source=0):
    """Rounds that all ranks end in the same one."""
    go = torch.ones(1)
    own = tell.rounds(1e9 if dist.get_rank() != source else tell.SECONDS)
    for number in own:
        if number % 8 == 0:
            dist.broadcast(go, source, group=group)
            if not go[0]:
                return
        yield number
    go[0] = 0
    while number % 8 != 7:  # the others look again in a multiple of eight; what is between is done as well
        number += 1
        yield number
    dist.broadcast(go, source, group=group)


def build():
    torch.manual_seed(0)  # all ranks begin alike
    return small_model.build()


def start(**options):
    model = DistributedDataParallel(build(), **options)
    return model, torch.optim.Adam(model.parameters(), 1e-3), batch()


def average(model):
    for weight in model.parameters():
        dist.all_reduce(weight.data)
        weight.data /= dist.get_world_size()


@kind
def ddp():
    model, optimizer, points = start()
    for _ in together():
        step(model, optimizer, points)


@kind
def evaluation():
    """All ranks evaluate every 30 steps."""
    model, optimizer, points = start()
    for number in together():
        step(model, optimizer, points)
        if number % 30 == 29:
            with torch.no_grad():
                for _ in range(20):
                    loss_of(model.module, points)


@kind
def accumulation():
    model, optimizer, points = start()
    for number in together():
        with contextlib.nullcontext() if number % 4 == 3 else model.no_sync():
            loss_of(model, points).backward()
        if number % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


@kind
def join():
    """Uneven inputs: rank 0 has fewer batches, and shadows the others' collectives after its last one."""
    model, optimizer, points = start()
    dist.barrier()
    with Join([model]):
        for _ in tell.rounds(tell.SECONDS * (0.6 if dist.get_rank() == 0 else 1)):
            step(model, optimizer, points)


@kind
def bucketed_lengths():
    """All ranks have the same length in a step, and another one in the next: nobody is slower than anybody."""
    model, optimizer, _ = start()
    chance = random.Random(1)
    points = [batch(size) for size in (16, 64, 256, 512)]
    for _ in together():
        step(model, optimizer, chance.choice(points))


@kind
def local_steps():
    """Ten steps alone, then the weights are averaged."""
    model = build()
    optimizer, points = torch.optim.SGD(model.parameters(), 0.01), batch()
    for number in together():
        step(model, optimizer, points)
        if number % 10 == 9:
            average(model)


@kind
def groups():
    """Pairs with groups of their own, and now and then all together (four ranks)."""
    half = [dist.new_group([0, 1]), dist.new_group([2, 3])][dist.get_rank() // 2]
    model = DistributedDataParallel(build(), process_group=half)
    optimizer, points = torch.optim.Adam(model.parameters(), 1e-3), batch()
    for number in together():
        step(model, optimizer, points)
        if number % 20 == 19:
            dist.barrier()


@kind
def one_trains():
    """Rank 1 trains in a group of its own; rank 0 keeps the books and only decides when it is over."""
    groups_of = [dist.new_group([0]), dist.new_group([1])]
    model = DistributedDataParallel(build(), process_group=groups_of[dist.get_rank()])
    optimizer, points = torch.optim.Adam(model.parameters(), 1e-3), batch()
    for _ in together():
        if dist.get_rank():
            step(model, optimizer, points)


def stage_of(rank, cost):
    return nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(cost[rank])])


def run_pipeline(cost):
    """Each rank holds a stage; activations go down by send and receive, gradients come back."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    stage = stage_of(rank, cost)
    optimizer = torch.optim.SGD(stage.parameters(), 0.01)
    for _ in together():
        values = torch.randn(BATCH, WIDTH)
        if rank > 0:
            dist.recv(values, rank - 1)
            values.requires_grad_()
        made = stage(values)
        optimizer.zero_grad()
        if rank < last:
            dist.send(made.detach(), rank + 1)
            gradient = torch.empty_like(made)
            dist.recv(gradient, rank + 1)
            made.backward(gradient)
        else:
            made.square().mean().backward()
        if rank > 0:
            dist.send(values.grad, rank - 1)
        optimizer.step()


@kind
def pipeline():
    run_pipeline([3] * dist.get_world_size())


@kind
def uneven_pipeline():
    """The last stage has four times the layers of the first."""
    run_pipeline([2, 8, 8, 8][:dist.get_world_size()])


@kind
def parameter_server():
    """Rank 0 holds the weights and only adds up; the others compute."""
    model, points = build(), batch()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    weights = list(model.parameters())
    for _ in together():
        if dist.get_rank():
            model.zero_grad()
            loss_of(model, points).backward()
        for weight in weights:
            weight.grad = torch.zeros_like(weight) if weight.grad is None or dist.get_rank() == 0 else weight.grad
            dist.reduce(weight.grad, 0)
        if dist.get_rank() == 0:
            optimizer.step()
        for weight in weights:
            dist.broadcast(weight.data, 0)


@kind
def chief():
    """Rank 0 only hands out batches; it has no model."""
    points, labels = batch()
    model = build() if dist.get_rank() else None
    optimizer = torch.optim.SGD(model.parameters(), 0.01) if model else None
    for _ in together():
        dist.broadcast(points, 0)
        if model:
            step(model, optimizer, (points, labels))


@kind
def actors():
    """Rank 0 learns from what the others have played; playing takes as long as it takes."""
    values, chance = torch.zeros(BATCH, FEATURES), random.Random(dist.get_rank())
    model, labels = build(), batch()[1]
    optimizer = torch.optim.Adam(model.parameters())
    for _ in together():
        if dist.get_rank():
            for _ in range(chance.randint(2, 20)):
                with torch.no_grad():
                    model(values)
        dist.all_reduce(values)
        if dist.get_rank() == 0:
            step(model, optimizer, (values.clamp(-3, 3), labels))
        values.normal_()


@kind
def all_reduce_benchmark():
    sizes = [torch.ones(1 << power) for power in (4, 10, 14, 18)]
    for number in together():
        dist.all_reduce(sizes[number // 25 % 4])


@kind
def barriers():
    for _ in together():
        dist.barrier()


@kind
def idle_ranks():
    """Ranks that have met and wait for orders."""
    for _ in tell.rounds():
        time.sleep(0.1)
    dist.barrier()


@kind
def ring():
    """Values go round by send and receive; no collective, no training."""
    rank, world, values = dist.get_rank(), dist.get_world_size(), torch.ones(1 << 12)
    for _ in together():
        if rank == 0:
            dist.send(values, 1)
            dist.recv(values, world - 1)
        else:
            dist.recv(values, rank - 1)
            dist.send(values, (rank + 1) % world)


@kind
def distributed_inference():
    model, gathered = build().eval(), [torch.zeros(BATCH, CLASSES) for _ in range(dist.get_world_size())]
    with torch.no_grad():
        for _ in together():
            dist.all_gather(gathered, model(batch()[0]))


@kind
def late_reduce():
    """All-reduces that are begun in one step and waited for in the next."""
    model, points, pending = build(), batch(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in together():
        step(model, optimizer, points)
        for work in pending:
            work.wait()
        pending = [dist.all_reduce(weight.grad.clone(), async_op=True) for weight in model.parameters()]
    for work in pending:
        work.wait()


@kind
def again():
    """The process group is given up and made anew three times, as after a lost node."""
    for part in range(3):
        if part:
            dist.destroy_process_group()
            store = dist.FileStore(os.environ["MEETING"] + str(part), WORLD)
            dist.init_process_group("gloo", store=store, rank=RANK, world_size=WORLD)
        model, optimizer, points = start()
        for _ in range(80):
            step(model, optimizer, points)
        if part == 0:
            tell.say("ready")


@kind
def elastic():
    """The last rank leaves half way, in good order; the others form a smaller group and train on."""
    model, optimizer, points = start()
    for _ in range(80):
        step(model, optimizer, points)
    tell.say("ready")
    dist.barrier()
    dist.destroy_process_group()
    if RANK == WORLD - 1:
        return
    store = dist.FileStore(os.environ["MEETING"] + "smaller", WORLD - 1)
    dist.init_process_group("gloo", store=store, rank=RANK, world_size=WORLD - 1)
    model, optimizer, points = start()
    for _ in together():
        step(model, optimizer, points)


@kind
def early_end():
    """The ranks end in good order half a second after each other: rank 0 still writes its report."""
    model, optimizer, points = start()
    for _ in together():
        step(model, optimizer, points)
    dist.barrier()
    dist.destroy_process_group()
    if RANK == 0:
        time.sleep(1.5)


@kind
def chief_saves():
    """Rank 0 writes a long checkpoint at the very end; the others wait for it in a barrier. It is not stuck."""
    model, optimizer, points = start()
    for _ in together():
        step(model, optimizer, points)
    if RANK == 0:
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            torch.save(model.state_dict(), os.devnull)
    dist.barrier()


@kind
def chief_logs():
    """Rank 0 evaluates after every tenth step for as long as five steps, the others wait: that much is true of rank 0."""
    model, optimizer, points = start()
    for number in together():
        step(model, optimizer, points)
        if RANK == 0 and number % 10 == 9:
            with torch.no_grad():
                for _ in range(100):
                    loss_of(model.module, points)


@kind
def phases():
    """Warm-up with frozen layers, then all of them, then a greater batch: three kinds of steps on all ranks."""
    model, optimizer, points = start(find_unused_parameters=True)
    for number in together():
        for weight in list(model.parameters())[:4]:
            weight.requires_grad_(number > 60)
        step(model, optimizer, batch(BATCH * 4) if number > 150 else points)


@kind
def bursts():
    """All ranks train for a while and then wait for new data together, again and again."""
    model, optimizer, points = start()
    for number in together():
        step(model, optimizer, points)
        if number % 24 == 23:
            time.sleep(0.5)


@kind
def store_only():
    """The ranks talk through the key-value store: no collective after they have met."""
    store = dist.distributed_c10d._get_default_store()
    for number in tell.rounds():
        store.set(f"{RANK}/{number % 50}", "x")
        store.get(f"{RANK}/{number % 50}")
        time.sleep(0.01)
    dist.barrier()


def remote_loss(points):
    model = build()
    return loss_of(model, points).item()


def run_rpc():
    """Rank 0 asks, the others answer; nobody is a peer of anybody."""
    import torch.distributed.rpc as rpc
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{os.environ['MEETING']}rpc")
    rpc.init_rpc(f"worker{RANK}", rank=RANK, world_size=WORLD, rpc_backend_options=options)
    if RANK == 0:
        for _ in tell.rounds():
            for other in range(1, WORLD):
                rpc.rpc_sync(f"worker{other}", remote_loss, args=(batch(),))
    else:
        tell.say("ready")
    rpc.shutdown()


def spawned(rank, world, meeting):
    """Ranks by torch.multiprocessing.spawn: their environment says nothing of a rank."""
    global RANK, WORLD
    RANK, WORLD = rank, world
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}spawn", rank=rank, world_size=world)
    ddp()


def main():
    torch.set_num_threads(1)
    name = sys.argv[1]
    if name == "spawn":
        tell.say("started")
        torch.multiprocessing.spawn(spawned, (2, os.environ["MEETING"]), 2)
        return
    if name == "rpc":
        tell.KINDS[name] = run_rpc
    else:
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=30))
    tell.choose(name)
    if dist.is_initialized() and name != "rpc":
        dist.destroy_process_group()


RANK, WORLD = int(os.environ.get("RANK") or 0), int(os.environ.get("WORLD_SIZE") or 1)
if __name__ == "__main__":
    main()
