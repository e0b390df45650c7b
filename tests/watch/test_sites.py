from __future__ import annotations

import sys
import textwrap
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stoker.tuning.answer import Site
from stoker.watch.sites import UNKNOWN, Sites, site_of_caller


def run_as(file: str, name: str, source: str, **names: Any) -> dict[str, Any]:
    """Runs code as if it were in a file; returns its globals."""
    scope = {"__name__": name, **names}
    exec(compile(textwrap.dedent(source), file, "exec"), scope)
    return scope


def test_it_is_the_line_that_calls() -> None:
    site = site_of_caller()  # this line
    assert site.file == __file__
    assert site.function == "test_it_is_the_line_that_calls"
    assert site.code == "site = site_of_caller()  # this line"
    assert site.library == ""


def test_a_library_between_is_named() -> None:
    library = run_as(
        "/venv/lib/python3.11/site-packages/transformers/trainer.py",
        "transformers.trainer",
        "def train(make): return make()",
    )
    through_torch = run_as(
        "/venv/lib/python3.11/site-packages/torch/nn.py", "torch.nn", "def call(it): return it()"
    )
    site = library["train"](partial(through_torch["call"], site_of_caller))
    assert site.library == "transformers"
    assert site.file == __file__
    assert through_torch["call"](site_of_caller).library == ""


def test_lightnings_wrapper_of_a_constructor_is_no_library_that_makes_it() -> None:
    wrapped = run_as(
        "/venv/lib/python3.11/site-packages/lightning/fabric/utilities/data.py",
        "lightning.fabric.utilities.data",
        "def wrapper(make): return make()",
    )
    assert wrapped["wrapper"](site_of_caller).library == ""


def test_constructors_of_the_loader_are_passed_over() -> None:
    class Own:
        def __init__(self) -> None:
            self.site = site_of_caller(self)

    class Derived(Own):
        def __init__(self) -> None:
            super().__init__()

    line = sys._getframe().f_lineno + 1
    assert Derived().site.line == line


def test_an_installed_program_is_the_users_where_it_is_main() -> None:
    file = "/venv/lib/python3.11/site-packages/recipes/train.py"
    found = run_as(file, "__main__", "site = make()", make=site_of_caller)["site"]
    assert (found.file, found.line, found.library) == (file, 1, "")


def test_nothing_but_libraries_gives_the_librarys_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.watch.sites._kind", lambda frame: "accelerate")
    assert site_of_caller().library == "accelerate"
    monkeypatch.setattr("stoker.watch.sites._kind", lambda frame: "inner")
    assert site_of_caller() is UNKNOWN


class Data:
    pass


class Loader:
    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset


def made_by(library: str, sites: Sites, dataset: Any) -> Site:
    file = f"/venv/lib/python3.11/site-packages/{library}/data.py"
    scope = run_as(file, library, "def make(sites, data): return sites.site(data)")
    site: Site = scope["make"](sites, dataset)
    return site


@pytest.mark.parametrize("dataset", [Data(), [1, 2, 3]], ids=["object", "list"])
def test_what_a_library_makes_anew_has_the_line_of_the_first(dataset: Any) -> None:
    sites = Sites()
    original = sites.site(dataset)
    loader = Loader(dataset)
    sites.remember(dataset, loader, original, told=4)
    assert made_by("accelerate", sites, dataset) == original
    assert sites.told(dataset) == 4
    if not isinstance(dataset, list):
        assert made_by("accelerate", sites, Loader(dataset)) == original  # the library wraps it
    assert made_by("accelerate", sites, Data()).library == "accelerate"
    assert sites.site(dataset).line != original.line  # the user's own line is its own


def test_a_data_set_that_is_gone_is_forgotten_and_memory_is_bounded() -> None:
    sites = Sites(most=3)
    site = Site("f.py", 1, "<module>", "")
    first = Data()
    sites.remember(first, Loader(first), site)
    number = id(first)
    del first
    assert sites._origins[number][0]() is None
    kept = [Data() for _ in range(10)]
    for each in kept:
        sites.remember(each, Loader(each), site)
    assert len(sites._origins) == 3


def test_it_is_cheap_and_needs_no_file() -> None:
    found = run_as("<ipython-input-3>", "notebook", "site = make()", make=site_of_caller)["site"]
    assert (found.file, found.code) == ("<ipython-input-3>", "")
    assert not Path(found.file).exists()
