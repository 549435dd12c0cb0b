"""Is the speed paid for with accuracy? glassformer and HF Trainer after the same epoch, judged on the same reviews.

    .venv/bin/python -m benchmarks.speed.equal_accuracy [--seeds 0 1 2] [--train 21000] [--held-out 4000] [--minutes 150]

Both fine-tune MiniLM on the same IMDb training reviews (cut to 256 tokens, one epoch, batches of 32, AdamW at
1e-4, dropout 0), the Trainer at its best as in train_imdb.py, and are judged on other training reviews,
always the same. Seeds draw the reviews, the head's first weights and the order; the difference is paired
within each seed. Its interval is Student's t over the seeds, with the variance of the judged reviews' draw
added.

A training is written as it ends, with its machine; the same command goes on, in another session too. A seed
whose first training ran on another kind of processor begins anew.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.harness.command import Budget, command
from benchmarks.harness.options import MINUTES
from benchmarks.harness.results import environment, half, kept, level
from benchmarks.harness.rounds import steps_of
from benchmarks.harness.seeds import paired
from benchmarks.speed.hf_trainer import Rows, TrainerLoop, pad
from benchmarks.speed.train_imdb import MAX_LENGTH, MODEL, classifier, hf_model, load_rounds
from glassformer.checkpoints.hub import resolve_checkpoint
from glassformer.data.text import encode
from glassformer.data.tokenizer_file import load_tokenizer
from glassformer.errors import InputError
from glassformer.process import keep_freed_memory

LR, BATCH = 1e-4, 32
REVIEWS = 25_000  # of IMDb's training part
Reviews = tuple[list[str], list[int]]
Found = tuple[np.ndarray, dict[str, float]]


def by_trainer(path: Path, train: Reviews, judged: Reviews, seed: int) -> Found:
    """Which answers of HF Trainer are right ``[n]``, by its own model, and its seconds and loss."""
    torch.manual_seed(seed)
    model = hf_model(path, dropout=0.0)
    tokenizer = load_tokenizer(path)
    table, others = (encode(tokenizer, texts, max_length=MAX_LENGTH) for texts, _ in (train, judged))
    rows = Rows([{"input_ids": table[i], "labels": label} for i, label in enumerate(train[1])])
    loop = TrainerLoop(model, lr=LR, batch=BATCH, bf16=half(), sampling="group_by_length")
    seconds, loss = loop.epoch(rows, seed)
    model.eval()
    right = np.zeros(len(judged[1]), bool)
    order = np.argsort(others.lengths)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=half()):
        for part in np.array_split(order, max(1, len(order) // BATCH)):
            batch = pad([{"input_ids": torch.as_tensor(others[i])} for i in part])
            answers = model(**batch).logits.argmax(-1).tolist()
            right[part] = [answer == judged[1][i] for answer, i in zip(answers, part, strict=True)]
    return right, {"seconds": seconds, "loss": loss}


def by_glassformer(path: Path, train: Reviews, judged: Reviews, seed: int) -> Found:
    """The same with ``TextClassifier``."""
    fitted = classifier(path, seed, LR).fit(*train)
    _, seconds, loss = steps_of(fitted.history_)
    right = np.asarray(fitted.predict(judged[0])) == judged[1]
    return right, {"seconds": seconds, "loss": loss}


CONTENDERS = {"HF Trainer, at its best": by_trainer, "glassformer": by_glassformer}


def reviews_of(seed: int, train: int, held_out: int) -> tuple[Reviews, Reviews]:
    """Reviews to learn from, drawn by the seed, and those that judge, the same for every seed."""
    texts, labels = load_rounds(0, REVIEWS, 0)[0]
    order = np.random.default_rng(seed).permutation(np.arange(held_out, len(texts)))[:train]
    return ([texts[i] for i in order], [labels[i] for i in order]), (texts[:held_out], labels[:held_out])


def told(runs: dict[str, Any]) -> dict[str, Any]:
    """What the seeds say that both have: mean accuracies, and ours less the Trainer's; empty before two."""
    both = [run for run in runs.values() if all(name in run for name in CONTENDERS)]
    if len(both) < 2:
        return {}
    n = both[0][next(iter(CONTENDERS))]["judged"]
    packed = [[bytes.fromhex(run[name]["right"]) for run in both] for name in CONTENDERS]
    bits = [np.array([list(found) for found in rows], np.uint8) for rows in packed]
    theirs, ours = (np.unpackbits(found, axis=1, count=n).astype(float) for found in bits)
    means = dict(zip(CONTENDERS, (float(theirs.mean()), float(ours.mean()))))
    return {"accuracy": means, "difference": paired(ours - theirs)}


def begin(path: Path, setting: dict[str, Any]) -> dict[str, Any]:
    """The trainings of the result file so far; InputError where they have another setting."""
    found = kept(path)
    alike = all(found.get(key) == value for key, value in setting.items())
    if found and not (alike and isinstance(found.get("runs"), dict)):
        raise InputError(f"{path.name} has other settings than {setting}: name another --out")
    return found.get("runs", {})


def train_all(runs: dict[str, Any], seeds: Sequence[int], setting: dict, minutes: float) -> Iterator[str]:
    """Add the trainings that ``runs`` lacks; yields after each, with a line about it."""
    path, of, budget = resolve_checkpoint(MODEL).path, level(), Budget(minutes)
    sizes = setting["train_reviews"], setting["judged_reviews"]
    for seed in seeds:
        run = runs.get(str(seed), {})
        if len(run) < len(CONTENDERS):  # a pair is of one kind of processor
            run = {name: one for name, one in run.items() if one["level"] == of}
        runs[str(seed)] = run
        for name, train in CONTENDERS.items():
            if name in run or budget.spent():
                continue
            facts = environment()
            with budget.piece():
                right, figures = train(path, *reviews_of(seed, *sizes), seed)
            run[name] = {
                "accuracy": float(right.mean()), **figures, "level": of, "cpu": facts["machine"]["cpu"], "date": facts["date"],
                "commit": facts["commit"], "judged": len(right), "right": np.packbits(right).tobytes().hex(),
            }  # fmt: skip
            yield f"seed {seed}  {name:24} {right.mean():.2%}  {figures['seconds']:.0f} s"


@command(
    f"accuracy after one epoch of fine-tuning {MODEL} on the same IMDb reviews",
    out="equal-accuracy-full",
    packages=("transformers", "accelerate"),
    seeds=[0, 1, 2],
    train=(21000, "reviews to train on"),
    held_out=(4000, "other training reviews to judge"),
    minutes=MINUTES,
)
def main(options: Any) -> None:
    if options.train + options.held_out > REVIEWS:
        options.error(f"there are {REVIEWS:,} reviews to train on and to judge")
    keep_freed_memory()
    setting = {"lr": LR, "batch_size": BATCH}
    setting |= {"train_reviews": options.train, "judged_reviews": options.held_out}
    runs = begin(options.out, setting)
    for line in train_all(runs, options.seeds, setting, options.minutes):
        options.write({**setting, "runs": runs, **told(runs)})
        print(line, flush=True)
    if gap := told(runs).get("difference"):
        low, high = gap["interval"]
        print(f"glassformer - HF Trainer: {gap['points']:+.2f} points ({low:+.2f} to {high:+.2f})")
    print(f"trainings: {sum(map(len, runs.values()))}, in {options.out}")
