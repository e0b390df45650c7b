"""MNIST as everybody loads it: one image at a time, turned into a tensor and normalised.

    stoker tune examples/mnist.py:loader      how many workers should it have on this machine?
    python examples/mnist.py --workers 2      train a small network for one epoch

The images are the 10,000 test images of Fashion-MNIST beside this file, unless another folder with
files in MNIST's format is named: by ``--data``, or by the environment variable ``STOKER_MNIST``,
which `stoker tune` sees too. The 60,000 training images are read where the folder has them.
"""

from __future__ import annotations

import argparse
import gzip
import math
import os
import struct
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.utils.data
from torch import nn

from stoker import DataLoader

SHIPPED = Path(__file__).resolve().parent / "data" / "fashion-mnist"
PARTS = ("train", "t10k")
BATCH_SIZE = 64

IMAGES_MAGIC = 0x803  # unsigned bytes, three dimensions
LABELS_MAGIC = 0x801  # unsigned bytes, one dimension

Bytes = npt.NDArray[np.uint8]


class ToTensor:
    """A grey image of bytes, HxW, to floats between 0 and 1, 1xHxW; as torchvision does it."""

    def __call__(self, image: Bytes) -> torch.Tensor:
        if image.ndim == 2:
            image = image[:, :, None]
        tensor = torch.from_numpy(image.transpose((2, 0, 1))).contiguous()
        return tensor.to(dtype=torch.get_default_dtype()).div(255)


class Normalize:
    """Takes the mean from each channel and divides by its deviation; as torchvision does it."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self.mean = mean
        self.std = std

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        image = image.clone()
        mean = torch.as_tensor(self.mean, dtype=image.dtype, device=image.device)
        std = torch.as_tensor(self.std, dtype=image.dtype, device=image.device)
        if (std == 0).any():
            raise ValueError(f"std {self.std} would mean division by zero")
        return image.sub_(mean.view(-1, 1, 1)).div_(std.view(-1, 1, 1))


class Compose:
    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, image: Any) -> Any:
        for transform in self.transforms:
            image = transform(image)
        return image


def read_idx(path: Path, magic: int) -> Bytes:
    """Reads an IDX file of bytes, gzipped or plain.

    Raises:
        ValueError: the file is damaged, or not of the kind that ``magic`` names.
    """
    raw = path.read_bytes()
    if path.suffix == ".gz":
        try:
            raw = gzip.decompress(raw)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{path}: not a whole gzip file ({error})") from error
    dimensions = magic & 0xFF
    start = 4 + 4 * dimensions
    if len(raw) < start:
        raise ValueError(f"{path}: {len(raw)} bytes are too few for an IDX header of {start}")
    found, *shape = struct.unpack(f">{1 + dimensions}I", raw[:start])
    if found != magic:
        raise ValueError(f"{path}: begins with {found:#010x}, and {magic:#010x} was expected")
    expected = math.prod(shape)
    if len(raw) - start != expected:
        sizes = "x".join(map(str, shape))
        raise ValueError(
            f"{path}: the header says {sizes} = {expected} bytes, and {len(raw) - start} follow it"
        )
    return np.frombuffer(bytearray(raw[start:]), np.uint8).reshape(shape)


def find(folder: Path, name: str) -> Path | None:
    candidates = (folder / name, folder / f"{name}.gz")
    return next((path for path in candidates if path.is_file()), None)


class MNIST(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """The images and labels in a folder: the training part where it exists, else the test part.

    Raises:
        FileNotFoundError: the folder has neither part, or has images without labels.
        ValueError: a file is damaged, or there are not as many labels as images.
    """

    def __init__(self, folder: Path, transform: Callable[[Bytes], torch.Tensor]) -> None:
        part = next((part for part in PARTS if find(folder, f"{part}-images-idx3-ubyte")), None)
        if part is None:
            raise FileNotFoundError(
                f"{folder} has no MNIST images: neither train-images-idx3-ubyte nor "
                f"t10k-images-idx3-ubyte, plain or with .gz. Name another folder with --data or "
                f"STOKER_MNIST."
            )
        self.images = self._read(folder, f"{part}-images-idx3-ubyte", IMAGES_MAGIC)
        self.labels = self._read(folder, f"{part}-labels-idx1-ubyte", LABELS_MAGIC)
        if len(self.images) != len(self.labels):
            raise ValueError(
                f"{folder}: {len(self.images)} images and {len(self.labels)} labels in part {part}"
            )
        self.transform = transform

    @staticmethod
    def _read(folder: Path, name: str, magic: int) -> Bytes:
        path = find(folder, name)
        if path is None:
            raise FileNotFoundError(f"{folder} has neither {name} nor {name}.gz")
        return read_idx(path, magic)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.transform(self.images[index]), int(self.labels[index])

    def __len__(self) -> int:
        return len(self.images)


Loader = torch.utils.data.DataLoader[tuple[torch.Tensor, int]]


def dataset(folder: Path | None = None) -> MNIST:
    folder = folder or Path(os.environ.get("STOKER_MNIST") or SHIPPED)
    return MNIST(folder, Compose([ToTensor(), Normalize((0.1307,), (0.3081,))]))


def loader(num_workers: int = 0, data: Path | None = None) -> Loader:
    """The loader that `stoker tune` looks at."""
    return DataLoader(
        dataset(data),
        batch_size=BATCH_SIZE,
        shuffle=True,
        num_workers=num_workers,
        pin_memory=torch.cuda.is_available(),
    )


def torch_loader(num_workers: int = 0, data: Path | None = None) -> Loader:
    """The same with PyTorch's own loader, to compare."""
    return torch.utils.data.DataLoader(
        dataset(data),
        batch_size=BATCH_SIZE,
        shuffle=True,
        num_workers=num_workers,
        pin_memory=torch.cuda.is_available(),
    )


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, kernel_size=5, stride=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, kernel_size=3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 5 * 5, 10),
    )


def train_one_epoch(batches: Loader, model: nn.Module) -> tuple[float, float]:
    """Returns the mean loss and the share of images recognised, both over the whole epoch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loss_sum = 0.0
    recognised = 0
    seen = 0
    for images, labels in batches:
        scores = model(images)
        loss = nn.functional.cross_entropy(scores, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += len(labels)
        loss_sum += loss.item() * len(labels)
        recognised += int((scores.argmax(1) == labels).sum())
    return loss_sum / seen, recognised / seen


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small network on MNIST for one epoch.")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="a folder with MNIST's files")
    parser.add_argument("--workers", type=int, default=0, help="num_workers (default: 0)")
    arguments = parser.parse_args()
    try:
        batches = loader(arguments.workers, arguments.data)
    except (OSError, ValueError) as error:
        parser.exit(1, f"mnist: {error}\n")
    torch.manual_seed(0)
    began = time.perf_counter()
    loss, share = train_one_epoch(batches, network())
    took = time.perf_counter() - began
    per_s = len(batches) / took
    print(f"{len(batches)} batches of {BATCH_SIZE} in {took:.1f} s, {per_s:.0f} a second")
    print(f"mean loss {loss:.3f}, {share:.1%} of the images recognised")


if __name__ == "__main__":
    main()
