"""A fresh worker begins in the state that its program has; all of it is told by one program."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.programs.program import run

PROGRAM = """
import decimal, json, locale, logging, psutil, socket, multiprocessing, os, sys, warnings
import numpy, torch
from torch.utils.data import Dataset
from stoker import DataLoader
from stoker.workers import fresh

class Own(UserWarning):
    pass

def late():
    import jinja2.defaults
    return jinja2.defaults.BLOCK_START_STRING

def state():
    filters = [(action, getattr(text, "pattern", text), kind.__name__,
                getattr(module, "pattern", module), line)
               for action, text, kind, module, line in warnings.filters]
    levels = {n: logging.getLogger(n).level for n in ("root", "of.program", "of.library")}
    umask = os.umask(0)
    os.umask(umask)
    flags = {n: getattr(sys.flags, n) for n in dir(sys.flags) if n[0].islower()}
    del flags["hash_randomization"], flags["count"], flags["index"]
    return {
        "sys.path": list(sys.path),
        "sys.argv": list(sys.argv),
        # Workers of every kind are told to have one thread a library; KMP_ is torch's own.
        "environment": {k: v for k, v in os.environ.items()
                        if "THREADS" not in k and k[:4] not in ("KMP_", "TOKE")},
        "working directory": os.getcwd(),
        "umask": umask,
        "authentication key": multiprocessing.current_process().authkey.hex(),
        "warning filters": filters,
        "levels of loggers": levels,
        "logging.disable": logging.root.manager.disable,
        "locale": locale.setlocale(locale.LC_ALL),
        "digits of an int": sys.get_int_max_str_digits(),
        "recursion limit": sys.getrecursionlimit(),
        "flags": flags,
        "-X": dict(sys._xoptions),
        "-W": sys.warnoptions,
        "interpreter": sys.executable,
        "dtype": str(torch.get_default_dtype()),
        "gradient mode": torch.is_grad_enabled(),
        "determinism": [torch.are_deterministic_algorithms_enabled(),
                        torch.is_deterministic_algorithms_warn_only_enabled()],
        "precision": torch.get_float32_matmul_precision(),
        "sharing strategy": torch.multiprocessing.get_sharing_strategy(),
        "numpy's errors": numpy.geterr(),
        "decimal": decimal.getcontext().prec,
        "socket": socket.getdefaulttimeout(),
        "names of levels": logging.getLevelName(7),
        "numpy's printing": repr(numpy.array([1 / 3])),
        "torch's printing": repr(torch.tensor([1 / 3])),
        "constant of a package": psutil.AF_LINK,
        "constant of one imported late": late(),
    }

class Data(Dataset):
    def __len__(self):
        return 1
    def __getitem__(self, index):
        warnings.warn("of the main module", Own)
        return state()

began = state()
os.mkdir("elsewhere")
os.chdir("elsewhere")
sys.path.append("of the program")
sys.argv.append("of the program")
os.environ["OF_THE_PROGRAM"] = "set"
os.environ["PYTHONHASHSEED"] = "7"
os.umask(0o027)
multiprocessing.current_process().authkey = b"of the program"
warnings.filterwarnings("error", "of the program", RuntimeWarning, "here", 7)
warnings.simplefilter("ignore", Own)
warnings.simplefilter("ignore", numpy.exceptions.ComplexWarning)
logging.getLogger().setLevel("ERROR")
logging.getLogger("of.program").setLevel("DEBUG")
logging.disable(5)
locale.setlocale(locale.LC_ALL, "C.UTF-8")
sys.setrecursionlimit(1234)
sys.set_int_max_str_digits(5000)
torch.set_default_dtype(torch.float64)
torch.set_grad_enabled(False)
torch.use_deterministic_algorithms(True, warn_only=True)
torch.set_float32_matmul_precision("medium")
torch.multiprocessing.set_sharing_strategy("file_system")
numpy.seterr(divide="raise", over="ignore")
decimal.getcontext().prec = 7
socket.setdefaulttimeout(77)
logging.addLevelName(7, "OF THE PROGRAM")
numpy.set_printoptions(precision=3)
torch.set_printoptions(precision=2)
psutil.AF_LINK = 1234
import jinja2.defaults
jinja2.defaults.BLOCK_START_STRING = "<%"

told = {"here": state(), "before": began}
loader = DataLoader(Data(), None, num_workers=1, worker_method="fresh")
[told["of a template"]] = loader
fresh.has_templates = lambda: False
[told["alone"]] = loader
print(json.dumps(told))
"""

# What the program does not change is told by the command line, or is that of any program.
_UNCHANGED = {"flags", "-X", "-W", "interpreter"}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("state")
    (folder / "program.py").write_text(PROGRAM)
    words = ["-b", "-B", "-X", "utf8", "-X", "of_the_user=1", "-W", "ignore:no such"]
    ended = run([*words, "program.py", "an argument"], folder)
    told: dict[str, dict[str, Any]] = json.loads(ended.stdout)
    return told


@pytest.mark.parametrize("how", ["of a template", "alone"])
def test_a_worker_begins_with_what_its_program_has_set(
    told: dict[str, dict[str, Any]], how: str
) -> None:
    for state in told.values():
        state.update((f"variable {name}", value) for name, value in state["environment"].items())
    here = told["here"]
    unchanged = {name for name in here if told["before"].get(name) == here[name]}
    assert {name for name in unchanged if "variable" not in name} <= _UNCHANGED
    assert here["flags"]["bytes_warning"] == here["flags"]["dont_write_bytecode"] == 1
    there = told[how]
    both = here.keys() | there.keys()
    differing = {n: (there.get(n), here.get(n)) for n in both if there.get(n) != here.get(n)}
    differing.pop("environment", None)  # Its variables tell which.
    assert differing == {}
