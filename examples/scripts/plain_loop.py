"""Fashion-MNIST, a small CNN and lots of augmentation. Nothing fancy.

python plain_loop.py
python plain_loop.py --epochs 30 --lr 0.01 --workers 2
"""

import argparse
import gzip
import random
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageEnhance, ImageFilter
from torch.utils.data import DataLoader, Dataset

DATA = Path(__file__).resolve().parent.parent / "data" / "fashion-mnist"


class FashionMNIST(Dataset):
    def __init__(self, root, size=64, limit=None):
        with gzip.open(root / "t10k-images-idx3-ubyte.gz") as f:
            self.images = np.frombuffer(f.read(), np.uint8, offset=16).reshape(-1, 28, 28)
        with gzip.open(root / "t10k-labels-idx1-ubyte.gz") as f:
            self.labels = np.frombuffer(f.read(), np.uint8, offset=8)
        if limit:
            self.images, self.labels = self.images[:limit], self.labels[:limit]
        self.size = size

    def __len__(self):
        return len(self.images)

    def augment(self, img):
        img = img.resize((160, 160), Image.BICUBIC)
        img = img.rotate(random.uniform(-20, 20), resample=Image.BICUBIC)
        crop = random.randint(110, 150)
        left = random.randint(0, 160 - crop)
        top = random.randint(0, 160 - crop)
        img = img.crop((left, top, left + crop, top + crop))
        if random.random() < 0.5:
            img = img.transpose(Image.FLIP_LEFT_RIGHT)
        img = ImageEnhance.Contrast(img).enhance(random.uniform(0.7, 1.3))
        img = img.filter(ImageFilter.GaussianBlur(random.uniform(0.1, 1.0)))
        return img.resize((self.size, self.size), Image.LANCZOS)

    def __getitem__(self, idx):
        img = self.augment(Image.fromarray(self.images[idx]))
        x = np.asarray(img, dtype=np.float32) / 255.0
        x = x + np.random.normal(0, 0.02, x.shape).astype(np.float32)
        x = (x - 0.286) / 0.353
        return torch.from_numpy(x).unsqueeze(0), int(self.labels[idx])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 5, stride=2)
        self.conv2 = nn.Conv2d(16, 32, 3, stride=2)
        self.fc1 = nn.Linear(32 * 14 * 14, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return self.fc2(x)


def train(args, model, device, loader, optimizer, epoch):
    model.train()
    correct = 0
    for batch_idx, (data, target) in enumerate(loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = F.cross_entropy(output, target)
        loss.backward()
        optimizer.step()
        correct += (output.argmax(1) == target).sum().item()
        if batch_idx % args.log_interval == 0:
            done = 100.0 * batch_idx / len(loader)
            print(f"Train Epoch: {epoch} [{done:.0f}%]\tLoss: {loss.item():.4f}")
    return correct / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description="Fashion-MNIST example")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--limit", type=int, default=1920, help="use only the first N images")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-interval", type=int, default=20)
    args = parser.parse_args()

    random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = torch.device("cpu")

    dataset = FashionMNIST(args.data, limit=args.limit)
    loader = DataLoader(
        dataset,
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
    )
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

    for epoch in range(1, args.epochs + 1):
        start = time.time()
        acc = train(args, model, device, loader, optimizer, epoch)
        print(f"epoch {epoch}: train acc {acc:.3f}, {time.time() - start:.1f}s")
    print(f"Finished {args.epochs} epoch(s), final accuracy {acc:.3f}")


if __name__ == "__main__":
    main()
