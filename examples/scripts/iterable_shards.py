"""Streams JPEGs out of tar shards, WebDataset style but by hand.

    python iterable_shards.py
    python iterable_shards.py --epochs 30 --workers 4

The shards are written to a temporary folder first and removed in the end.
"""

import argparse
import gzip
import io
import random
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

DATA = Path(__file__).resolve().parent.parent / "data" / "fashion-mnist"


def write_shards(folder, n_shards, per_shard):
    with gzip.open(DATA / "t10k-images-idx3-ubyte.gz") as f:
        images = np.frombuffer(f.read(), np.uint8, offset=16).reshape(-1, 28, 28)
    with gzip.open(DATA / "t10k-labels-idx1-ubyte.gz") as f:
        labels = np.frombuffer(f.read(), np.uint8, offset=8)
    paths = []
    for s in range(n_shards):
        path = folder / f"train-{s:04d}.tar"
        with tarfile.open(path, "w") as tar:
            for i in range(s * per_shard, (s + 1) * per_shard):
                picture = io.BytesIO()
                big = Image.fromarray(images[i]).convert("RGB").resize((256, 256), Image.BILINEAR)
                big.save(picture, "JPEG", quality=90)
                for name, data in (
                    (f"{i:06d}.jpg", picture.getvalue()),
                    (f"{i:06d}.cls", str(labels[i]).encode()),
                ):
                    info = tarfile.TarInfo(name)
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
        paths.append(path)
    return paths


class Shards(IterableDataset):
    def __init__(self, paths):
        self.paths = paths

    def __iter__(self):
        info = get_worker_info()
        paths = list(self.paths)
        if info is not None:
            paths = paths[info.id :: info.num_workers]
        random.shuffle(paths)
        for path in paths:
            with tarfile.open(path) as tar:
                image = None
                for member in tar:
                    data = tar.extractfile(member).read()
                    if member.name.endswith(".jpg"):
                        image = self.decode(data)
                    else:
                        yield image, int(data)

    def decode(self, data):
        img = Image.open(io.BytesIO(data)).convert("RGB")
        left, top = random.randint(0, 32), random.randint(0, 32)
        img = img.crop((left, top, left + 224, top + 224)).resize((64, 64), Image.BICUBIC)
        array = np.asarray(img, dtype=np.float32).transpose(2, 0, 1) / 127.5 - 1
        return torch.from_numpy(array.copy())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=1)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--shards", type=int, default=8)
    args = ap.parse_args()

    model = nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(512, 10),
    )
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    with tempfile.TemporaryDirectory(prefix="shards-") as folder:
        print(f"writing {args.shards} shards to {folder} ...")
        paths = write_shards(Path(folder), args.shards, per_shard=160)
        loader = DataLoader(Shards(paths), batch_size=args.batch_size, num_workers=args.workers)
        images = 0
        start = time.time()
        for epoch in range(args.epochs):
            for i, (x, y) in enumerate(loader):
                loss = nn.functional.cross_entropy(model(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                images += len(y)
                if i % 20 == 0:
                    rate = images / (time.time() - start)
                    print(f"epoch {epoch} batch {i} loss {loss.item():.3f} ({rate:.0f} img/s)")
    print(f"{images} images seen")


if __name__ == "__main__":
    main()
