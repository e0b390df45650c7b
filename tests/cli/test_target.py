"""Finding a loader by its name, in this process."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from stoker.errors import TargetError
from stoker.tuning.loading import Step
from stoker.tuning.named import STEP, named, parse, summary_of
from stoker.tuning.target import make_loader


@pytest.fixture(autouse=True)
def interpreter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Loading changes the import system's state: it is put back."""
    modules = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["stoker"])
    monkeypatch.chdir(tmp_path)
    yield
    for name in set(sys.modules) - modules:
        del sys.modules[name]


LOADER = "import torch\nfrom torch.utils.data import DataLoader, TensorDataset\n"
LOADER += "loader = DataLoader(TensorDataset(torch.zeros(4)))\n"


def load(target: str, batch_size: int | None = None) -> Any:
    return make_loader(target, named(target), batch_size=batch_size)


def refused(target: str, batch_size: int | None = None) -> TargetError:
    with pytest.raises(TargetError) as raised:
        load(target, batch_size)
    return raised.value


def write(name: str, text: str = "") -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(LOADER + text)


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        ("a/b.py:loader", ("a/b.py", "loader")),
        ("a.b:make.inner", ("a.b", "make.inner")),
        ("C:\\data\\b.py:loader", ("C:\\data\\b.py", "loader")),
    ],
)
def test_parts(target: str, parts: tuple[str, str]) -> None:
    assert parse(target) == parts


@pytest.mark.parametrize("target", ["", "a.py", "a.py:", ":loader", "a.py:2x", "a.py:x..y", ":"])
def test_a_target_without_its_parts_is_refused_with_the_form(target: str) -> None:
    with pytest.raises(TargetError, match=r"path/file\.py:NAME"):
        parse(target)


def test_a_file_finds_its_neighbours_and_is_not_main() -> None:
    write("folder/beside.py")
    write("folder/here.py", "from beside import loader as other\nassert __name__ == 'here'\n")
    assert isinstance(load("folder/here.py:other"), DataLoader)
    assert sys.path[0] == str(Path("folder").resolve())
    assert sys.argv == ["folder/here.py"]


def test_a_module_is_found_from_the_working_folder() -> None:
    write("package/inner.py")
    assert isinstance(load("package.inner:loader"), DataLoader)


def test_a_file_named_like_a_loaded_module_does_not_replace_it() -> None:
    json = sys.modules["json"]
    write("json.py")
    assert isinstance(load("json.py:loader"), DataLoader)
    assert sys.modules["json"] is json


def test_a_file_with_a_name_that_is_no_identifier() -> None:
    write("my-data.py")
    assert isinstance(load("my-data.py:loader"), DataLoader)


def test_dotted_names_and_functions() -> None:
    write("here.py", "class Data:\n    train = loader\n    make = staticmethod(lambda: loader)\n")
    assert isinstance(load("here.py:Data.train"), DataLoader)
    assert isinstance(load("here.py:Data.make"), DataLoader)


def test_a_function_is_called_once() -> None:
    write("here.py", "calls = []\ndef make():\n    calls.append(1)\n    return loader\n")
    load("here.py:make")
    assert sys.modules["here"].calls == [1]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("hera.py:loader", "did you mean 'here.py'?"),
        ("her:loader", "There is no module 'her'."),
        ("here/there.py:loader", "does not exist"),
        ("folder/:loader", "is a folder"),
        ("text.txt:loader", "There is no module"),
        ("./text.txt:loader", "is not a Python file"),
        ("here.py:loadre", "did you mean 'loader'?"),
        ("here.py:qqq", "the loaders there are: loader"),
        ("here.py:Data.qqq", "There is no 'qqq' in 'Data'"),
        ("here.py:number", "is not a DataLoader: it is of type int"),
        ("here.py:gives_a_list", "what it returned is of type list"),
        ("here.py:wants", "it wants a, c"),
        ("here.py:raises", "raised KeyError: 'lost'"),
        ("here.py:exits", "raised SystemExit"),
        ("here.py:DataLoader", "it wants dataset"),
    ],
)
def test_refused(target: str, said: str) -> None:
    write(
        "here.py",
        """
import sys
dataset = loader.dataset
number = 7
class Data:
    pass
def gives_a_list():
    return [loader]
def wants(a, b=1, *more, c):
    pass
def raises():
    raise KeyError("lost")
def exits():
    sys.exit(3)
""",
    )
    Path("folder").mkdir()
    Path("text.txt").write_text("")
    assert said in str(refused(target))


DATA = """
from torch.utils.data import Dataset
class Data(Dataset):
    def __init__(self, length):
        self.length = length
    def __len__(self):
        return self.length
    def __getitem__(self, index):
        return index
class Endless(Dataset):
    def __getitem__(self, index):
        return index
class Unsure(Data):
    def __len__(self):
        raise KeyError("folder")
dataset, empty, endless, unsure = Data(70), Data(0), Endless(), Unsure(3)
def makes_empty():
    return empty
"""


