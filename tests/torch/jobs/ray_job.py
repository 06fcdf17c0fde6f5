# SPDX-License-Identifier: Apache-2.0
"""Ray Train with four workers on the CPU: actors of one pool, with no rank in the environment that they were started with."""
import os
import sys
import tempfile

import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

HERE = os.path.dirname(os.path.abspath(__file__))


def loop(config):
    os.environ.update(config)
    sys.path.insert(0, HERE)
    import model
    import torch.distributed as dist
    from torch import nn
    net = model.make()
    model.plant(net[2], dist.get_rank())
    whole = nn.parallel.DistributedDataParallel(net)
    model.loop(whole, lambda rows: model.loss_of(whole(rows)).backward(), dist.get_rank())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        ray.init(num_cpus=5, include_dashboard=False, object_store_memory=200 << 20, _temp_dir=folder)
        settings = {name: os.environ[name] for name in ("FAULT", "FAULT_RANK", "DOSE", "STEPS") if name in os.environ}
        TorchTrainer(loop, train_loop_config=settings, torch_config=TorchConfig(backend="gloo"),
                     scaling_config=ScalingConfig(num_workers=4, use_gpu=False), run_config=RunConfig(storage_path=folder)).fit()
