"""Batches of small rows from tensors, taken at once and not row by row.

A ``TensorDataset`` of small rows costs a Python call for each row and a stack for each batch,
which is a hundred times what taking the rows takes. Where nothing but torch's own code is
involved, the rows can be taken with one index, and are the same bit for bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stoker.host.arriving import is_here

if TYPE_CHECKING:
    import torch

_MOST_BYTES = 256 * 1024
"""Larger batches are stacked into recycled memory, and the calls no longer matter."""


class Rows:
    """Takes batches of rows from a data set of tensors.

    Args:
        dataset: A `TensorDataset`, or a `Subset` of one; exactly these, since a class of the
            user's may do anything.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    @staticmethod
    def fit(dataset: Any) -> bool:
        """Whether batches of a data set are rows of tensors and nothing else."""
        if not is_here("torch"):
            return False
        from torch.utils.data import Subset, TensorDataset

        while type(dataset) is Subset:
            dataset = dataset.dataset
        return type(dataset) is TensorDataset

    def batch(self, indices: Any) -> list[torch.Tensor] | None:
        """Gives what torch's ``default_collate`` makes of the rows with these indices.

        Returns:
            One tensor for each of the data set, of as many rows as there are indices; None where
            it must be made row by row: large rows, an index that is none, a tensor that is not
            plain.
        """
        import torch
        from torch.utils.data import Subset

        dataset = self._dataset
        try:
            while type(dataset) is Subset:
                indices = [dataset.indices[index] for index in indices]
                dataset = dataset.dataset
            wanted = torch.tensor(indices)
            if wanted.dtype is not torch.int64 or wanted.dim() != 1 or not len(wanted):
                return None
            tensors = dataset.tensors
            if not all(_is_plain(each) for each in tensors) or not _are_small(tensors, len(wanted)):
                return None
            return [each[wanted] for each in tensors]
        except Exception:  # Row by row it shows which index it was.
            return None


def _is_plain(tensor: torch.Tensor) -> bool:
    import torch

    return (
        type(tensor) is torch.Tensor
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not (tensor.requires_grad or tensor.is_quantized or tensor.is_nested)
        and not (tensor.is_conj() or tensor.is_neg())
    )


def _are_small(tensors: tuple[torch.Tensor, ...], rows: int) -> bool:
    row_bytes = sum(each[0].numel() * each.element_size() for each in tensors)
    return rows * row_bytes <= _MOST_BYTES
