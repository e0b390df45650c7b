"""One work and one consumer as a training script has them, for ``stoker tune``.

    python -m benchmarks.scripts.work large sleep5

The loader is PyTorch's, with no workers. It goes on until it is stopped.
"""

from __future__ import annotations

import sys

from torch.utils.data import DataLoader

from benchmarks.auto.consumers import CONSUMERS
from benchmarks.works import WORKS


def main() -> None:
    name, consumer = sys.argv[1:]
    data, step = WORKS[name].data(), CONSUMERS[consumer].step
    loader = DataLoader(data.samples, num_workers=0, **data.arguments)
    while True:
        for _batch in loader:
            step()


if __name__ == "__main__":
    main()
