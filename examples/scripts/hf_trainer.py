"""Sentiment classifier with the Hugging Face Trainer, from scratch (no download).

A tiny BERT is made from a config, the tokenizer is our own greedy WordPiece.

    python hf_trainer.py
    python hf_trainer.py --max_steps 2000 --per_device_train_batch_size 16
"""

import argparse
import random
import string
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)

GOOD = "wonderful brilliant charming heartwarming superb delightful unforgettable gripping".split()
BAD = "dreadful boring clumsy tiresome awful forgettable predictable lifeless".split()
FILLER = (
    "the movie was and its cinematography felt throughout although several characters seemed "
    "underdeveloped performances remained soundtrack director screenplay audience nevertheless "
    "particularly sequences conversation atmosphere storytelling overwhelmingly"
).split()


class WordPiece:
    """Greedy longest match first, as in BERT."""

    def __init__(self, words, max_length=64):
        pieces = set(string.ascii_lowercase) | {"##" + c for c in string.ascii_lowercase}
        for word in words:
            for start in range(0, len(word), 3):
                piece = word[start : start + 3]
                pieces.add(piece if start == 0 else "##" + piece)
        self.vocab = {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "[UNK]": 3}
        for piece in sorted(pieces):
            self.vocab[piece] = len(self.vocab)
        self.max_length = max_length

    def pieces_of(self, word):
        pieces = []
        start = 0
        while start < len(word):
            end = len(word)
            while start < end:
                piece = ("##" if start else "") + word[start:end]
                if piece in self.vocab:
                    pieces.append(self.vocab[piece])
                    break
                end -= 1
            else:
                return [self.vocab["[UNK]"]]
            start = end
        return pieces

    def __call__(self, text):
        cleaned = "".join(c if c.isalpha() else " " for c in text.lower())
        ids = [1]
        for word in cleaned.split():
            ids.extend(self.pieces_of(word))
        ids = ids[: self.max_length - 1] + [2]
        mask = [1] * len(ids)
        padding = self.max_length - len(ids)
        return {"input_ids": ids + [0] * padding, "attention_mask": mask + [0] * padding}


class Reviews(Dataset):
    def __init__(self, tokenizer, size, seed):
        rng = random.Random(seed)
        self.tokenizer = tokenizer
        self.texts, self.labels = [], []
        for _ in range(size):
            label = rng.randint(0, 1)
            words = rng.choices(FILLER, k=rng.randint(120, 260))
            for _ in range(6):
                words.insert(rng.randint(0, 15), rng.choice(GOOD if label else BAD))
            self.texts.append(" ".join(words).capitalize() + ".")
            self.labels.append(label)

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        item = {k: torch.tensor(v) for k, v in self.tokenizer(self.texts[i]).items()}
        item["labels"] = torch.tensor(self.labels[i])
        return item


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_steps", type=int, default=60)
    parser.add_argument("--per_device_train_batch_size", type=int, default=8)
    parser.add_argument("--learning_rate", type=float, default=5e-4)
    args = parser.parse_args()

    set_seed(42)
    tokenizer = WordPiece(GOOD + BAD + FILLER)
    train_dataset = Reviews(tokenizer, size=2000, seed=0)
    eval_dataset = Reviews(tokenizer, size=64, seed=1)

    config = BertConfig(
        vocab_size=len(tokenizer.vocab),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=64,
        num_labels=2,
    )
    model = BertForSequenceClassification(config)

    with tempfile.TemporaryDirectory() as output_dir:
        training_args = TrainingArguments(
            output_dir=output_dir,
            max_steps=args.max_steps,
            per_device_train_batch_size=args.per_device_train_batch_size,
            learning_rate=args.learning_rate,
            logging_steps=20,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(
            model=model,
            args=training_args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            compute_metrics=lambda p: {"accuracy": float((p[0].argmax(-1) == p[1]).mean())},
        )
        trainer.train()
        metrics = trainer.evaluate()
    print(f"eval accuracy: {metrics['eval_accuracy']:.3f}")


if __name__ == "__main__":
    main()
