"""What comes up with every Python of a watched program. No torch here but planted ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.watch.launch import INJECTED, _environment
from stoker.watch.settings import VARIABLE, Settings

SHOW = """
import json, os, sys
told = {
    "argv": sys.argv, "path": sys.path, "name": __name__, "file": globals().get("__file__"),
    "modules": sorted(sys.modules), "flags": str(sys.flags), "dont_write": sys.dont_write_bytecode,
}
print(json.dumps(told))
"""
TORCH = {
    "torch/__init__.py": "__version__ = '1.0'\nimport torch.utils.data",
    "torch/utils/__init__.py": "",
    "torch/utils/data/__init__.py": "class DataLoader: pass",
}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


class Python:
    """Runs Python with and without what is injected."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run_folder = folder / "run"
        self.run_folder.mkdir()

    def __call__(self, *words: str, watched: bool = True, path: str | None = None) -> str:
        # Coverage and the like may have put things on the path of these tests.
        environment = {**os.environ, "PYTHONPATH": path or ""}
        if watched:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("PYTHONPATH", path or "")
                environment = _environment(Settings("run", str(self.run_folder)))
        done = subprocess.run(
            [sys.executable, *words],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def failures(self) -> list[str]:
        return [each.read_text() for each in self.run_folder.glob("failed-*.txt")]


@pytest.fixture
def python(tmp_path: Path) -> Python:
    return Python(tmp_path)


@pytest.mark.parametrize("path", [None, "lib", f"{os.pathsep}lib"], ids=["unset", "one", "empty"])
def test_a_program_finds_everything_as_it_is(python: Python, path: str | None) -> None:
    write(python.folder, {"show.py": SHOW, "lib/show_module.py": SHOW})
    for words in (["show.py", "-x", "--help"], ["-m", "show"], ["-c", SHOW, "a"]):
        assert python(*words, path=path) == python(*words, path=path, watched=False)


def test_another_sitecustomize_still_runs(python: Python) -> None:
    write(
        python.folder,
        {
            "lib/sitecustomize.py": "import sys; sys.marked = __file__; name = __name__",
            "show.py": "import sys, sitecustomize as s; print(sys.marked, s.__file__, s.name)",
        },
    )
    told = python("show.py", path="lib")
    assert told == python("show.py", path="lib", watched=False)
    assert "lib" in told


def test_another_sitecustomize_that_fails_is_told_as_ever(python: Python) -> None:
    write(
        python.folder, {"lib/sitecustomize.py": "import not_there", "show.py": "print('went on')"}
    )
    told = python("show.py", path="lib")
    assert "not_there" in told
    assert told == python("show.py", path="lib", watched=False)


def test_pythons_that_are_started_by_it_get_it_too(python: Python) -> None:
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import torch'])"
    write(python.folder, {"lib/" + name: text for name, text in TORCH.items()})
    assert python("-c", child, path="lib") == ""
    assert len(python.failures()) == 1


def test_it_waits_until_torch_is_whole(python: Python) -> None:
    write(python.folder, {"lib/" + name: text for name, text in TORCH.items()})
    show = "import sys, torch; print('stoker.watch.inside' in sys.modules, torch.utils.data)"
    assert python("-c", show, path="lib").startswith("True <module 'torch.utils.data' from")
    (failure,) = python.failures()
    assert failure.startswith("PyTorch 1.0 is older than 2.8")


def test_a_torch_that_brings_its_loader_later_is_waited_for(python: Python) -> None:
    write(python.folder, {"lib/" + name: text for name, text in TORCH.items()})
    write(python.folder, {"lib/torch/__init__.py": "__version__ = '1.0'"})
    python("-c", "import torch", path="lib")
    assert python.failures() == []
    python("-c", "import torch; import torch.utils.data", path="lib")
    assert len(python.failures()) == 1


def test_torchs_own_failure_is_its_own_and_may_be_tried_again(python: Python) -> None:
    write(python.folder, {"lib/" + name: text for name, text in TORCH.items()})
    fails_once = (
        "import builtins, os\nif not hasattr(builtins, 'again'):\n"
        "    builtins.again = True\n    raise OSError('no CUDA')\n" + TORCH["torch/__init__.py"]
    )
    write(python.folder, {"lib/torch/__init__.py": fails_once})
    twice = "try:\n    import torch\nexcept OSError as e:\n    print(e)\nimport torch\n"
    assert python("-c", twice, path="lib") == "no CUDA\n"
    assert len(python.failures()) == 1


def test_it_leaves_no_trace_in_torch(python: Python) -> None:
    write(python.folder, {"lib/" + name: text for name, text in TORCH.items()})
    show = (
        "import torch, sys; print(torch.__spec__, torch.__loader__, vars(torch.__loader__), "
        "torch.utils.data.__spec__, [f for f in sys.meta_path if type(f) is not type])"
    )
    ours, plain = python("-c", show, path="lib"), python("-c", show, path="lib", watched=False)
    assert [part.split(" at 0x")[0] for part in ours.split("<")] == [
        part.split(" at 0x")[0] for part in plain.split("<")
    ]


def test_a_stoker_of_the_users_own_is_not_hidden(python: Python) -> None:
    write(python.folder, {"lib/" + name: text for name, text in TORCH.items()})
    write(
        python.folder,
        {"stoker.py": "mine = True", "go.py": "import torch, stoker; print(stoker.mine)"},
    )
    assert python("go.py", path="lib") == "True\n"
    assert "stoker" in python.failures()[0]


def test_helpers_of_multiprocessing_are_left_alone(python: Python) -> None:
    show = "import sys; print(sys.meta_path[0])"
    assert "_Waiting" in python("-c", show)
    for module in (
        "multiprocessing.resource_tracker",
        "joblib.externals.loky.backend.resource_tracker",
    ):
        assert "_Waiting" not in python("-c", f"{show}  # from {module} import main")


def test_what_cannot_be_told_does_not_matter(python: Python) -> None:
    write(python.folder, {"lib/" + name: text for name, text in TORCH.items()})
    show = f"import os; os.environ['{VARIABLE}'] = '!'; import torch; print('went on')"
    assert python("-c", show, path="lib") == "went on\n"


def test_it_imports_nothing(python: Python) -> None:
    show = "import sys; print(*sorted(sys.modules))"
    assert python("-c", show) == python("-c", show, watched=False)
    assert Path(INJECTED, "sitecustomize.py").is_file()
