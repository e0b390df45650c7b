"""torch's ``default_collate`` and ``default_convert`` for a worker that has no torch.

Samples of plain numbers, texts and containers of these, of exactly Python's own types, are put
together here as torch would, with a `Column` for each tensor; the main process gets the tensors.
Whatever else there is, and whatever torch would refuse, torch does itself: it is imported then.
What a batch is made of does not change while it is looked at, so that beginning again is safe.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stoker.host.arriving import is_here
from stoker.transport.columns import Column

_ATOMS = frozenset({int, float, complex, bool, str, bytes, type(None)})
_KEYS = frozenset({int, str})


class _NotPlain(Exception):
    pass


class Lean:
    """Stands for one of the two functions; pickled by name, and without torch.

    Args:
        name: Of the function.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, batch: Any) -> Any:
        if not is_here("torch"):
            try:
                return _LEAN[self.name](batch)
            except Exception:  # Torch does it, or says what is wrong.
                pass
        return self.torchs(batch)

    @property
    def torchs(self) -> Any:
        """The function itself; imports torch."""
        from torch.utils.data._utils import collate

        return getattr(collate, self.name)


def lightened(job: Any) -> Any:
    """A `Job` that refers to no function of torch's that need not be torch's."""
    from torch.utils.data._utils import collate

    if not _is_unchanged(collate):
        return job
    for name in _LEAN:
        if job.collate_fn is getattr(collate, name):
            return replace(job, collate_fn=Lean(name))
    return job


def resolved(collate: Any) -> Any:
    """The function that a `Lean` stands for, where torch is there; else what is given."""
    return collate.torchs if isinstance(collate, Lean) and is_here("torch") else collate


def may_be_lean(batch: Any) -> bool:
    """Whether a batch that torch has collated may be of samples that are collated without it.

    For the main process. Of what is not a tensor nothing is said.
    """
    import torch

    if isinstance(batch, torch.Tensor):
        return batch.dim() == 1 and batch.dtype in (torch.int64, torch.float64, torch.bool)
    if isinstance(batch, dict):
        return all(map(may_be_lean, batch.values()))
    return not isinstance(batch, (list, tuple)) or all(map(may_be_lean, batch))


def _is_unchanged(collate: Any) -> bool:
    """Whether the program has left torch's functions as they were, and tensors on the CPU."""
    import torch

    known = {
        float: collate.collate_float_fn,
        int: collate.collate_int_fn,
        str: collate.collate_str_fn,
        bytes: collate.collate_str_fn,
    }
    found = collate.default_collate_fn_map
    own = all(function.__module__ == collate.__name__ for function in found.values())
    if str(torch.get_default_device()) != "cpu":
        return False
    return own and all(found.get(kind) is function for kind, function in known.items())


def _collate(batch: Sequence[Any]) -> Any:
    kind = type(batch[0])
    if kind in (str, bytes):
        return batch
    if set(map(type, batch)) != {kind}:
        raise _NotPlain
    if kind in (int, float, bool):
        return Column(batch, kind)
    if kind is dict:
        return {_plain_key(key): _collate([each[key] for each in batch]) for key in batch[0]}
    if kind not in (tuple, list) or len(set(map(len, batch))) != 1:
        raise _NotPlain
    return [_collate(samples) for samples in zip(*batch, strict=True)]


def _convert(data: Any) -> Any:
    kind = type(data)
    if kind in _ATOMS:
        return data
    if kind is dict:
        return {_plain_key(key): _convert(value) for key, value in data.items()}
    if kind not in (tuple, list):
        raise _NotPlain
    return [_convert(each) for each in data]


def _plain_key(key: Any) -> Any:
    if type(key) not in _KEYS:
        raise _NotPlain
    return key


_LEAN = {"default_collate": _collate, "default_convert": _convert}
