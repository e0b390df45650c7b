from __future__ import annotations

import pytest

from stoker.watch.places import Place, Places
from tests.watch.stacks import (
    COLLATE,
    COLLATING,
    FETCH,
    FETCHING,
    JSON,
    MAKING,
    PIL,
    READING,
    TORCH_DATASET,
    TORCH_NN,
    WORKER,
    stack,
)

TRAIN, DATA = "/home/ada/train.py", "/home/ada/pictures.py"
LOOP = (TRAIN, 40, "main")
FETCHER = (FETCH, FETCHING, "_MapDatasetFetcher.fetch")


def test_the_users_innermost_line_and_the_deepest_function_of_a_library() -> None:
    found = Places().place(
        stack(
            LOOP,
            FETCHER,
            (TORCH_DATASET, 400, "Subset.__getitem__"),
            (DATA, 10, "Pictures.__getitem__"),
            (DATA, 22, "Pictures.read"),
            (PIL, 2300, "Image.resize"),
            (PIL, 1100, "Image.im"),
            (JSON, 5, "property"),
        )
    )
    assert found == Place(DATA, 22, "Pictures.read", "PIL.Image.Image.im", False)


def test_a_line_that_does_the_work_itself_calls_nothing() -> None:
    found = Places().place(stack(LOOP, FETCHER, (DATA, 22, "Pictures.read")))
    assert found == Place(DATA, 22, "Pictures.read", "", False)


@pytest.mark.parametrize(
    ("below", "callee"),
    [
        ((JSON, 340, "JSONDecoder.decode"), "json.decoder.JSONDecoder.decode"),
        ((TORCH_NN, 4000, "interpolate"), "torch.nn.functional.interpolate"),
    ],
)
def test_the_standard_library_and_torch_are_named_where_they_are_called(
    below: tuple[str, int, str], callee: str
) -> None:
    found = Places().place(stack(FETCHER, (DATA, 3, "read"), below))
    assert found == Place(DATA, 3, "read", callee, False)


def test_the_training_loop_is_not_loading_code() -> None:
    found = Places().place(stack(LOOP, FETCHER, (PIL, 7, "Folder.__getitem__"), (JSON, 8, "x")))
    assert found is not None
    assert (found.file, found.line, found.callee) == (PIL, 7, "json.decoder.x")


def test_a_data_set_of_torchs_own_is_told_by_what_the_fetcher_called() -> None:
    rows = (TORCH_DATASET, 205, "TensorDataset.__getitem__")
    found = Places().place(stack(LOOP, FETCHER, rows, (TORCH_NN, 9, "index")))
    assert found is not None
    assert (found.file, found.line) == (TORCH_DATASET, 205)


def test_the_loaders_own_work_is_no_place() -> None:
    assert Places().place(stack(LOOP, FETCHER)) == Place("", 0, "", "", False)


def test_a_worker_that_waits_for_work_is_at_no_place() -> None:
    waiting = stack(LOOP, (WORKER, 340, "_worker_loop"), (JSON, 415, "select"))
    assert Places().place(waiting) == Place("", 0, "", "", False)


def test_a_stack_without_a_loader_is_none() -> None:
    assert Places().place(stack(LOOP, (DATA, 3, "read"))) is None


def test_where_the_collate_function_runs() -> None:
    fetcher = (FETCH, COLLATING, "_MapDatasetFetcher.fetch")
    users = Places().place(stack(LOOP, fetcher, (DATA, 90, "pad")))
    stock = Places().place(
        stack(fetcher, (COLLATE, 380, "default_collate"), (COLLATE, 200, "collate"))
    )
    assert users == Place(DATA, 90, "pad", "", True)
    assert stock is not None
    assert (stock.function, stock.line, stock.collating) == ("default_collate", 380, True)


def test_stokers_own_loader_is_a_loader_too() -> None:
    found = Places().place(
        stack(LOOP, (MAKING, READING, "MapMaker._one_by_one"), (DATA, 3, "read"))
    )
    assert found == Place(DATA, 3, "read", "", False)


def test_what_is_nested_in_a_function_counts_as_the_function() -> None:
    found = Places().place(stack(FETCHER, (DATA, 5, "Rows.__getitem__.<locals>.<listcomp>")))
    assert found is not None
    assert found.function == "Rows.__getitem__"


def test_a_very_deep_recursion_still_has_its_line() -> None:
    deep = [(DATA, 4, "walk")] * 500
    assert Places().place(stack(FETCHER, *deep)) == Place(DATA, 4, "walk", "", False)


def test_whose_files_are_whose() -> None:
    places = Places()
    assert places.owner("/home/ada/project/.venv/lib/python3.11/site-packages/a.py") == "library"
    assert places.owner("/usr/lib/python3/dist-packages/a.py") == "library"
    assert places.owner("<frozen importlib._bootstrap>") == "standard"
    assert places.owner("/home/ada/torch/data.py") == "user"
    assert places.owner("/tmp/ipykernel_1/17.py") == "user"
    assert places.owner("<string>") == "user"


def test_files_that_it_keeps_are_bounded() -> None:
    places = Places()
    for at in range(5000):
        places.owner(f"/tmp/cell_{at}.py")
    assert len(places._owners) <= 2000
