"""The works, one kind of data each. A new one is a module here and a line in ``WORKS``."""

from __future__ import annotations

from benchmarks.settings import Work
from benchmarks.works import jpeg, mnist, ready, sleeping

WORKS: dict[str, Work] = {
    work.name: work
    for work in (
        ready.LARGE,
        ready.SMALL,
        ready.FIELDS,
        sleeping.UNEVEN,
        jpeg.JPEG,
        sleeping.WAITING,
        mnist.MNIST,
    )
}
