"""A data set has the same digest in every process, whoever imports its file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import stoker

SCRIPT = """
import enum, functools, pathlib, sys
import torch
from torch.utils.data import DataLoader, Dataset, Subset

class Mode(enum.Enum):
    TRAIN = "train"

class Crop:
    def __init__(self, size): self.size = size
    def __call__(self, sample): return sample

class Files(Dataset):
    kind = {"a", "b", "c"}
    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.names = [f"{n}.jpg" for n in range(1000)]
        self.transforms = [Crop((32, 24)), functools.partial(torch.mul, other=2.0)]
        self.mode, self.words = Mode.TRAIN, {"x", "y", "z"}
        self.hashes = [hash(name) for name in self.names]
        self.mean = torch.rand(3)
    def __len__(self): return len(self.names)
    def __getitem__(self, index): return index if index in {1, 2, 3} else -index

def collate(samples, keep=("x",)):
    return [sample for sample in samples]

def made():
    split = torch.utils.data.random_split(Files("/data"), [900, 100])[0]
    return DataLoader(split, batch_size=8, collate_fn=collate)

if __name__ == "__main__":
    from stoker.tuning.fingerprint import fingerprint
    print(fingerprint(made()))
"""


def printed(folder: Path, *command: str, seed: str = "0") -> str:
    environ = {**os.environ, "PYTHONHASHSEED": seed}
    environ["PYTHONPATH"] = os.pathsep.join((str(Path(stoker.__file__).parents[1]), str(folder)))
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env=environ,
    )
    return done.stdout.strip()


def test_other_processes_say_the_same_whoever_imports_it(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    found = [printed(tmp_path, "script.py", seed="1")]
    found.append(printed(tmp_path, str(tmp_path / "script.py"), seed="2"))
    imported = "import script; from stoker.tuning.fingerprint import fingerprint as f; "
    found.append(printed(tmp_path, "-c", imported + "print(f(script.made()))", seed="3"))
    found.append(printed(tmp_path, "-m", "script"))
    assert len(set(found)) == 1
    assert len(found[0]) == 24
