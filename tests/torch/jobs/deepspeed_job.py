# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's engine (ZeRO stage 1) on the CPU, under torchrun."""
import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")
import deepspeed  # noqa: E402
import torch  # noqa: E402

import model  # noqa: E402

if __name__ == "__main__":
    deepspeed.init_distributed("gloo")
    rank = torch.distributed.get_rank()
    net = model.make()
    model.plant(net[2], rank)
    settings = {"train_micro_batch_size_per_gpu": model.ROWS, "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
                "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True}
    engine, _, _, _ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=settings)
    for step in range(model.STEPS):
        if step == 10 and rank == 0:
            print("training", flush=True)
        engine.backward(model.loss_of(engine(torch.randn(model.ROWS, model.WIDTH))))
        engine.step()
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
