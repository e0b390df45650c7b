"""A training loop with next to no loading, that tells how long a batch takes it.

python -m benchmarks.watching.program WORKERS STEP_MS BATCHES FILE
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

from stoker.feed.window import Window
from stoker.tuning.decision import Bounds
from stoker.tuning.probing import Prober, Trial
from stoker.watch import asking, tuned
from stoker.watch.settings import Settings

WARM_UP = 50


class OwnOnly(Prober):
    """Measures the program's own setting for as long as it runs."""

    def observe(self, window: Window, bounds: Bounds, passed_s: float | None = None) -> None:
        """Takes the window, and asks for the same again."""
        self.trials = [Trial(self.ask.setting, "own", 0, window)]


def main() -> None:
    if len(sys.argv) > 5:
        vars(asking)["Prober"] = OwnOnly
        tuned.install(Settings("tune", sys.argv[5], seconds=600.0))
    workers, step_ms, batches = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    samples = TensorDataset(torch.zeros(1_000_000, 4))
    loader = DataLoader(samples, batch_size=4, num_workers=workers)
    step_s = step_ms / 1e3
    spent_s, asked = 0.0, time.perf_counter()
    for count, _batch in enumerate(loader, 1):
        got = time.perf_counter()
        if count > WARM_UP:
            spent_s += got - asked
        if count == WARM_UP + batches:
            break
        while time.perf_counter() - got < step_s:
            pass
        asked = time.perf_counter()
    Path(sys.argv[4]).write_text(repr(spent_s / batches))


if __name__ == "__main__":
    main()
