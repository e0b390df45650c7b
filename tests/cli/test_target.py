"""Finding a loader by its name, in this process."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

from stoker.errors import TargetError
from stoker.tuning import target as targets


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


def load(target: str) -> object:
    place, name = targets.parse_target(target)
    return targets.make_loader(
        target, targets.find_name(target, targets.import_place(target, place), name)
    )


def refused(target: str) -> TargetError:
    with pytest.raises(TargetError) as raised:
        load(target)
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
    assert targets.parse_target(target) == parts


@pytest.mark.parametrize("target", ["", "a.py", "a.py:", ":loader", "a.py:2x", "a.py:x..y", ":"])
def test_a_target_without_its_parts_is_refused_with_the_form(target: str) -> None:
    with pytest.raises(TargetError, match=r"path/file\.py:NAME"):
        targets.parse_target(target)


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
        ("here.py:dataset", "wrap the data set in a DataLoader"),
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
    assert targets.summary_of(error) == line
