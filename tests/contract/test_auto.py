"""``num_workers="auto"``, the default: how it looks, and that it changes no batch."""

from __future__ import annotations

import gc
import json
import threading
from typing import Any, ClassVar

import pytest
import torch
from torch.utils.data import BatchSampler, SequentialSampler

import stoker
from stoker.options import AutoWorkers
from tests.contract.alike import assert_same, copied
from tests.contract.automatic import (
    FORK,
    begun,
    epoch_with,
    firsts,
    loader,
    needs_still,
    pids,
    still,
)
from tests.contract.datasets import collate_drawing
from tests.contract.methods import many_workers
from tests.contract.test_pinning import Accelerator, accelerator, pin_threads
from tests.contract.test_resizing import all_come_up
from tests.datasets import (
    Batched,
    Drawing,
    Plain,
    Slow,
    Telling,
)
from tests.faults.scripts import are_gone

__all__ = ["accelerator", "still"]


class TestTheNumber:
    def test_the_default_is_auto(self) -> None:
        made = stoker.DataLoader(Plain(3))
        assert isinstance(made.num_workers, int)
        assert made.num_workers == 0
        assert not made.num_workers
        assert len(list(made)) == 3
        assert made.statistics().automatic

    def test_it_prints_and_says_that_it_was_chosen(self) -> None:
        made = stoker.DataLoader(Plain(3))
        assert repr(made.num_workers) == "0 (auto)"
        assert f"{made.num_workers:d}, {made.num_workers:3}" == "0,   0"
        assert "%d" % made.num_workers == "0"  # noqa: UP031
        assert json.dumps({"num_workers": made.num_workers}) == '{"num_workers": 0}'

    @needs_still
    def test_it_reads_as_the_number_there_is(self) -> None:
        made = loader(Plain(30, (1,)))
        iterator = iter(made)
        for number, batch in enumerate(iterator):
            assert isinstance(made.num_workers, int)
            assert made.num_workers == len(iterator._workers) == (0 if number <= 3 else 2)
            if number == 3:
                iterator.feed.resize(2, batch)
        assert made.num_workers == 2
        assert list(range(made.num_workers)) == [0, 1]
        assert repr(made.num_workers) == "2 (auto)"

    @pytest.mark.parametrize("wrong", ["4", "Auto", "", "none"])
    def test_other_words_are_refused(self, wrong: Any) -> None:
        with pytest.raises(TypeError, match=f"int or 'auto', but got num_workers={wrong!r}"):
            stoker.DataLoader(Plain(3), num_workers=wrong)
        made = stoker.DataLoader(Plain(3))
        with pytest.raises(TypeError, match="int or 'auto'"):
            made.num_workers = wrong
        assert len(list(made)) == 3

    def test_a_negative_number_is_refused_as_by_torch(self) -> None:
        with pytest.raises(ValueError, match="non-negative"):
            stoker.DataLoader(Plain(3), num_workers=-1)

    def test_a_number_that_was_chosen_goes_on_choosing(self) -> None:
        made = stoker.DataLoader(Plain(3), num_workers=AutoWorkers(3))
        assert len(list(made)) == 3
        assert made.statistics().automatic

    @many_workers
    def test_it_may_be_set_later(self) -> None:
        made = loader(Telling(12), batch_size=2)
        assert not any(batch[2].any() for batch in made)
        made.num_workers = 3
        iterator = iter(made)
        assert len(iterator._workers) == 3
        assert all(batch[2].all() for batch in iterator)
        assert not made.statistics().automatic
        made.num_workers = "auto"
        assert isinstance(made.num_workers, int)
        assert not next(iter(made))[2].any()
        assert made.statistics().automatic

    @needs_still
    @pytest.mark.parametrize("number", [0, 1])
    def test_setting_it_ends_the_workers_that_were_chosen(self, number: int) -> None:
        made = loader(Plain(12))
        iterator, _ = begun(made)
        chosen = pids(iterator)
        list(iterator)
        made.num_workers = number
        iterator = iter(made)
        assert are_gone(chosen, 2.0)
        assert len(list(iterator)) == 12

    def test_setting_auto_ends_the_persistent_workers_that_were_given(self) -> None:
        made = loader(Plain(12), num_workers=2, persistent_workers=True)
        given = pids(iter(made))
        assert len(list(made)) == 12
        made.num_workers = "auto"
        assert len(list(made)) == 12
        assert are_gone(given, 2.0)

    @needs_still
    def test_it_stays_automatic_where_that_was_set_later(self) -> None:
        """Workers stay across epochs: nobody has asked for anything else."""
        made = loader(Plain(12), num_workers=1)
        made.num_workers = "auto"
        iterator, _ = begun(made)
        before = pids(iterator)
        list(iterator)
        assert pids(iter(made)) == before


