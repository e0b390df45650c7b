"""Minimal DistributedDataParallel training on CPU (gloo).

python -m torch.distributed.run --nproc-per-node 2 torchrun_ddp.py
python -m torch.distributed.run --nproc-per-node 2 torchrun_ddp.py --total_epochs 50
"""

import argparse
import os

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Galaxies(Dataset):
    """Makes spirals with one, two, three or four arms, slowly."""

    def __init__(self, size=1536, pixels=64):
        self.size = size
        axis = np.linspace(-1, 1, pixels)
        self.x, self.y = np.meshgrid(axis, axis)

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        arms = int(rng.integers(1, 5))
        x = self.x + rng.normal(0, 0.05)
        y = self.y + rng.normal(0, 0.05)
        radius = np.hypot(x, y) + 1e-3
        angle = np.arctan2(y, x) + rng.uniform(0, 2 * np.pi)
        image = np.exp(-3 * radius) * (1 + np.cos(arms * (angle + 3 * np.log(radius))))
        noise = rng.normal(0, 0.1, (4, *image.shape)).mean(axis=0)  # four exposures
        image = np.arcsinh(5 * (image + noise)).astype(np.float32)
        return torch.from_numpy(image)[None], arms - 1


class Trainer:
    def __init__(self, model, train_data, optimizer):
        self.rank = int(os.environ["RANK"])
        self.train_data = train_data
        self.optimizer = optimizer
        self.model = DDP(model)

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(source), targets)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def train(self, max_epochs):
        for epoch in range(max_epochs):
            self.train_data.sampler.set_epoch(epoch)
            losses = [self._run_batch(source, targets) for source, targets in self.train_data]
            print(
                f"[rank{self.rank}] Epoch {epoch} | Steps: {len(losses)} | "
                f"Loss: {sum(losses) / len(losses):.4f}",
                flush=True,
            )


def load_train_objs():
    train_set = Galaxies()
    model = nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 6 * 6, 4),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    return train_set, model, optimizer


def main(total_epochs, batch_size):
    dist.init_process_group(backend="gloo")
    torch.manual_seed(0)
    dataset, model, optimizer = load_train_objs()
    train_data = DataLoader(
        dataset,
        batch_size=batch_size,
        shuffle=False,
        sampler=DistributedSampler(dataset),
    )
    trainer = Trainer(model, train_data, optimizer)
    trainer.train(total_epochs)
    dist.barrier()
    if dist.get_rank() == 0:
        print(f"all {dist.get_world_size()} ranks are done")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="simple distributed training job")
    parser.add_argument("--total_epochs", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=32)
    args = parser.parse_args()
    main(args.total_epochs, args.batch_size)
