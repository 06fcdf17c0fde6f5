#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small language model, data-parallel, with two micro-batches a step (PyTorch DDP, gloo, CPU). One process a rank.

  SECONDS[12] BATCH[4] SEQ[32] D_MODEL[64] LAYERS[2] WORKERS[0]; LIGHT=1: light.py; FAULT...: faults.py
"""
import contextlib
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, default_collate

import faults
import light

SECONDS = float(os.environ.get("SECONDS") or 12)
BATCH = int(os.environ.get("BATCH") or (1 if light.LIGHT else 4))
SEQ, LAYERS = int(os.environ.get("SEQ") or 32), int(os.environ.get("LAYERS") or 2)
D_MODEL = int(os.environ.get("D_MODEL") or (32 if light.LIGHT else 64))
HEADS, VOCAB, MICRO_BATCHES = 4, 512, 2
LONGEST = 8 * SEQ  # of the sequences that a fault may make longer


class Sequences(Dataset):
    """Arithmetic sequences of tokens, made on the fly."""

    def __len__(self):
        return 1 << 20

    def __getitem__(self, i):
        faults.at_sample(BATCH * MICRO_BATCHES)
        return (i + torch.arange(SEQ + 1) * (1 + i % 5)) % VOCAB


class Block(nn.Module):
    """Causal self-attention and a feed-forward layer, each around a residual."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(D_MODEL), nn.LayerNorm(D_MODEL)
        self.attention = nn.MultiheadAttention(D_MODEL, HEADS, batch_first=True)
        self.feed = nn.Sequential(nn.Linear(D_MODEL, 4 * D_MODEL), nn.GELU(), nn.Linear(4 * D_MODEL, D_MODEL))
        self.pace = light.Paced(0.003) if light.LIGHT else nn.Identity()

    def forward(self, hidden, mask):
        normed = self.norm1(hidden)
        hidden = hidden + self.attention(normed, normed, normed, attn_mask=mask, need_weights=False)[0]
        return self.pace(hidden + self.feed(self.norm2(hidden)))


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, D_MODEL), nn.Embedding(SEQ, D_MODEL)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(D_MODEL, VOCAB)
        self.register_buffer("mask", torch.full((LONGEST, LONGEST), float("-inf")).triu(1), persistent=False)

    def forward(self, tokens):
        length = tokens.size(1)
        hidden = self.tokens(tokens) + self.positions(torch.arange(length) % SEQ)
        mask = self.mask[:length, :length]
        hidden = faults.at_forward(self.blocks[0](hidden, mask), MICRO_BATCHES)
        for block in self.blocks[1:]:
            hidden = block(hidden, mask)
        return self.head(hidden)


def collate(samples):
    faults.at_collate(MICRO_BATCHES)
    return faults.lengthened(faults.grown(default_collate(samples), 5), 5)


def loss_of(model, batch):
    logits = model(batch[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()) / MICRO_BATCHES


def build_loader(data, batch):
    return DataLoader(data, batch, sampler=DistributedSampler(data), num_workers=faults.WORKERS, collate_fn=collate, drop_last=True)


def train_epoch(model, optimizer, loader, step_count, clock):
    """True if the job is over."""
    done = 0
    for micro, batch in enumerate(loader, 1):
        last = micro % MICRO_BATCHES == 0
        if not last:
            faults.at_step_begin()
        with contextlib.nullcontext() if last else model.no_sync():
            loss = loss_of(model, batch)
            loss.backward()
        if not last:
            continue
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        done += 1
        faults.at_step_end(len(clock.steps), model, batch, loss, loss_of)
        if not clock.step_done(sum(p.numel() * 4 for p in model.parameters())):
            return True
        if done == step_count:
            return False
    return True


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = Sequences()
    model = DistributedDataParallel(LanguageModel(), bucket_cap_mb=1)
    optimizer = faults.optimizer_kind(torch.optim.AdamW)(model.parameters(), 1e-3)
    clock = faults.Clock(SECONDS)
    for batch, step_count in faults.epochs(BATCH):
        if train_epoch(model, optimizer, build_loader(data, batch), step_count, clock):
            break
    dist.barrier()
    clock.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