class TestBatches:
    def test_they_are_those_of_the_main_process(self) -> None:
        """With everything as it is by default, and samples slow enough for workers to pay."""
        dataset = Slow(160, 0.006, FORK.Semaphore(0))
        made = stoker.DataLoader(dataset, batch_size=4, shuffle=True, seed=5)
        batches = [[copied(batch) for batch in made] for _ in range(3)]
        assert dataset.by_workers.acquire(timeout=0), "no worker has read a sample"
        assert made.num_workers > 0
        plain = stoker.DataLoader(Drawing(160), batch_size=4, shuffle=True, seed=5, num_workers=0)
        assert_same(batches, [list(plain) for _ in range(3)])

    @needs_still
    def test_the_indices_are_torchs(self) -> None:
        torch.manual_seed(3)
        theirs = torch.utils.data.DataLoader(Telling(40), batch_size=3, shuffle=True)
        expected, state = [firsts(theirs) for _ in range(3)], torch.get_rng_state()
        torch.manual_seed(3)
        made = loader(Telling(40), batch_size=3, shuffle=True)
        assert [firsts(epoch_with(made, count)) for count in (2, 0, 1)] == expected
        assert torch.equal(torch.get_rng_state(), state)

    OPTIONS: ClassVar[dict[str, dict[str, Any]]] = {
        "plain": {"batch_size": 3},
        "drop_last": {"batch_size": 5, "drop_last": True},
        "prefetch 1": {"batch_size": 3, "prefetch_factor": 1},
        "prefetch 7": {"batch_size": 3, "prefetch_factor": 7},
        "not persistent": {"batch_size": 3, "persistent_workers": False},
        "no batches": {"batch_size": None},
        "sampler": {"batch_size": 3, "sampler": range(40, 8, -1)},
        "batch sampler": {"batch_sampler": BatchSampler(SequentialSampler(range(44)), 4, False)},
        "plain list": {"batch_sampler": [[3, 1], [7], [7, 7, 7], [40, 2]] * 3},
        "collate": {"batch_size": 3, "collate_fn": collate_drawing},
        "iterator of batches": {"batch_size": 3, "shuffle": True},
    }

    @needs_still
    @pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
    @pytest.mark.parametrize("dataset", [Drawing(44), Batched(44)], ids=["draws", "getitems"])
    def test_they_are_those_of_the_main_process_with(
        self, options: dict[str, Any], dataset: Any
    ) -> None:
        """Workers come, go and come again in the middle of an epoch."""
        inline = {k: v for k, v in options.items() if not k.startswith(("prefetch", "persist"))}
        plain = stoker.DataLoader(dataset, num_workers=0, seed=2, **inline)
        made = loader(dataset, seed=2, **options)
        for _ in range(2):
            got, iterator = [], iter(made)
            for number, batch in enumerate(iterator):
                got.append(copied(batch))
                if number in (1, 4, 6):
                    iterator.feed.resize({1: 2, 4: 0, 6: 3}[number], batch)
                    all_come_up(iterator)
            assert_same(got, list(plain))
        assert made.statistics().total_bytes > 0, "no worker made a batch"

    @needs_still
    def test_out_of_order_each_comes_once(self) -> None:
        made = loader(Telling(60), batch_size=3, in_order=False)
        for _ in range(2):
            assert sorted(firsts(epoch_with(made))) == list(range(60))

    @needs_still
    def test_all_are_pinned(self, accelerator: Accelerator) -> None:
        made = loader(Plain(40, (100, 100)), batch_size=2, pin_memory=True)
        for _ in range(2):
            iterator = iter(made)
            for number, batch in enumerate(iterator):
                assert accelerator.has_pinned(batch)
                assert [float(row.mean()) for row in batch] == [2 * number, 2 * number + 1]
                if number in (3, 9):
                    iterator.feed.resize(2 if number == 3 else 1, batch)
                    all_come_up(iterator)
        assert accelerator.threads == {threading.main_thread().name, "stoker-pin"}
        del iterator, made
        gc.collect()
        assert not pin_threads()

    @needs_still
    def test_pin_memory_may_be_set_later(self, accelerator: Accelerator) -> None:
        made = loader(Plain(8), batch_size=2)
        assert len(list(made)) == 4
        made.pin_memory = True
        assert all(accelerator.has_pinned(batch) for batch in made)
        made.pin_memory = False
        assert not any(accelerator.has_pinned(batch) for batch in made)
