"""Conditional GAN on Fashion-MNIST. Two loaders: real images, and (noise, class) pairs.

python gan.py
python gan.py --n_epochs 40
"""

import argparse
import gzip
import os

import numpy as np
import torch
import torch.nn as nn
from PIL import Image
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--n_epochs", type=int, default=1, help="number of epochs of training")
parser.add_argument("--batch_size", type=int, default=32, help="size of the batches")
parser.add_argument("--lr", type=float, default=0.0002, help="adam: learning rate")
parser.add_argument("--latent_dim", type=int, default=64, help="dimensionality of the latent space")
parser.add_argument("--n_images", type=int, default=1280)
parser.add_argument("--n_cpu", type=int, default=0, help="cpu threads for batch generation")
opt = parser.parse_args()

here = os.path.dirname(os.path.abspath(__file__))
root = os.path.join(here, "..", "data", "fashion-mnist")


class RealImages(Dataset):
    def __init__(self):
        with gzip.open(os.path.join(root, "t10k-images-idx3-ubyte.gz")) as f:
            self.images = np.frombuffer(f.read(), np.uint8, offset=16).reshape(-1, 28, 28)
        with gzip.open(os.path.join(root, "t10k-labels-idx1-ubyte.gz")) as f:
            self.labels = np.frombuffer(f.read(), np.uint8, offset=8)

    def __len__(self):
        return opt.n_images

    def __getitem__(self, i):
        img = Image.fromarray(self.images[i]).resize((128, 128), Image.BICUBIC)
        img = img.rotate(float(np.random.uniform(-8, 8)), resample=Image.BICUBIC)
        img = img.resize((32, 32), Image.LANCZOS)
        x = torch.from_numpy(np.array(img, dtype=np.float32))
        return (x / 127.5 - 1).unsqueeze(0), int(self.labels[i])


class Latents(Dataset):
    def __len__(self):
        return opt.n_images

    def __getitem__(self, i):
        return torch.randn(opt.latent_dim), torch.randint(0, 10, ()).item()


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 16)
        self.fc = nn.Linear(opt.latent_dim + 16, 32 * 8 * 8)
        self.conv = nn.Sequential(
            nn.BatchNorm2d(32),
            nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1),
            nn.BatchNorm2d(16),
            nn.LeakyReLU(0.2),
            nn.ConvTranspose2d(16, 1, 4, stride=2, padding=1),
            nn.Tanh(),
        )

    def forward(self, z, label):
        h = self.fc(torch.cat([z, self.embed(label)], dim=1))
        return self.conv(h.view(-1, 32, 8, 8))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 32 * 32)
        self.conv = nn.Sequential(
            nn.Conv2d(2, 16, 4, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(16, 32, 4, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            nn.Linear(32 * 8 * 8, 1),
        )

    def forward(self, img, label):
        plane = self.embed(label).view(-1, 1, 32, 32)
        return self.conv(torch.cat([img, plane], dim=1))


generator = Generator()
discriminator = Discriminator()
adversarial_loss = nn.BCEWithLogitsLoss()
optimizer_G = torch.optim.Adam(generator.parameters(), lr=opt.lr, betas=(0.5, 0.999))
optimizer_D = torch.optim.Adam(discriminator.parameters(), lr=opt.lr, betas=(0.5, 0.999))


def main():
    real_loader = DataLoader(
        RealImages(), batch_size=opt.batch_size, shuffle=True, num_workers=opt.n_cpu, drop_last=True
    )
    latent_loader = DataLoader(Latents(), batch_size=opt.batch_size, drop_last=True)

    for epoch in range(opt.n_epochs):
        for i, ((real, real_label), (z, fake_label)) in enumerate(zip(real_loader, latent_loader)):
            valid = torch.ones(real.size(0), 1)
            fake = torch.zeros(real.size(0), 1)

            # generator
            optimizer_G.zero_grad()
            gen = generator(z, fake_label)
            g_loss = adversarial_loss(discriminator(gen, fake_label), valid)
            g_loss.backward()
            optimizer_G.step()

            # discriminator
            optimizer_D.zero_grad()
            real_loss = adversarial_loss(discriminator(real, real_label), valid)
            fake_loss = adversarial_loss(discriminator(gen.detach(), fake_label), fake)
            d_loss = (real_loss + fake_loss) / 2
            d_loss.backward()
            optimizer_D.step()

            if i % 16 == 0:
                print(
                    "[Epoch %d/%d] [Batch %d/%d] [D loss: %f] [G loss: %f]"
                    % (epoch, opt.n_epochs, i, len(real_loader), d_loss.item(), g_loss.item())
                )
    print("GAN training done")


if __name__ == "__main__":
    main()
