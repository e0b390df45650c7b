# Counts blobs in pictures. Quick and dirty, no main(), just run it:
#
#     python no_guard.py          (one epoch)
#     python no_guard.py 40       (forty)
"""Learns to count blobs in made-up microscope pictures."""

import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 1
batch_size = 16
SIZE = 96


class Blobs(Dataset):
    def __init__(self, n):
        self.n = n
        self.yy, self.xx = np.mgrid[0:SIZE, 0:SIZE].astype(np.float32)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        count = int(rng.integers(5, 40))
        img = rng.normal(0, 0.05, (SIZE, SIZE)).astype(np.float32)
        for _ in range(count):
            x, y = rng.uniform(0, SIZE, 2)
            r = rng.uniform(1.5, 5)
            img += np.exp(-((self.xx - x) ** 2 + (self.yy - y) ** 2) / (2 * r * r))
        img = np.clip(img, 0, 1)
        return torch.from_numpy(img[None]), torch.tensor([count / 40.0])


torch.manual_seed(42)

train_loader = DataLoader(Blobs(960), batch_size=batch_size, shuffle=True)

model = nn.Sequential(
    nn.Conv2d(1, 8, 3, stride=2, padding=1),
    nn.ReLU(),
    nn.Conv2d(8, 16, 3, stride=2, padding=1),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, stride=2, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(32, 1),
)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
print("parameters:", sum(p.numel() for p in model.parameters()))

t0 = time.time()
step = 0
for epoch in range(epochs):
    running = 0.0
    for img, count in train_loader:
        loss = nn.functional.mse_loss(model(img), count)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.item()
        step += 1
        if step % 20 == 0:
            print("step", step, "loss", round(loss.item(), 4))
    print("epoch", epoch, "mean loss", running / len(train_loader))

print("done after", step, "steps,", round(time.time() - t0, 1), "seconds")
