# SPDX-License-Identifier: Apache-2.0
"""Lightning with four devices of the CPU: it starts its other ranks itself, and runs forward inside the closure of optimizer.step."""
import lightning
import torch

import model


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 100000

    def __getitem__(self, index):
        return torch.randn(model.WIDTH)


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = model.make()

    def setup(self, stage):
        model.plant(self.net[2], self.trainer.global_rank)
        self.steps = model.StepLog(self.trainer.global_rank)

    def training_step(self, batch, index):
        if index == 10 and self.trainer.global_rank == 0:
            print("training", flush=True)
        return model.loss_of(self.net(batch))

    def on_train_batch_end(self, outputs, batch, index):
        self.steps.add()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    trainer = lightning.Trainer(strategy="ddp", accelerator="cpu", devices=4, max_steps=model.STEPS, logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Module(), torch.utils.data.DataLoader(Rows(), batch_size=16))
