"""What a worker tells of its memory. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Suspect(NamedTuple):
    """Something that a data set holds and that may be why a worker's memory grows.

    Attributes:
        path: How to get to it, as ``dataset.samples``.
        kind: The name of its type.
        of: The name of the type of most of its elements; empty where it has none.
        elements: How many it has.
        before: How many it had at the first look.
        size_bytes: Where it has grown, by how much, about; else of its Python objects, about.
        has_grown: Whether it has grown in the worker; else it is there to be copied.
    """

    path: str
    kind: str
    of: str
    elements: int
    before: int
    size_bytes: int
    has_grown: bool


class Look(NamedTuple):
    """A worker's memory at one moment.

    Attributes:
        pid: Which process.
        batches: How many it had made.
        private_bytes: What it had for itself.
        source: What says so.
        open_files: Descriptors that it had open; None where the system does not tell.
        forked: Whether it began as a copy of the main process.
        suspects: What may be why it has grown, the likeliest first.
        imported: Whether it has imported much since the look before: what it has got is no growth.
    """

    pid: int
    batches: int
    private_bytes: int
    source: str
    open_files: int | None = None
    forked: bool = False
    suspects: tuple[Suspect, ...] = ()
    imported: bool = False
