"""Is the speed paid for with accuracy? glassformer and HF Trainer after the same epoch, judged on the same reviews.

    .venv/bin/python benchmarks/equal_accuracy.py [--seeds 0 1 2] [--train 3000] [--held-out 4000]

Both fine-tune MiniLM's weights on the same IMDb training reviews (cut to 256 tokens, one epoch, batches of 32, AdamW at
1e-4, dropout 0), the Trainer at its best as in train_imdb.py, and are judged on other training reviews, so that
the test set stays unseen. Seeds draw the reviews, the head's first weights and the order, so their spread is that of
whole repetitions; the difference is paired within each seed.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import RESULTS, environment, half, write_result
from hf_trainer import Rows, TrainerLoop, pad
from train_imdb import MAX_LENGTH, MODEL, load_rounds

from glassformer.checkpoints.hub import resolve_checkpoint
from glassformer.data.text import encode
from glassformer.data.tokenizer_file import load_tokenizer
from glassformer.errors import InputError
from glassformer.process import keep_freed_memory

LR, BATCH = 1e-4, 32
Reviews = tuple[list[str], list[int]]


def by_trainer(path: Path, train: Reviews, judged: Reviews, seed: int) -> dict[str, float]:
    """HF Trainer's accuracy, judged with its own model, and the seconds that its epoch took."""
    from transformers import AutoModelForSequenceClassification

    torch.manual_seed(seed)
    model = AutoModelForSequenceClassification.from_pretrained(
        path, num_labels=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    tokenizer = load_tokenizer(path)
    table, others = (encode(tokenizer, texts, max_length=MAX_LENGTH) for texts, _ in (train, judged))
    rows = Rows([{"input_ids": table[i], "labels": label} for i, label in enumerate(train[1])])
    loop = TrainerLoop(model, lr=LR, batch=BATCH, bf16=half(), sampling="group_by_length")
    seconds, loss = loop.epoch(rows, seed)
    model.eval()
    right = 0
    order = np.argsort(others.lengths)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=half()):
        for part in np.array_split(order, max(1, len(order) // BATCH)):
            batch = pad([{"input_ids": torch.as_tensor(others[i])} for i in part])
            answers = model(**batch).logits.argmax(-1).tolist()
            right += sum(answer == judged[1][i] for answer, i in zip(answers, part, strict=True))
    return {"accuracy": right / len(order), "seconds": seconds, "loss": loss}


def by_glassformer(path: Path, train: Reviews, judged: Reviews, seed: int) -> dict[str, float]:
    """The same with ``TextClassifier``."""
    from glassformer.tasks.text_classification.estimator import TextClassifier

    classifier = TextClassifier(
        str(path), max_length=MAX_LENGTH, epochs=1, lr=LR, schedule="constant", warmup=0.0, weight_decay=0.0,
        batch_size=BATCH, dropout=0.0, attention_dropout=0.0, seed=seed,
    ).fit(*train)  # fmt: skip
    steps = [record for record in classifier.history_ if record["kind"] == "step"]
    return {
        "accuracy": float(classifier.score(*judged)),
        "seconds": steps[-1]["seconds"],
        "loss": sum(step["loss"] for step in steps) / len(steps),
    }


CONTENDERS = {"HF Trainer, at its best": by_trainer, "glassformer": by_glassformer}


def compare(seeds: Sequence[int], train: int, held_out: int) -> dict[str, Any]:
    """Both contenders with every seed, and their differences in percentage points.

    Raises:
        InputError: no weights or no data here.
    """
    path = resolve_checkpoint(MODEL).path
    runs: list[dict[str, Any]] = []
    for seed in seeds:
        texts, labels = load_rounds(0, train + held_out, seed)[0]  # in random order, both labels alike
        parts = (texts[:train], labels[:train]), (texts[train:], labels[train:])
        found: dict[str, Any] = {"seed": seed}
        for name, run in CONTENDERS.items():
            found[name] = run(path, *parts, seed)
            print(
                f"seed {seed}  {name:24} {found[name]['accuracy']:.2%}  {found[name]['seconds']:.0f} s",
                flush=True,
            )
        runs.append(found)
    theirs, ours = ([run[name]["accuracy"] for run in runs] for name in CONTENDERS)
    points = [100 * (b - a) for a, b in zip(theirs, ours, strict=True)]
    return {
        "train_reviews": train,
        "judged_reviews": held_out,
        "runs": runs,
        "accuracy": dict(zip(CONTENDERS, (statistics.mean(theirs), statistics.mean(ours)), strict=True)),
        "difference_points": {"mean": statistics.mean(points), "min": min(points), "max": max(points)},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--train", type=int, default=3000, help="reviews to train on")
    parser.add_argument("--held-out", type=int, default=4000, help="other training reviews to judge")
    parser.add_argument("--out", type=Path, default=RESULTS / "equal-accuracy.json")
    options = parser.parse_args(arguments)
    keep_freed_memory()
    facts = environment("transformers", "accelerate")
    try:
        found = compare(options.seeds, options.train, options.held_out)
    except InputError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    about = f"accuracy after one epoch of fine-tuning {MODEL} on the same IMDb reviews"
    write_result(options.out, {"benchmark": about, **facts, "lr": LR, "batch_size": BATCH, **found})
    gap = found["difference_points"]
    print(f"glassformer - HF Trainer: {gap['mean']:+.2f} points ({gap['min']:+.2f} to {gap['max']:+.2f})")
    print(f"written to {options.out}")
    return 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
