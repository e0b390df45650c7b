"""Every script in ``examples/scripts`` runs under plain Python, offline, and leaves nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "scripts"
LOGS_OF_TORCHRUN = "torchelastic_"  # its own, left by every run of it
RANKS = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
PATIENCE_S = 240.0  # on a machine that has much else to do; alone it is some seconds
NO_ONE_LISTENS = "http://127.0.0.1:9"


@dataclass(frozen=True)
class Script:
    """How a script is run for a few seconds.

    Attributes:
        name: Its file, without ``.py``.
        last_line: A pattern of the last line that it prints.
        arguments: Small ones.
        starter: Arguments of Python that come before the file.
    """

    name: str
    last_line: str
    arguments: tuple[str, ...] = ()
    starter: tuple[str, ...] = ()

    def run(self, folder: Path, kept: Path) -> subprocess.CompletedProcess[str]:
        script = str(FOLDER / f"{self.name}.py")
        return subprocess.run(
            [sys.executable, *self.starter, script, *self.arguments],
            cwd=folder / "here",
            env=_environment(folder, kept),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=PATIENCE_S,
            check=False,
        )


SCRIPTS = (
    Script("plain_loop", r"Finished 1 epoch\(s\), final accuracy 0\.\d+", ("--limit", "320")),
    Script("no_guard", r"done after 60 steps, [\d.]+ seconds"),
    Script("notebook", r"best loss \d\.\d+"),
    Script("lightning_module", "trained for 50 steps"),
    Script("hf_trainer", r"eval accuracy: [01]\.\d+", ("--max_steps", "20")),
    Script("accelerate_loop", "training finished"),
    Script("torchrun_ddp", "all 2 ranks are done", ("--total_epochs", "1"), RANKS),
    Script("iterable_shards", "480 images seen", ("--shards", "3")),
    Script("gan", "GAN training done", ("--n_images", "320")),
    Script("validation", r"best IoU: 0\.\d+", ("--epochs", "1")),
)


def _environment(folder: Path, kept: Path) -> dict[str, str]:
    """No network, folders that can be looked at, and one thread: other tests have the CPUs."""
    places = {name: str(kept) for name in ("TMPDIR", "TEMP", "TMP", "HF_HOME")}
    # An empty folder that importing an optimizer makes is torch's, whatever the script does.
    places["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "torch")
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), NO_ONE_LISTENS)
    lower = {name.lower(): value for name, value in proxies.items()}
    settings = {"OMP_NUM_THREADS": "1", "PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return {**os.environ, **places, **offline, **proxies, **lower, **settings}


@pytest.mark.timeout(PATIENCE_S + 30)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_it_runs_and_leaves_nothing(script: Script, tmp_path: Path, short_path: Path) -> None:
    (tmp_path / "here").mkdir()
    before = {path.name for path in FOLDER.iterdir()}

    done = script.run(tmp_path, short_path)

    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert re.fullmatch(script.last_line, done.stdout.rstrip().splitlines()[-1])
    left = {path.name for folder in (tmp_path / "here", short_path) for path in folder.iterdir()}
    assert not [name for name in left if not name.startswith(LOGS_OF_TORCHRUN)]
    assert {path.name for path in FOLDER.iterdir()} == before


def test_every_script_is_run_and_listed() -> None:
    files = {path.stem for path in FOLDER.glob("*.py")}
    assert files == {script.name for script in SCRIPTS}
    listed = re.findall(r"^\| \[`(\w+)\.py`\]", (FOLDER / "README.md").read_text("utf-8"), re.M)
    assert set(listed) == files


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_it_knows_nothing_of_stoker(script: Script) -> None:
    assert "stoker" not in (FOLDER / f"{script.name}.py").read_text("utf-8").lower()
