"""Public cases of group D: what forked workers inherit, and streams with several workers."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from tests.contract.methods import loader, many_workers

with_both = pytest.mark.parametrize("method", ["fork", "forkserver"])


class _Copies(Dataset[torch.Tensor]):
    """One tensor, large enough for torch to copy it with several threads."""

    def __init__(self) -> None:
        self.tensor = torch.arange(1 << 20, dtype=torch.float32)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.tensor.clone() + index


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_c032_a_worker_copies_with_threads_that_the_parent_has_used() -> None:
    data = _Copies()
    _ = data.tensor.clone() * 2  # The pool of threads exists now.
    batches = list(loader(data, "fork", batch_size=2))
    assert [batch[0, 0].item() for batch in batches] == [0.0, 2.0, 4.0, 6.0]


class _Says(Dataset[str]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> str:
        return os.environ.get("TOKENIZERS_PARALLELISM", "unset")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize("given", [None, "true"])
def test_c037_tokenizers_have_no_threads_in_workers_unless_that_was_said(
    given: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is set in the program itself."""
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    if given:
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", given)
    [batch, *_] = list(loader(_Says(), "fork", batch_size=4))
    assert batch == [given or "false"] * 4
    assert os.environ.get("TOKENIZERS_PARALLELISM") == given


class _Shards(IterableDataset[int]):
    """Records of twelve shards, which workers divide among themselves."""

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        number, count = (info.id, info.num_workers) if info else (0, 1)
        for shard in range(number, 12, count):
            yield from range(100 * shard, 100 * shard + 7)


@many_workers
@with_both
@pytest.mark.parametrize("num_workers", [1, 2, 4])
def test_c039_a_stream_arrives_whole_with_any_number_of_workers(
    method: str, num_workers: int
) -> None:
    batches = list(loader(_Shards(), method, batch_size=5, num_workers=num_workers))
    found = sorted(int(each) for batch in batches for each in batch)
    assert found == sorted(_Shards())


class _Warms(Dataset[int]):
    """Fills its cache with threads of its own when it is made."""

    def __init__(self) -> None:
        self.cache: dict[int, int] = {}
        threads = [threading.Thread(target=self._fill, args=(each,)) for each in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(10)

    def _fill(self, first: int) -> None:
        for index in range(first, 64, 8):
            self.cache[index] = index * index

    def __len__(self) -> int:
        return len(self.cache)

    def __getitem__(self, index: int) -> int:
        return self.cache[index]


@with_both
def test_c041_a_data_set_that_filled_its_cache_with_threads_is_read_by_workers(
    method: str,
) -> None:
    """The number of those threads is the data set's own; it harms no start of workers."""
    batches = list(loader(_Warms(), method, batch_size=16))
    assert torch.cat(batches).tolist() == [index * index for index in range(64)]
