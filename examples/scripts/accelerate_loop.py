"""Tabular regression with accelerate. All rows are in memory.

python accelerate_loop.py
accelerate launch --cpu accelerate_loop.py --num_epochs 100
"""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def get_dataloader(rows, features, batch_size):
    x = torch.randn(rows, features)
    weights = torch.randn(features, 1)
    y = torch.tanh(x @ weights / features**0.5) + 0.1 * torch.randn(rows, 1)
    return DataLoader(TensorDataset(x, y), batch_size=batch_size, shuffle=True, drop_last=True)


def training_function(args):
    accelerator = Accelerator(cpu=True)
    set_seed(args.seed)
    train_dataloader = get_dataloader(args.rows, 32, args.batch_size)

    model = nn.Sequential(
        nn.Linear(32, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    lr_scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, T_max=len(train_dataloader) * args.num_epochs
    )
    model, optimizer, train_dataloader, lr_scheduler = accelerator.prepare(
        model, optimizer, train_dataloader, lr_scheduler
    )

    for epoch in range(args.num_epochs):
        model.train()
        total_loss = 0
        for x, y in train_dataloader:
            loss = nn.functional.mse_loss(model(x), y)
            total_loss += loss.detach().float()
            accelerator.backward(loss)
            optimizer.step()
            lr_scheduler.step()
            optimizer.zero_grad()
        accelerator.print(f"epoch {epoch}: loss {total_loss.item() / len(train_dataloader):.5f}")
    accelerator.end_training()
    accelerator.print("training finished")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num_epochs", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--rows", type=int, default=12800)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=42)
    training_function(parser.parse_args())


if __name__ == "__main__":
    main()
