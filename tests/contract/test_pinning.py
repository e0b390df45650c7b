"""``pin_memory=True``, with an accelerator that is simulated: a thread copies the batches."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import stoker
from stoker.errors import TransportError, WorkerDied
from tests.contract.alike import assert_same
from tests.contract.methods import Tabled, answers, fixed_batches, loader
from tests.datasets import Failing, Gated, Nested, Plain

FORK = multiprocessing.get_context("fork")
INDEX = 3


class Accelerator:
    """What the simulated device was asked for."""

    def __init__(self) -> None:
        self.threads: set[str] = set()
        self.indices: list[int] = []
        self.pinned: list[torch.Tensor] = []
        self.before: Callable[[torch.Tensor], None] = lambda tensor: None

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        self.threads.add(threading.current_thread().name)
        self.before(tensor)
        pinned = tensor.clone()
        self.pinned.append(pinned)
        return pinned

    def has_pinned(self, tensor: torch.Tensor) -> bool:
        return any(tensor is pinned for pinned in self.pinned)


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Accelerator]:
    simulated = Accelerator()
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(
        torch.accelerator, "current_accelerator", lambda *_, **__: torch.device("cuda")
    )
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: INDEX)
    monkeypatch.setattr(torch.accelerator, "set_device_index", simulated.indices.append)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor, *_: simulated.pin(tensor))
    yield simulated
    simulated.pinned.clear()


def pin_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "stoker-pin"]


@pytest.mark.parametrize("shape", [(3,), (100, 100)], ids=["small", "large"])
def test_batches_are_pinned_in_order_by_a_thread(
    accelerator: Accelerator, shape: tuple[int, ...]
) -> None:
    iterator = iter(loader(Plain(40, shape), "fork", batch_size=2, pin_memory=True))
    for number, batch in enumerate(iterator):
        assert accelerator.has_pinned(batch)
        assert [float(row.mean()) for row in batch] == [2 * number, 2 * number + 1]
    assert accelerator.threads == {"stoker-pin"}
    assert accelerator.indices == [INDEX]
    assert not pin_threads()


def test_batches_made_here_are_pinned_here(accelerator: Accelerator) -> None:
    for batch in loader(Plain(8), "inline", batch_size=2, pin_memory=True):
        assert accelerator.has_pinned(batch)
    assert accelerator.threads == {threading.main_thread().name}
    assert not pin_threads()


@pytest.mark.parametrize("method", ["inline", "fork"])
def test_every_part_of_a_batch_is_pinned(accelerator: Accelerator, method: str) -> None:
    expected = list(torch.utils.data.DataLoader(Nested(8), batch_size=4))
    made = fixed_batches(Nested(8), method, batch_size=4, pin_memory=True)
    assert_same(made, expected)
    assert accelerator.has_pinned(made[0]["image"])
    assert accelerator.has_pinned(made[0]["pair"][1])


class Pinnable:
    """Pins itself its own way."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.pinned = False

    def pin_memory(self) -> Pinnable:
        self.pinned = True
        return self


@pytest.mark.parametrize("method", ["inline", "fork"])
def test_an_objects_own_way_to_pin_is_used(accelerator: Accelerator, method: str) -> None:
    made = loader(Tabled(3, Pinnable), method, batch_size=None, pin_memory=True)
    assert [(x.index, x.pinned) for x in made] == [(0, True), (1, True), (2, True)]


@pytest.mark.parametrize("at", [0, 3])
def test_an_error_in_pinning_is_raised_as_itself_in_its_turn(
    accelerator: Accelerator, at: int
) -> None:
    def fail(tensor: torch.Tensor) -> None:
        if float(tensor.flatten()[0]) == at:
            raise MemoryError("no page can be locked")

    accelerator.before = fail
    iterator = iter(loader(Plain(6), "fork", pin_memory=True))
    seen = list(answers(iterator))
    error = seen.pop(at)
    assert isinstance(error, MemoryError)
    assert "no page can be locked" in str(error)
    assert f"in pin memory thread for device {INDEX}" in str(error)
    assert [int(batch[0, 0]) for batch in seen] == [i for i in range(6) if i != at]
    assert list(iterator) == []
    assert not pin_threads()


def test_a_samples_error_passes_the_thread(accelerator: Accelerator) -> None:
    iterator = iter(loader(Failing(6, 2), "fork", pin_memory=True))
    assert [int(next(iterator)[0, 0]) for _ in range(2)] == [0, 1]
    with pytest.raises(ValueError, match="sample 2 is broken"):
        next(iterator)
    assert [int(batch[0, 0]) for batch in iterator] == [3, 4, 5]


def test_a_batch_that_cannot_be_rebuilt_is_an_error(accelerator: Accelerator) -> None:
    iterator = iter(loader(Tabled(2, Unloadable), "fork", batch_size=None, pin_memory=True))
    wanted = "Unloadable .ArithmeticError: cannot be rebuilt"
    with pytest.raises(TransportError, match=wanted) as caught:
        next(iterator)
    assert isinstance(caught.value.__cause__, ArithmeticError)
    del iterator, caught


class Unloadable:
    def __init__(self, index: int) -> None:
        self.index = index

    def __setstate__(self, state: Any) -> None:
        raise ArithmeticError("cannot be rebuilt")


