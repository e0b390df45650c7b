"""Public cases of group G: memory of forked workers that read records of Python objects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

import stoker
from tests.contract.methods import Tabled, loader
from tests.faults.scripts import run
from tests.unit.records.kinds import Row

RECORDS = 200_000


class Nothing:
    """Records that are nowhere."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        return row(index)


def row(index: int) -> dict[str, Any]:
    return {"path": f"images/{index:08d}.jpg", "label": index, "box": [index * 0.5, 1.5]}


def own_bytes(records: Any) -> int:
    """What one forked worker has for itself after an epoch over all records.

    When it came to have it does not matter: a garbage collection may copy a list at once.
    """
    made = loader(
        Tabled(RECORDS, lambda index: records[index]["label"]),
        "fork",
        1,
        batch_size=1000,
        persistent_workers=True,
    )
    before = set(psutil.Process().children())
    batches = iter(made)
    labels = [int(label) for batch in batches for label in batch]
    (worker,) = set(psutil.Process().children()) - before
    own: int = worker.memory_full_info().uss
    del batches, made
    assert labels == list(range(RECORDS))
    return own


def test_c057_packed_records_do_not_grow_in_workers_as_a_list_does() -> None:
    """As reported: each worker copies the pages of the objects that it reads."""
    pack = stoker.packed(row(index) for index in range(RECORDS))
    without, packed = own_bytes(Nothing()), own_bytes(pack)
    listed = own_bytes([row(index) for index in range(RECORDS)])
    assert listed > without + 15e6, "the fault that was planted"
    assert packed < without + 5e6


@pytest.mark.parametrize("method", ["inline", "fork", "forkserver"])
def test_c057_packed_records_are_the_data_set(method: str) -> None:
    """The same batches as of the list, in whatever process they are made."""
    records = [{"name": f"n{index}", "x": torch.full((2,), float(index))} for index in range(20)]
    batches = list(loader(stoker.packed(records), method, batch_size=4))
    assert [batch["name"] for batch in batches] == [
        [f"n{at}" for at in range(first, first + 4)] for first in range(0, 20, 4)
    ]
    assert torch.equal(
        torch.cat([batch["x"] for batch in batches]), torch.stack([each["x"] for each in records])
    )


def test_c057_a_packed_dict_is_read_by_key_in_workers() -> None:
    pack = stoker.packed({f"k{index}": Row(f"p{index}", [float(index)]) for index in range(20)})
    made = loader(Tabled(20, lambda index: pack[f"k{index}"].box[0]), "fork", batch_size=5)
    assert torch.cat(list(made)).tolist() == list(range(20))


def test_records_of_the_main_programs_classes_are_sent_with_them(tmp_path: Path) -> None:
    """A process that did not run the main program reads them, if it is sent the pack by value."""
    source = """
    import cloudpickle, dataclasses, json, subprocess, sys

    @dataclasses.dataclass
    class Own:
        path: str

    pack = stoker.packed([Own(f"p{n}") for n in range(3)])
    assert pack[1] == Own("p1")
    program = "import pickle, sys, json; pack = pickle.load(sys.stdin.buffer);"
    program += "print(json.dumps([[type(each).__name__, each.path] for each in pack]))"
    sent = cloudpickle.dumps(pack)
    done = subprocess.run([sys.executable, "-c", program], input=sent, capture_output=True)
    say(done.stdout.decode().strip() or done.stderr.decode())

    first = Own
    @dataclasses.dataclass
    class Own:
        other: int
    say(f"{type(pack[0]) is first}")
    """
    code, lines, error = run(tmp_path, source)
    assert (code, error) == (0, "")
    assert json.loads(lines[0]) == [["Own", "p0"], ["Own", "p1"], ["Own", "p2"]]
    assert lines[1] == "True"
