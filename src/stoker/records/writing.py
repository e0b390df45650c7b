"""Fills blocks from an iterable, a little of it at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np

from stoker.records.blocks import Array, Block, Numbers, Pickles, Pieces
from stoker.records.encoding import Name, Run, encoded
from stoker.records.own_names import Names

BLOCK_BYTES = 32 << 20
RUN_BYTES = 1 << 20
_FIRST_RUN, _LONGEST_RUN = 64, 16_384


def blocks_of(
    records: Iterable[object],
    name: Name,
    *,
    block_bytes: int = BLOCK_BYTES,
    run_bytes: int = RUN_BYTES,
) -> list[Block]:
    """Blocks with all records, in order.

    Beside the blocks there are, at any time, one block's bytes and records of about
    ``run_bytes``, so a generator's records never exist all at once.

    Args:
        records: Is iterated once.
        name: What to call a record in an error, by its index.
        block_bytes: About how large a block is.
        run_bytes: About how many bytes of records are encoded at a time.

    Raises:
        NotPicklable: A record does not pickle.
    """
    filled: list[Block] = []
    gathered: list[Run] = []
    names: Names = {}
    size = first = 0
    length = _FIRST_RUN
    source = iter(records)
    while run_records := list(itertools.islice(source, length)):
        run = encoded(run_records, first, name, names)
        first += len(run_records)
        each = max(1, run.data.nbytes // len(run_records))
        length = max(1, min(_LONGEST_RUN, run_bytes // each))
        if gathered and (gathered[0].kind is not run.kind or _differ(gathered[0], run)):
            filled.append(_block(gathered, names))
            gathered, size = [], 0
        gathered.append(run)
        size += run.data.nbytes
        if size >= block_bytes:
            filled.append(_block(gathered, names))
            gathered, size = [], 0
    if gathered:
        filled.append(_block(gathered, names))
    return filled


def _differ(one: Run, other: Run) -> bool:
    """Whether they are numbers of different kinds; ints of different widths are of one."""
    return one.kind is Numbers and one.data.dtype.kind != other.data.dtype.kind


def _block(runs: list[Run], names: Names) -> Block:
    data = _together([run.data for run in runs])
    kind = runs[0].kind
    if kind is Numbers:
        return Numbers(data)
    lengths = [run.lengths for run in runs if run.lengths is not None]
    starts = np.zeros(sum(map(len, lengths)) + 1, np.int64)
    np.cumsum(np.concatenate(lengths), out=starts[1:])
    starts = starts.astype(np.uint32 if starts[-1] < 1 << 32 else np.uint64)
    if kind is Pickles:
        return Pickles(data, starts, names)  # One dictionary for all: what these name is noted.
    assert issubclass(kind, Pieces)
    return kind(data, starts)


def _together(arrays: list[Array]) -> Array:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
