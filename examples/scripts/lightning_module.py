"""Lightning version of the Fashion-MNIST classifier.

python lightning_module.py
python lightning_module.py --max_epochs 20 --batch_size 128
"""

from __future__ import annotations

import gzip
from argparse import ArgumentParser
from pathlib import Path

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

DATA_DIR = Path(__file__).resolve().parents[1] / "data" / "fashion-mnist"


class FashionMNIST(Dataset):
    def __init__(self, data_dir: str | Path):
        with gzip.open(Path(data_dir) / "t10k-images-idx3-ubyte.gz", "rb") as f:
            images = np.frombuffer(f.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28).copy()
        # small enough to keep all of it as floats
        self.images = (torch.from_numpy(images).float().div(255) - 0.286) / 0.353
        with gzip.open(Path(data_dir) / "t10k-labels-idx1-ubyte.gz", "rb") as f:
            self.labels = np.frombuffer(f.read(), np.uint8, offset=8).astype(np.int64)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


class FashionDataModule(L.LightningDataModule):
    def __init__(self, data_dir=DATA_DIR, batch_size=64, num_workers=2):
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage=None):
        full = FashionMNIST(self.hparams.data_dir)
        full, _ = random_split(full, [3520, len(full) - 3520])
        self.train_set, self.val_set = random_split(full, [3200, 320])

    def train_dataloader(self):
        return DataLoader(
            self.train_set,
            batch_size=self.hparams.batch_size,
            shuffle=True,
            num_workers=self.hparams.num_workers,
            persistent_workers=self.hparams.num_workers > 0,
        )

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=self.hparams.batch_size)


class LitClassifier(L.LightningModule):
    def __init__(self, width=16, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, width * 2, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(width * 2 * 7 * 7, 10),
        )

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        acc = (self(x).argmax(1) == y).float().mean()
        self.log("val_acc", acc, batch_size=len(y))

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            print(
                f"epoch {self.current_epoch}: val_acc={self.trainer.callback_metrics['val_acc']:.3f}"
            )

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


def cli_main():
    parser = ArgumentParser()
    parser.add_argument("--max_epochs", type=int, default=1)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--num_workers", type=int, default=2)
    args = parser.parse_args()

    L.seed_everything(1234)
    dm = FashionDataModule(batch_size=args.batch_size, num_workers=args.num_workers)
    model = LitClassifier()
    trainer = L.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=args.max_epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, datamodule=dm)
    print(f"trained for {trainer.global_step} steps")


if __name__ == "__main__":
    cli_main()
