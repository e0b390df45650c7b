#!/usr/bin/env python
# coding: utf-8

# # Bird calls, first try
#
# Exported from `notebook.ipynb` with *File > Save and Export As > Executable Script*.
# Run it with `python notebook.py`; `EPOCHS=50 python notebook.py` for a real run.
# The clips live in the bucket, every one is its own object (slow!!).

# In[1]:


import io
import os
import random
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

EPOCHS = int(os.environ.get("EPOCHS", "1"))
torch.manual_seed(0)


# ## Data
# Stand-in for the real bucket, so that this runs on a laptop: a get takes 5 ms and then some.

# In[2]:


class Bucket:
    rate = 8000

    def __init__(self):
        rng = np.random.RandomState(0)
        t = np.arange(self.rate // 2, dtype=np.float32) / self.rate
        self.objects = []
        for n in range(60):
            pitch = 400 + 300 * (n % 5) + rng.uniform(-60, 60)
            wave = np.sin(2 * np.pi * (pitch + 40 * np.sin(2 * np.pi * 6 * t)) * t)
            f = io.BytesIO()
            np.save(f, (wave + 0.3 * rng.randn(len(t))).astype(np.float32))
            self.objects.append(f.getvalue())

    def keys(self):
        return [f"clips/{i:05d}.npy" for i in range(480)]

    def get(self, key):
        time.sleep(0.005 + random.expovariate(1 / 0.005))  # latency
        return self.objects[int(key[6:11]) % len(self.objects)]


bucket = Bucket()
keys = bucket.keys()
len(keys)


# In[3]:


class Clips(Dataset):
    def __init__(self, bucket, keys):
        self.bucket = bucket
        self.keys = keys
        self.window = np.hanning(256).astype(np.float32)

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, i):
        key = self.keys[i]
        wave = np.load(io.BytesIO(self.bucket.get(key)))
        frames = np.lib.stride_tricks.sliding_window_view(wave, 256)[::64]
        spec = np.abs(np.fft.rfft(frames * self.window)).astype(np.float32)
        label = int(key[6:11]) % 5
        return torch.from_numpy(np.log1p(spec)).unsqueeze(0), label


ds = Clips(bucket, keys)
ds[0][0].shape


# In[4]:


dl = DataLoader(ds, batch_size=16, shuffle=True)


# ## Model

# In[5]:


model = nn.Sequential(
    nn.Conv2d(1, 12, 3, stride=2, padding=1),
    nn.BatchNorm2d(12),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(12, 24, 3, padding=1),
    nn.BatchNorm2d(24),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d((1, 8)),
    nn.Flatten(),
    nn.Linear(24 * 8, 5),
)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()


# In[6]:


history = []
for epoch in range(EPOCHS):
    tic = time.time()
    model.train()
    hits = seen = 0
    for x, y in dl:
        opt.zero_grad()
        out = model(x)
        loss = criterion(out, y)
        loss.backward()
        opt.step()
        hits += (out.argmax(1) == y).sum().item()
        seen += len(y)
        history.append(loss.item())
    print(
        f"[{epoch + 1}/{EPOCHS}] loss={loss.item():.3f} acc={hits / seen:.2%} ({time.time() - tic:.1f}s)"
    )


# In[7]:


print("smoothed:", np.round(np.mean(np.array(history).reshape(-1, 6), axis=1), 3)[-5:])


# In[8]:


print("best loss", min(history))


# In[ ]:
