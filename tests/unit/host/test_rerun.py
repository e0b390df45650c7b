"""Whether workers that are started afresh would run the program again."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stoker.host.rerun import would_run_again

ASKS = "from stoker.host.rerun import would_run_again as asked\n"
AGAIN = {
    "at the top": "print(asked())",
    "in a function called at the top": "def main():\n    print(asked())\nmain()",
    "in a loop": "for _ in range(1):\n    print(asked())",
    "beside a guard": "if __name__ == '__main__':\n    pass\nprint(asked())",
    "below another question": "import os\nif os.name:\n    print(asked())",
    "in a thread": (
        "import threading\nthread = threading.Thread(target=lambda: print(asked()))\n"
        "thread.start()\nthread.join()"
    ),
}
ONCE = {
    "below the guard": "if __name__ == '__main__':\n    print(asked())",
    "in a function called there": (
        "def main():\n    print(asked())\nif __name__ == '__main__':\n    main()"
    ),
    "the other way round": "if '__main__' == __name__:\n    print(asked())",
    "below a guard in a block": "try:\n    if __name__ == '__main__':\n        print(asked())\n"
    "finally:\n    pass",
    "in a handler": "try:\n    raise OSError\nexcept OSError:\n    if __name__ == '__main__':\n"
    "        print(asked())",
    "below one that leaves": (
        "import sys\nif __name__ != '__main__':\n    sys.exit()\nprint(asked())"
    ),
    "below the other branch": "if __name__ != '__main__':\n    pass\nelse:\n    print(asked())",
    "below a question of the process": (
        "import multiprocessing\nif multiprocessing.parent_process() is None:\n    print(asked())"
    ),
}


def told(folder: Path, *how: str) -> str:
    run = subprocess.run([sys.executable, *how], cwd=folder, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


@pytest.mark.parametrize("body", AGAIN.values(), ids=AGAIN)
def test_a_program_without_a_guard_would(tmp_path: Path, body: str) -> None:
    (tmp_path / "program.py").write_text(ASKS + body + "\n")
    assert told(tmp_path, "program.py") == "True"


@pytest.mark.parametrize("body", ONCE.values(), ids=ONCE)
def test_a_guarded_one_would_not(tmp_path: Path, body: str) -> None:
    (tmp_path / "program.py").write_text(ASKS + body + "\n")
    assert told(tmp_path, "program.py") == "False"


def test_a_module_that_is_run_is_a_program_too(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(ASKS + AGAIN["at the top"])
    assert told(tmp_path, "-m", "program") == "True"


def test_a_command_is_imported_by_nobody(tmp_path: Path) -> None:
    assert told(tmp_path, "-c", ASKS + AGAIN["at the top"]) == "False"


def test_a_program_whose_source_is_gone_is_trusted(tmp_path: Path) -> None:
    source = "import os\nos.remove('program.py')\n" + ASKS + "print(asked())\n"
    (tmp_path / "program.py").write_text(source)
    assert told(tmp_path, "program.py") == "False"


def test_these_tests_themselves_would_not() -> None:
    assert not would_run_again()
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(would_run_again()))
    thread.start()
    thread.join()
    assert found == [False]
