"""The loader of examples/mnist.py: every loader at its own best number of workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.figures import Case, Figure, Row, Target, Timing, Timings, steady, whole
from benchmarks.measure import Loader, LoaderClass, time_epoch
from benchmarks.settings import Data, Settings, Work
from examples import mnist as example

WORKERS = (0, 1, 2, 3, 4)
WARM_UP = 16

Summary = Callable[[Sequence[Timing], str | None], Figure]


def mnist_data() -> Data:
    samples = example.dataset()
    return Data(
        f"examples/mnist.py, an epoch of {len(samples):,} images",
        samples,
        {"batch_size": example.BATCH_SIZE, "shuffle": True, "pin_memory": True},
    )


def cases(settings: Settings) -> list[Case]:
    data = mnist_data()

    def contender(make: LoaderClass, workers: int) -> Callable[[], Timing]:
        def loader() -> Loader:
            return make(data.samples, num_workers=workers, **data.arguments)

        def measure() -> Timing:
            return time_epoch(loader, WARM_UP)

        return measure

    def rows(timings: Timings) -> list[Row]:
        loaders = tuple(settings.loaders)
        left_out, start_to_end = f"{data.title}, its start left out", f"{data.title}, start to end"
        return [
            best_row("mnist, steady", left_out, steady, timings, loaders),
            best_row("mnist, epoch", start_to_end, whole, timings, loaders),
        ]

    contenders = {
        label(name, workers): contender(make, workers)
        for name, make in settings.loaders.items()
        for workers in WORKERS
    }
    return [Case(contenders, rows)]


def label(loader: str, workers: int) -> str:
    return f"{loader}, {workers} workers"


def best_row(
    work: str, title: str, summary: Summary, timings: Timings, loaders: tuple[str, ...]
) -> Row:
    figures = {
        loader: max(
            (summary(timings[label(loader, n)], f"{n}") for n in WORKERS),
            key=lambda figure: figure.per_s,
        )
        for loader in loaders
    }
    return Row(
        work, title, f"best of {WORKERS[0]}-{WORKERS[-1]}", figures, (Target(1.5, ("torch",)),)
    )


MNIST = Work("mnist", mnist_data, cases)
