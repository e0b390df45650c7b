"""Further public cases, as ``stoker tune`` answers them: libraries' loaders, and a pattern."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases.tuning import Told, tune
from tests.measured import measures

pytestmark = [
    pytest.mark.timeout(240),  # importing these libraries takes long on a busy machine
    measures,
]


def is_told_of_its_own_loader(told: Told, own: int) -> None:
    """The loader that the library really uses; and that its number has an effect."""
    assert told.code == 0, told.error
    answer = told.only
    assert answer["loader"]["num_workers"] == own
    assert answer["advice"]["num_workers"] >= 2
    assert answer["advice"]["gain"] > 1.5
    now = f"Now, with {own} worker{'' if own == 1 else 's'}: "
    assert now in told.out
    assert f"num_workers={own})" in told.out  # "(now ...num_workers=0)"


@pytest.mark.parametrize("own", [0, 1])
def test_c181_the_loader_of_the_trainer_is_reported(own: int, tmp_path: Path) -> None:
    """Its default starves the model; and a number given to it has an effect, and is seen."""
    pytest.importorskip("transformers")
    given = f", dataloader_num_workers={own}" if own else ""
    body = f"""
from torch import nn
from transformers import Trainer, TrainingArguments
class Rows(Sleeping):
    def __getitem__(self, index):
        return {{"x": super().__getitem__(index), "labels": torch.zeros(1)}}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(4, 1)
    def forward(self, x, labels):
        time.sleep(0.02)
        out = self.line(x)
        return {{"loss": ((out - labels) ** 2).mean(), "logits": out}}
if __name__ == "__main__":
    arguments = TrainingArguments(
        "out", max_steps=3000, save_strategy="no", report_to="none", use_cpu=True,
        disable_tqdm=True, per_device_train_batch_size=4{given}
    )
    Trainer(Model(), arguments, train_dataset=Rows(4000, 0.02)).train()
"""
    told = tune(tmp_path, body, seconds=12)
    is_told_of_its_own_loader(told, own)
    answer = told.only
    assert answer["site"]["library"] == "transformers"
    assert answer["site"]["code"].startswith("Trainer(Model(), arguments")
    count = answer["advice"]["num_workers"]
    assert answer["change"]["text"].startswith(f"TrainingArguments(dataloader_num_workers={count}")
    assert f"dataloader_num_workers={count}" in answer["change"]["after"]
    assert "(through transformers)" in told.out


def test_c181_the_same_through_accelerate(tmp_path: Path) -> None:
    """It makes a loader of its own from the user's: the user's line is named."""
    pytest.importorskip("accelerate")
    body = """
from accelerate import Accelerator
if __name__ == "__main__":
    accelerator = Accelerator(cpu=True)
    loader = DataLoader(Sleeping(4000, 0.02), batch_size=4, shuffle=True)
    for batch in accelerator.prepare(loader):
        time.sleep(0.02)
"""
    told = tune(tmp_path, body, seconds=10)
    is_told_of_its_own_loader(told, 0)
    answer = told.only
    assert answer["site"]["code"].startswith("loader = DataLoader(Sleeping")
    assert f"num_workers={answer['advice']['num_workers']})" in answer["change"]["after"]


def test_c181_the_same_through_lightning(tmp_path: Path) -> None:
    """It makes the user's loader again with another sampler."""
    pytest.importorskip("lightning")
    body = """
import lightning as L
from torch import nn
class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(4, 1)
    def training_step(self, batch, index):
        time.sleep(0.02)
        return self.line(batch).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
    def train_dataloader(self):
        return DataLoader(Sleeping(4000, 0.02), batch_size=4, shuffle=True)
if __name__ == "__main__":
    L.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    ).fit(Model())
"""
    told = tune(tmp_path, body, seconds=10)
    is_told_of_its_own_loader(told, 0)
    answer = told.only
    assert answer["site"]["code"].startswith("return DataLoader(Sleeping")
    assert f"num_workers={answer['advice']['num_workers']})" in answer["change"]["after"]


def test_c184_slow_every_nth_batch_is_named_with_the_histogram(tmp_path: Path) -> None:
    """4 workers that finish together, every 150 ms, and a model that takes nothing."""
    body = """
class Together(Sleeping):
    def __getitem__(self, index):
        time.sleep(self.sample_s - time.monotonic() % self.sample_s)
        return torch.zeros(4)
if __name__ == "__main__":
    for batch in DataLoader(Together(4000, 0.15), num_workers=4, prefetch_factor=1):
        pass
"""
    told = tune(tmp_path, body, "--workers", "4", seconds=12)
    answer = told.only
    [remark] = [each for each in answer["remarks"] if "slow every" in each]
    assert remark.startswith("slow every 4th batch with 4 workers: ")
    assert " batches after the one before" in remark
    assert "since the workers finish together" in remark
    assert "Loading is the bottleneck" in remark
    assert f"Also: {remark}" in told.out
    counted = sum(count for _, count in answer["waits"])
    assert counted >= 32
    long = sum(count for upper, count in answer["waits"] if upper is None or upper > 0.03)
    assert 0.15 < long / counted < 0.4


def test_c184_it_is_not_named_where_the_step_is_the_bottleneck(tmp_path: Path) -> None:
    body = """
if __name__ == "__main__":
    for batch in DataLoader(Sleeping(4000, 0.01), num_workers=4):
        time.sleep(0.05)
"""
    told = tune(tmp_path, body, "--workers", "4", seconds=8)
    answer = told.only
    assert answer["waiting"] < 0.3
    assert not [each for each in answer["remarks"] if "slow every" in each]