@pytest.mark.parametrize(("given", "is_now"), [(None, 32), (7, 7)])
def test_a_data_set_becomes_a_loader(given: int | None, is_now: int) -> None:
    write("here.py", DATA)
    assert load("here.py:dataset", given).batch_size == is_now


@pytest.mark.parametrize("target", ["here.py:loader", "here.py:makes"])
def test_a_batch_size_for_a_loader_is_refused(target: str) -> None:
    write("here.py", "def makes():\n    return loader\n")
    error = refused(target, 64)
    assert "a DataLoader with a batch size of its own, 1" in error.what
    assert "--batch-size 64" in error.what
    assert "a data set" in error.likely
    assert "leave out --batch-size" in error.change


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("empty", "The data set 'here.py:empty' is empty: its length is 0."),
        ("makes_empty", "is empty: its length is 0."),
        ("endless", "No DataLoader can be made of 'here.py:endless': TypeError"),
        ("unsure", "No DataLoader can be made of 'here.py:unsure': KeyError: 'folder'"),
    ],
)
def test_a_data_set_that_no_loader_can_be_made_of(name: str, said: str) -> None:
    write("here.py", DATA)
    error = refused(f"here.py:{name}")
    assert said in error.what
    assert all((error.doing, error.likely, error.change))


class TestStep:
    def refused(self, step: str) -> TargetError:
        with pytest.raises(TargetError) as raised:
            Step(step)
        assert "loader" not in str(raised.value).lower()
        assert f"loading the step '{step}' of --step" in raised.value.doing
        assert raised.value.change
        return raised.value

    @pytest.mark.parametrize(
        ("step", "said"),
        [
            ("here.py", "'here.py' does not name a step."),
            ("here.py:2x", "can't be the name of a step"),
            ("her.py:step", "did you mean 'here.py'?"),
            ("./absent/nowhere.py:step", "give --step path/file.py:NAME"),
            ("nowhere:step", "There is no module 'nowhere'."),
            ("here.py:stop", "did you mean 'step'?"),
            ("here.py:qqqqqq", "name a function that takes a batch"),
            ("here.py:number", "can't be called: it is of type int"),
            ("raises.py:step", "Importing it raised ZeroDivisionError"),
        ],
    )
    def test_what_is_wrong_is_told_of_the_step(self, step: str, said: str) -> None:
        Path("here.py").write_text("number = 3\ndef step(batch):\n    pass\n")
        Path("raises.py").write_text("1 / 0\n")
        assert said in str(self.refused(step))

    def test_a_file_that_is_the_target_too_is_run_once(self) -> None:
        write("my-data.py", "made = []\ndef step(batch):\n    made.append(batch)\n")
        load("my-data.py:loader")
        Step("my-data.py:step")("batch")
        assert named("my-data.py:made", STEP) == ["batch"]
        with pytest.raises(TargetError, match=r"no 'qqqqqq' in 'my-data\.py'"):
            Step("my-data.py:qqqqqq")

    def test_a_step_that_raises_is_told_from_reading(self) -> None:
        write("here.py", "def step(batch):\n    if batch:\n        raise KeyError(batch)\n")
        step = Step("here.py:step")
        step(0)
        assert step.doing("reading", 1) == "reading"
        with pytest.raises(KeyError):
            step(1)
        assert step.doing("reading", 2) == "calling the step 'here.py:step' of --step with batch 2"


def test_an_import_that_raises_keeps_the_users_exception_as_the_cause() -> None:
    write("here.py", "1 / 0\n")
    error = refused("here.py:loader")
    assert "Importing it raised ZeroDivisionError: division by zero" in str(error)
    assert isinstance(error.__cause__, ZeroDivisionError)


def test_a_module_that_lacks_another_one_is_not_called_missing() -> None:
    write("here.py", "import surely_not_installed\n")
    for target in ("here.py:loader", "here:loader"):
        assert "No module named 'surely_not_installed'" in str(refused(target))


def test_a_program_that_ends_when_imported() -> None:
    write("here.py", "import sys\nsys.exit(2)\n")
    assert "exit code 2" in str(refused("here.py:loader"))
    assert "__main__" in refused("here.py:loader").change


def test_a_file_with_a_syntax_error() -> None:
    write("here.py", "def broken(:\n")
    assert "SyntaxError" in str(refused("here.py:loader"))


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("bad\nmore"), "ValueError: bad"),
        (ValueError(), "ValueError."),
        (ValueError("Caught.\nOriginal Traceback (most\n  x\nKeyError: 7\n"), "KeyError: 7"),
    ],
)
def test_an_exception_on_one_line(error: Exception, line: str) -> None:
    assert summary_of(error) == line