def test_the_thread_is_gone_after_leaving_the_loop(accelerator: Accelerator) -> None:
    for _ in loader(Plain(40), "fork", pin_memory=True):
        assert len(pin_threads()) == 1
        break
    assert not pin_threads()


def test_the_thread_stays_with_persistent_workers(accelerator: Accelerator) -> None:
    made = loader(Plain(12, (1,)), "fork", pin_memory=True, persistent_workers=True)
    for taken in (3, 12, 0, 5):
        for number, batch in enumerate(made):
            assert int(batch) == number
            if number == taken:
                break
    assert [int(batch) for batch in made] == list(range(12))
    assert len(pin_threads()) == 1
    del made
    assert not pin_threads()


def test_out_of_order_and_iterables_are_pinned_too(accelerator: Accelerator) -> None:
    from tests.datasets import Stream

    made = loader(Stream(20), "fork", batch_size=3, pin_memory=True, in_order=False)
    batches = list(made)
    assert sorted(x for batch in batches for x in batch.tolist()) == list(range(20))
    assert all(accelerator.has_pinned(batch) for batch in batches)


def test_a_slow_thread_loses_nothing(accelerator: Accelerator) -> None:
    """The thread stands still until all workers have filled their window."""
    going = threading.Event()
    accelerator.before = lambda tensor: assert_(going.wait(20))
    iterator = iter(loader(Plain(30, (100, 100)), "fork", batch_size=1, pin_memory=True))
    threading.Timer(0.2, going.set).start()
    assert [int(batch[0, 0, 0]) for batch in iterator] == list(range(30))


def test_a_time_out_counts_with_the_thread(accelerator: Accelerator) -> None:
    gate = FORK.Event()
    iterator = iter(loader(Gated(4, 1, gate), "fork", pin_memory=True, timeout=0.3))
    next(iterator)
    with pytest.raises(RuntimeError, match=r"timed out after 0\.3 seconds"):
        next(iterator)
    assert not pin_threads()
    del iterator


class KilledAt(Plain):
    def __init__(self, length: int, at: int, held: Any) -> None:
        super().__init__(length)
        self.at = at
        self.held = held

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.at:
            assert self.held.wait(20)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


def test_a_dead_worker_is_named_with_the_batch_it_was_making(accelerator: Accelerator) -> None:
    """Not the one before, which is still being pinned."""
    held, going = FORK.Event(), threading.Event()

    def hold(tensor: torch.Tensor) -> None:
        held.set()
        going.wait(20)

    accelerator.before = hold
    options = {"pin_memory": True, "prefetch_factor": 2}
    iterator = iter(loader(KilledAt(4, 1, held), "fork", 1, **options))
    threading.Timer(0.5, going.set).start()
    with pytest.raises(WorkerDied) as caught:
        list(iterator)
    assert (caught.value.batch, caught.value.indices) == (1, [1])
    del iterator


def test_what_was_pinned_outlives_the_slots(accelerator: Accelerator) -> None:
    kept = list(loader(Plain(100, (100, 100)), "fork", batch_size=2, pin_memory=True))
    for number, batch in enumerate(kept):
        assert [float(row.mean()) for row in batch] == [2 * number, 2 * number + 1]


def test_the_number_of_torchs_threads_is_what_it_was(accelerator: Accelerator) -> None:
    before = torch.get_num_threads()
    list(loader(Plain(8), "fork", pin_memory=True))
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("num_workers", [0, 2])
def test_without_an_accelerator_nothing_is_pinned(num_workers: int) -> None:
    if torch.accelerator.is_available():
        pytest.skip("this machine has an accelerator")
    made = loader(Plain(4), "fork" if num_workers else "inline", num_workers, pin_memory=True)
    with pytest.warns(UserWarning, match="no accelerator is found"):
        batches = list(made)
    assert not any(batch.is_pinned() for batch in batches)


@pytest.mark.gpu
@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("shape", [(3,), (200, 200)], ids=["small", "large"])
def test_a_real_accelerator_copies_from_pinned_batches(
    num_workers: int, shape: tuple[int, ...]
) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    options = {"multiprocessing_context": "forkserver"} if num_workers else {}
    made = stoker.DataLoader(
        Plain(40, shape), batch_size=2, num_workers=num_workers, pin_memory=True, **options
    )
    copies = []
    for batch in made:
        assert batch.is_pinned()
        copies.append(batch.to("cuda", non_blocking=True))
        del batch
    torch.cuda.synchronize()
    means = [float(row.mean()) for batch in copies for row in batch]
    assert means == [float(i) for i in range(40)]


def assert_(value: bool) -> None:
    assert value


def _forks() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_no_fork_while_a_batch_is_pinned(accelerator: Accelerator) -> None:
    """Whoever forks: the copy would find the locks of the library that pins held for ever."""
    pinning, go_on = threading.Event(), threading.Event()

    def hold(tensor: torch.Tensor) -> None:
        pinning.set()
        go_on.wait(20)

    accelerator.before = hold
    iterator = iter(loader(Plain(2), "fork", 1, pin_memory=True))
    seen: list[Any] = []
    consumer = threading.Thread(target=lambda: seen.extend(iterator))
    consumer.start()
    assert pinning.wait(20)
    forking = threading.Thread(target=_forks)
    forking.start()
    forking.join(0.1)
    assert forking.is_alive()
    go_on.set()
    forking.join(20)
    consumer.join(20)
    assert not forking.is_alive()
    assert len(seen) == 2
