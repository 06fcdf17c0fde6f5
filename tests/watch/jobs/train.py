#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small language model, data-parallel (PyTorch DDP, gloo), in the shape of a long job on accelerators. One process a rank.

Samples are read from a file past the page cache, by a data-loader worker; a mapped table is looked into at random; the layers compute
a little and then wait as if for a device; rank 0 saves a checkpoint now and then. Runs until it is ended.

  FOLDER            where its files lie: data.bin (shared), table-N.bin, checkpoint.pt, and rankN.steps: a line a step, the wall-clock
                    nanoseconds of its end
  PACE_MS[4]        how long a layer takes forward at least; backward takes half as much again
  BATCH[4] SEQ[64] D_MODEL[128] LAYERS[4] BUCKET_MB[1] SAMPLE_KB[128] CHECKPOINT_S[60]
  LEAK_MB_S[0]      a planted fault: while the file FOLDER/leak-N exists, rank N keeps so much more memory each second
"""
import mmap
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import light

FOLDER = os.environ["FOLDER"]
PACE_S = float(os.environ.get("PACE_MS") or 4) / 1000
BATCH, SEQ = int(os.environ.get("BATCH") or 4), int(os.environ.get("SEQ") or 64)
D_MODEL, LAYERS = int(os.environ.get("D_MODEL") or 128), int(os.environ.get("LAYERS") or 4)
BUCKET_MB = float(os.environ.get("BUCKET_MB") or 1)
SAMPLE_BYTES = int(os.environ.get("SAMPLE_KB") or 128) << 10
CHECKPOINT_S = float(os.environ.get("CHECKPOINT_S") or 60)
LEAK_MB_S = float(os.environ.get("LEAK_MB_S") or 0)
RANK = int(os.environ["RANK"])
VOCAB, HEADS, PAGE = 512, 4, 4096
LOOKS_A_SAMPLE = 192  # pages of the mapped table


class Samples(Dataset):
    """Tokens from the data file by direct reads, and a look into the mapped table."""

    def __init__(self):
        self.path = os.path.join(FOLDER, "data.bin")
        self.count = os.path.getsize(self.path) // SAMPLE_BYTES
        self.file, self.buffer, self.table = None, None, None

    def __len__(self):
        return self.count

    def open(self):
        """In the process that reads: descriptors and mappings of a worker are its own."""
        self.file = os.open(self.path, os.O_RDONLY | os.O_DIRECT)
        self.buffer = mmap.mmap(-1, SAMPLE_BYTES)  # direct reads want aligned memory
        with open(os.path.join(FOLDER, f"table-{RANK}.bin"), "rb") as file:
            self.table = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        for offset in range(0, len(self.table), PAGE):  # all in memory, as after hours of looking
            _ = self.table[offset]
        self.table.madvise(mmap.MADV_RANDOM)

    def __getitem__(self, i):
        if self.file is None:
            self.open()
        os.preadv(self.file, [self.buffer], i * SAMPLE_BYTES)
        pages = len(self.table) // PAGE
        bias = sum(self.table[((i * 7919 + k * 104729) % pages) * PAGE] for k in range(LOOKS_A_SAMPLE))
        return (torch.frombuffer(self.buffer, dtype=torch.uint8, count=SEQ + 1).long() + bias) % VOCAB


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(D_MODEL, HEADS, 4 * D_MODEL, dropout=0.0, batch_first=True)
        self.pace = light.Paced(PACE_S)

    def forward(self, hidden, mask):
        return self.pace(self.layer(hidden, mask))


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, D_MODEL), nn.Embedding(SEQ, D_MODEL)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(D_MODEL, VOCAB)
        self.register_buffer("mask", torch.triu(torch.full((SEQ, SEQ), float("-inf")), 1), persistent=False)

    def forward(self, tokens):
        hidden = self.tokens(tokens) + self.positions(torch.arange(tokens.size(1)))
        for block in self.blocks:
            hidden = block(hidden, self.mask)
        return self.head(hidden)


class Leak:
    """Keeps more and more memory while the switch file is there; without it, gives all back."""

    def __init__(self):
        self.switch, self.kept, self.last = os.path.join(FOLDER, f"leak-{RANK}"), [], time.monotonic()

    def step(self):
        now = time.monotonic()
        if now - self.last < 0.5:
            return
        if os.path.exists(self.switch):
            self.kept.append(bytearray(os.urandom(PAGE) * int(LEAK_MB_S * (now - self.last) * 256)))
        else:
            self.kept.clear()
        self.last = now


def save(model, optimizer, step):
    path = os.path.join(FOLDER, "checkpoint.pt")
    with open(path + ".tmp", "wb") as file:
        torch.save({"step": step, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".tmp", path)


def train(model, optimizer, loader, sampler):
    leak, saved, step = Leak() if LEAK_MB_S else None, time.monotonic(), 0
    log = os.open(os.path.join(FOLDER, f"rank{RANK}.steps"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    for epoch in range(1 << 30):
        sampler.set_epoch(epoch)
        for batch in loader:
            loss = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            if leak:
                leak.step()
            if RANK == 0 and CHECKPOINT_S and time.monotonic() - saved > CHECKPOINT_S:
                save(model, optimizer, step)
                saved = time.monotonic()
            os.write(log, b"%d\n" % time.time_ns())


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = Samples()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, BATCH, sampler=sampler, num_workers=1, drop_last=True, persistent_workers=True)
    model = DistributedDataParallel(LanguageModel(), bucket_cap_mb=BUCKET_MB)
    train(model, torch.optim.AdamW(model.parameters(), 1e-4), loader, sampler)


if __name__ == "__main__":
    main()
