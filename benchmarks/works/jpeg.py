"""Photographs as files: decoded, cropped and resized, as for training on ImageNet."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.utils.data

from benchmarks.figures import Case, Target
from benchmarks.limits import independent_per_s
from benchmarks.settings import Data, Settings, Work
from benchmarks.works.compare import Batches, Comparison, Limit

BATCH_SIZE = 32
WORKERS = 2
FILE_SIZE = (500, 375)
QUALITY = 90
CROP = 224
SMALLEST_SIDE = 0.6  # of the file's shorter side
LIMIT_S = 4.0
LENGTH = 1_000_000


def photographs() -> list[npt.NDArray[np.uint8]]:
    """The colour photographs inside scikit-image's package: nothing is downloaded."""
    from skimage import data

    return [data.astronaut(), data.chelsea(), data.coffee(), data.rocket()]


def jpeg_bytes(photograph: npt.NDArray[np.uint8]) -> bytes:
    from PIL import Image, ImageOps

    file = io.BytesIO()
    ImageOps.fit(Image.fromarray(photograph), FILE_SIZE).save(file, "JPEG", quality=QUALITY)
    return file.getvalue()


class Photographs(torch.utils.data.Dataset[torch.Tensor]):
    """A random square of a photograph, resized to 224×224, as floats 3×224×224."""

    def __init__(self) -> None:
        self._files = [jpeg_bytes(photograph) for photograph in photographs()]

    def __getitem__(self, index: int) -> torch.Tensor:
        from PIL import Image

        with Image.open(io.BytesIO(self._files[index % len(self._files)])) as file:
            image = file.convert("RGB")
        scale, across, down = torch.rand(3).tolist()
        side = (SMALLEST_SIDE + (1 - SMALLEST_SIDE) * scale) * image.height
        left, top = across * (image.width - side), down * (image.height - side)
        box = (left, top, left + side, top + side)
        square = image.resize((CROP, CROP), Image.Resampling.BILINEAR, box)
        return torch.from_numpy(np.array(square)).permute(2, 0, 1).contiguous().float().div(255)

    def __len__(self) -> int:
        return LENGTH

    def batch(self, number: int) -> Any:
        first = number * BATCH_SIZE
        return torch.utils.data.default_collate(
            [self[index] for index in range(first, first + BATCH_SIZE)]
        )


def jpeg_data() -> Data:
    return Data(
        "32 JPEG files of 500×375 decoded, cropped and resized to 224 with Pillow",
        Photographs(),
        {"batch_size": BATCH_SIZE},
    )


def jpeg(settings: Settings) -> list[Case]:
    data = jpeg_data()
    samples = data.samples
    assert isinstance(samples, Photographs)
    batches = Batches("jpeg", data, settings.window(warm_up=8, batches=40, seconds=LIMIT_S))
    seconds = LIMIT_S * settings.scale
    twice_one = Limit(
        lambda: 2 * independent_per_s(samples.batch, 1, seconds),
        "one process that makes the same batches and hands them to nobody, times two",
    )
    two = Limit(
        lambda: independent_per_s(samples.batch, 2, seconds), "two such processes at the same time"
    )
    limits = {"twice one core": twice_one, "two processes": two}
    targets = (Target(0.98, tuple(limits)),)
    return [Comparison(batches, WORKERS, targets, limits).case(settings)]


JPEG = Work("jpeg", jpeg_data, jpeg)
