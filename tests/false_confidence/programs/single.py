#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One process that uses PyTorch, healthy in every kind: single.py KIND. Most steps take 5 to 30 ms.

  WIDTH[256] BATCH[64]; tell.py says what it tells and for how long it runs
"""
import os
import random
import sys
import tempfile
import threading
import time

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import tell
from small_model import BATCH, CLASSES, FEATURES, WIDTH, batch, build, loss_of, step
from tell import kind


def start(rate=1e-3):
    model = build()
    return model, torch.optim.Adam(model.parameters(), rate), batch()


def train(after=lambda number, model: None):
    model, optimizer, points = start()
    for number in tell.rounds():
        step(model, optimizer, points)
        after(number, model)


@torch.no_grad()
def evaluate(model, passes=20):
    points = batch()
    for _ in range(passes):
        loss_of(model, points)


@kind
def regular():
    train()


@kind
def import_only():
    for _ in tell.rounds():
        time.sleep(0.1)


@kind
def inference():
    model, points = build().eval(), batch()[0]
    with torch.no_grad():
        for _ in tell.rounds():
            model(points)


@kind
def inference_server():
    """Requests come when they like; between them nothing happens."""
    model, chance = build().eval(), random.Random(1)
    with torch.no_grad():
        for _ in tell.rounds():
            model(batch(chance.choice((1, 8, 64)))[0])
            time.sleep(chance.expovariate(30))


@kind
def inference_loader():
    """A data loader, and no training behind it."""
    model, data = build().eval(), TensorDataset(*batch(4096))
    with torch.no_grad():
        for _ in tell.rounds():
            for points, _labels in DataLoader(data, 256):
                model(points)


@kind
def saliency():
    """Backward passes to the input; no optimizer anywhere."""
    model, (points, labels) = build(), batch()
    for _ in tell.rounds():
        points = points.detach().requires_grad_()
        loss_of(model, (points, labels)).backward()


@kind
def tensors():
    matrix = torch.randn(256, 256)
    for _ in tell.rounds():
        torch.linalg.svd(matrix)


@kind
def evaluation():
    train(lambda number, model: number % 25 == 24 and evaluate(model))


@kind
def checkpoint():
    def save(number, model):
        if number % 40 == 39:
            with tempfile.TemporaryFile() as file:
                torch.save(model.state_dict(), file)
                file.flush()
                os.fsync(file.fileno())

    train(save)


@kind
def buckets():
    """Batches of variable length: short ones for a while, then long ones, then short ones."""
    model, optimizer, _ = start()
    points = [batch(size) for size in (16, 64, 256, 512)]
    for number in tell.rounds():
        step(model, optimizer, points[number // 15 % 4])


@kind
def random_lengths():
    model, optimizer, _ = start()
    chance = random.Random(1)
    for _ in tell.rounds():
        step(model, optimizer, batch(chance.choice((8, 32, 128, 512))))


@kind
def accumulation():
    """Sixteen backward passes, one step."""
    model, optimizer, points = start()
    for number in tell.rounds():
        (loss_of(model, points) / 16).backward()
        if number % 16 == 15:
            optimizer.step()
            optimizer.zero_grad()


@kind
def growing_accumulation():
    model, optimizer, points = start()
    passes = 1
    for _ in tell.rounds():
        for _ in range(passes):
            loss_of(model, points).backward()
        optimizer.step()
        optimizer.zero_grad()
        passes = passes % 8 + 1


@kind
def rate_finder():
    """Some steps at each learning rate, the weights put back before the next."""
    model, _, points = start()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    for number in tell.rounds():
        optimizer = torch.optim.SGD(model.parameters(), 10 ** (-5 + number % 6))
        for _ in range(8):
            step(model, optimizer, points)
        model.load_state_dict(state)


@kind
def adversarial():
    """Two models with alternate steps, the critic five times as often."""
    maker, critic = nn.Sequential(nn.Linear(16, WIDTH), nn.ReLU(), nn.Linear(WIDTH, FEATURES)), build()
    by_maker, by_critic = torch.optim.Adam(maker.parameters()), torch.optim.Adam(critic.parameters())
    real, labels = batch()
    for number in tell.rounds():
        made = maker(torch.randn(BATCH, 16))
        loss = loss_of(critic, (made if number % 6 == 5 else torch.cat([real, made.detach()])[:BATCH], labels))
        optimizer = by_maker if number % 6 == 5 else by_critic
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@kind
def reinforcement():
    """An environment runs for a number of steps that is never the same, then the policy learns."""
    policy, optimizer, _ = start()
    chance = random.Random(1)
    for _ in tell.rounds():
        for _ in range(chance.randint(5, 60)):
            with torch.no_grad():
                policy(torch.randn(1, FEATURES))
            sum(range(2000))
        for _ in range(4):
            step(policy, optimizer, batch())


@kind
def closures():
    """LBFGS: a step calls its closure, and with it the backward pass, as often as it likes."""
    model, points = build(), batch()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=8)

    def closure():
        optimizer.zero_grad()
        loss = loss_of(model, points)
        loss.backward()
        return loss

    for _ in tell.rounds():
        optimizer.step(closure)


@kind
def restart():
    """Trials of different size in one process, each stopped early."""
    chance = random.Random(1)
    for _ in tell.rounds():
        model = nn.Sequential(nn.Linear(FEATURES, width := chance.choice((32, 128, 512))), nn.ReLU(), nn.Linear(width, CLASSES))
        optimizer, points = torch.optim.SGD(model.parameters(), 0.1), batch()
        for _ in range(chance.randint(3, 40)):
            step(model, optimizer, points)


@kind
def two_models():
    """Two trainings in two threads of one process."""
    stop = threading.Event()

    def other():
        model, optimizer, points = start()
        while not stop.is_set():
            step(model, optimizer, points)

    thread = threading.Thread(target=other)
    thread.start()
    train()
    stop.set()
    thread.join()


@kind
def in_turn():
    """Two models, a small and a great one, trained by turns."""
    small, by_small, points = start()
    great = nn.Sequential(nn.Linear(FEATURES, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, CLASSES))
    by_great = torch.optim.SGD(great.parameters(), 0.01)
    for _ in tell.rounds():
        step(small, by_small, points)
        step(great, by_great, points)


@kind
def bursts():
    """A notebook: cells of a few steps, and somebody who thinks between them."""
    model, optimizer, points = start()
    for number in tell.rounds():
        for _ in range(12):
            step(model, optimizer, points)
        time.sleep((0.7, 0.2, 1.1)[number % 3])


@kind
def paced():
    """Online learning: a step when a sample has come, twenty a second. The process is idle most of the time, by design."""
    train(lambda number, model: time.sleep(0.05))


class Made(Dataset):
    def __init__(self, cost_s):
        self.cost_s, self.point = cost_s, torch.randn(FEATURES)

    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        end = time.thread_time() + self.cost_s
        while time.thread_time() < end:
            pass
        return self.point, index % CLASSES


def train_from(loader):
    model, optimizer, _ = start()
    source = iter(loader)
    for _ in tell.rounds():
        step(model, optimizer, next(source))


@kind
def loader():
    """Batches that are ready: input takes little of a step."""
    train_from(DataLoader([batch()] * (1 << 20), batch_size=None))


@kind
def loader_worker():
    """A worker that is faster than the training."""
    train_from(DataLoader(Made(0), 128, num_workers=1))


@kind
def loader_heavy():
    """Input that takes most of a step: that much is true."""
    train_from(DataLoader(Made(0.0005), 64))


@kind
def warm_then_idle():
    """Trains for the first third, then stands by; what is over is no fault."""
    model, optimizer, points = start()
    begin = time.monotonic()
    for _ in tell.rounds():
        if time.monotonic() - begin < tell.SECONDS / 3:
            step(model, optimizer, points)
        else:
            time.sleep(0.05)


@kind
def compiled():
    """Scripted in the middle: a pause for the compiler, then other steps."""
    model, optimizer, points = start()
    runs = model
    for number in tell.rounds():
        if number == 100:
            runs = torch.jit.trace(model, points[0])
        step(runs, optimizer, points)


@kind
def data_parallel_threads():
    """Hogwild: three threads train the same weights, without locks."""
    model = build()
    stop = threading.Event()

    def work():
        optimizer, points = torch.optim.SGD(model.parameters(), 0.01), batch()
        while not stop.is_set():
            step(model, optimizer, points)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for _ in tell.rounds():
        time.sleep(0.1)
    stop.set()
    for worker in workers:
        worker.join()


@kind
def logger_thread():
    """A thread that writes metrics, a little each 50 ms."""
    stop = threading.Event()

    def log():
        while not stop.wait(0.05):
            with open(os.devnull, "w", encoding="utf-8") as file:
                file.write(str(list(range(200))))

    thread = threading.Thread(target=log)
    thread.start()
    train()
    stop.set()
    thread.join()


@kind
def forked_evaluation():
    """Every 50 steps a child evaluates a copy of the model beside the training."""
    children = []

    def fork(number, model):
        if number % 50 == 49:
            if (child := os.fork()) == 0:
                evaluate(model, 5)
                os._exit(0)
            children.append(child)

    train(fork)
    for child in children:
        os.waitpid(child, 0)


@kind
def no_optimizer():
    """Weights are moved by hand."""
    model, _, points = start()
    for _ in tell.rounds():
        model.zero_grad()
        loss_of(model, points).backward()
        with torch.no_grad():
            for weight in model.parameters():
                weight -= 0.01 * weight.grad


@kind
def second_order():
    """Two backward passes a step, one through the other."""
    model, optimizer, points = start()
    for _ in tell.rounds():
        optimizer.zero_grad()
        slopes = torch.autograd.grad(loss_of(model, points), list(model.parameters()), create_graph=True)
        sum(slope.square().sum() for slope in slopes).backward()
        optimizer.step()


@kind
def fails():
    """Ends with an error after half of its time, as a wrong shape does."""
    model, optimizer, points = start()
    for _ in tell.rounds(tell.SECONDS / 2):
        step(model, optimizer, points)
    model(torch.randn(1, 1))


if __name__ == "__main__":
    torch.set_num_threads(1)
    tell.choose(sys.argv[1])
