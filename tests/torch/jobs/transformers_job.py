# SPDX-License-Identifier: Apache-2.0
"""The Trainer of Hugging Face's Transformers on gloo, under torchrun."""
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

import model


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 100000

    def __getitem__(self, index):
        return {"rows": torch.randn(model.WIDTH)}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = model.make()

    def forward(self, rows):
        return {"loss": model.loss_of(self.net(rows))}


class Tell(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        if state.global_step == 10 and state.is_world_process_zero:
            print("training", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(output_dir=folder, max_steps=model.STEPS, per_device_train_batch_size=16, use_cpu=True, ddp_backend="gloo",
                                      report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True, remove_unused_columns=False)
        net = Net()
        trainer = Trainer(model=net, args=arguments, train_dataset=Rows(), callbacks=[Tell()])
        model.plant(net.net[2], dist.get_rank())
        trainer.train()
