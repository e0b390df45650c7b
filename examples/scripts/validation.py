"""Segmentation of noisy discs; validates after every epoch.

Usage: python validation.py [--epochs N] [-j WORKERS]
"""

import argparse
import copy
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

best_iou = 0.0


class Discs(Dataset):
    """A picture with a disc in it, and its mask. Smoothed and warped, so it takes a while."""

    def __init__(self, length, size=80, train=True):
        self.length = length
        self.size = size
        self.train = train

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        # the validation pictures never change
        rng = np.random.default_rng(None if self.train else index)
        n = self.size
        yy, xx = np.mgrid[:n, :n].astype(np.float32)
        cy, cx = rng.uniform(20, n - 20, 2)
        r = rng.uniform(8, 18)
        wobble = 1 + 0.15 * np.sin(rng.integers(3, 7) * np.arctan2(yy - cy, xx - cx))
        mask = (np.hypot(yy - cy, xx - cx) < r * wobble).astype(np.float32)
        texture = rng.normal(0, 1, (n, n))
        spectrum = np.fft.rfft2(texture)
        ky, kx = np.fft.fftfreq(n)[:, None], np.fft.rfftfreq(n)[None]
        texture = np.fft.irfft2(spectrum * np.exp(-((ky**2 + kx**2) * 200)), s=(n, n))
        image = 0.5 * mask + 4 * texture + rng.normal(0, 0.2, (n, n))
        if self.train and rng.random() < 0.5:
            image, mask = image[:, ::-1], mask[:, ::-1]
        image = np.ascontiguousarray(image, dtype=np.float32)
        return torch.from_numpy(image)[None], torch.from_numpy(np.ascontiguousarray(mask))[None]


def make_model():
    def block(i, o):
        return nn.Sequential(
            nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True)
        )

    return nn.Sequential(
        nn.Conv2d(1, 8, 4, stride=2, padding=1),
        block(8, 12),
        block(12, 8),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.Conv2d(8, 1, 1),
    )


def validate(val_loader, model):
    model.eval()
    inter = union = 0.0
    with torch.no_grad():
        for images, masks in val_loader:
            pred = model(images) > 0
            inter += (pred & (masks > 0.5)).sum().item()
            union += (pred | (masks > 0.5)).sum().item()
    return inter / max(union, 1)


def main():
    global best_iou
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", default=2, type=int)
    parser.add_argument("-b", "--batch-size", default=16, type=int)
    parser.add_argument("-j", "--workers", default=4, type=int)
    args = parser.parse_args()

    model = make_model()
    best_model = model
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    train_loader = DataLoader(
        Discs(800), batch_size=args.batch_size, shuffle=True, num_workers=args.workers
    )

    for epoch in range(args.epochs):
        end = time.time()
        model.train()
        for i, (images, masks) in enumerate(train_loader):
            loss = criterion(model(images), masks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if i % 25 == 0:
                print(f"Epoch: [{epoch}][{i}/{len(train_loader)}]  Loss {loss.item():.4f}")

        val_loader = DataLoader(Discs(144, train=False), batch_size=24)
        iou = validate(val_loader, model)
        print(f" * IoU {iou:.3f}  (epoch took {time.time() - end:.1f}s)")
        if iou > best_iou:
            best_iou = iou
            best_model = copy.deepcopy(model)

    assert best_model is not None
    print(f"best IoU: {best_iou:.3f}")


if __name__ == "__main__":
    main()
