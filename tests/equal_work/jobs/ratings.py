# SPDX-License-Identifier: Apache-2.0
"""Train a rating predictor (embedding tables, attended history, pairwise interactions) on synthetic data.

Start one process per rank with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set.
STEPS is the number of optimizer steps (default 200), BATCH the batch size per rank (default 384).
"""
import math
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

USERS, ITEMS = 4000, 3000
CONTEXT_SIZES = (24, 7, 50, 12, 300)  # hour, weekday, country, device, campaign
DENSE = 13
HISTORY = 16  # recently rated items kept per example, padded with item 0


class Ratings(Dataset):
    """Ratings that follow from hidden user and item factors, the dense features and some noise."""

    def __init__(self, size, seed=7):
        g = torch.Generator().manual_seed(seed)
        self.user = torch.randint(USERS, (size,), generator=g)
        self.item = torch.randint(1, ITEMS, (size,), generator=g)
        self.context = torch.stack([torch.randint(n, (size,), generator=g) for n in CONTEXT_SIZES], 1)
        self.dense = torch.randn(size, DENSE, generator=g)
        self.history = torch.randint(1, ITEMS, (USERS, HISTORY), generator=g)
        self.history_len = torch.randint(3, HISTORY + 1, (USERS,), generator=g)
        taste, trait = torch.randn(USERS, 4, generator=g), torch.randn(ITEMS, 4, generator=g)
        score = 0.5 * (taste[self.user] * trait[self.item]).sum(1) + 0.3 * self.dense[:, :3].sum(1)
        self.rating = (3.0 + score + 0.2 * torch.randn(size, generator=g)).clamp(1.0, 5.0)

    def __len__(self):
        return len(self.rating)

    def __getitem__(self, i):
        user = int(self.user[i])
        history = self.history[user, : int(self.history_len[user])]
        return user, int(self.item[i]), self.context[i], self.dense[i], history, float(self.rating[i])


def collate(samples):
    user, item, context, dense, history, rating = zip(*samples)
    padded = torch.zeros(len(samples), HISTORY, dtype=torch.long)
    for row, h in zip(padded, history):
        row[: len(h)] = h
    return torch.tensor(user), torch.tensor(item), torch.stack(context), torch.stack(dense), padded, torch.tensor(rating)


class RatingModel(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.user = nn.Embedding(USERS, dim)
        self.item = nn.Embedding(ITEMS, dim, padding_idx=0)
        self.context = nn.ModuleList(nn.Embedding(n, dim) for n in CONTEXT_SIZES)
        for table in (self.user, self.item, *self.context):
            nn.init.normal_(table.weight, std=dim ** -0.5)
        self.dense = nn.Sequential(nn.Linear(DENSE, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, dim), nn.ReLU())
        self.attention = nn.Sequential(nn.Linear(3 * dim, 32), nn.PReLU(), nn.Linear(32, 1))
        fields = 4 + len(CONTEXT_SIZES)
        self.register_buffer("pairs", torch.triu_indices(fields, fields, offset=1), persistent=False)
        width = fields * dim + self.pairs.shape[1]
        self.cross = nn.ModuleList(nn.Sequential(nn.Linear(width, 64, bias=False), nn.Linear(64, width)) for _ in range(2))
        self.head = nn.Sequential(nn.Linear(width, 256), nn.LayerNorm(256), nn.GELU(), nn.Dropout(0.1),
                                  nn.Linear(256, 128), nn.GELU(), nn.Linear(128, 1))

    def pool_history(self, history, item):
        """Weigh the rated items by how well they match the item in question."""
        seen = self.item(history)
        target = item.unsqueeze(1).expand_as(seen)
        weight = self.attention(torch.cat([seen, target, seen * target], -1)).squeeze(-1)
        weight = weight.masked_fill(history == 0, -1e9).softmax(-1)
        return torch.einsum("bh,bhd->bd", weight, seen)

    def forward(self, user, item, context, dense, history):
        item = self.item(item)
        context = [table(context[:, i]) for i, table in enumerate(self.context)]
        fields = torch.stack([self.user(user), item, self.dense(dense), self.pool_history(history, item), *context], 1)
        products = torch.bmm(fields, fields.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        x0 = x = torch.cat([fields.flatten(1), products], 1)
        for layer in self.cross:
            x = x0 * layer(x) + x
        return 1.0 + 4.0 * torch.sigmoid(self.head(x).squeeze(-1))


def main():
    steps, batch = int(os.environ.get("STEPS", 200)), int(os.environ.get("BATCH", 384))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1234)

    data = Ratings(size=batch * world * 40)
    sampler = DistributedSampler(data, shuffle=True, drop_last=True)
    loader = DataLoader(data, batch_size=batch, sampler=sampler, collate_fn=collate, num_workers=0, drop_last=True)
    model = DistributedDataParallel(RatingModel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
    warmup = max(1, steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min((s + 1) / warmup, 0.5 + 0.5 * math.cos(math.pi * s / steps)))

    step, epoch, start = 0, 0, time.perf_counter()
    model.train()
    while step < steps:
        sampler.set_epoch(epoch)
        for *inputs, rating in loader:
            loss = F.smooth_l1_loss(model(*inputs), rating)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            step += 1
            if rank == 0 and step % 50 == 0:
                print(f"step {step} epoch {epoch} loss {loss.item():.4f} grad norm {norm.item():.3f} "
                      f"lr {schedule.get_last_lr()[0]:.2e} {time.perf_counter() - start:.1f} s", flush=True)
            if step == steps:
                break
        epoch += 1
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
