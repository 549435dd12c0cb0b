"""ModernBERT on texts of 64 to 8,192 tokens: speed beside transformers, memory, and one text of 70,000 characters.

    nice .venv/bin/python -m benchmarks.speed.long_texts --rounds 3 --texts 12 --threads 2

Base size, random weights, MiniLM's vocabulary. A window has texts of the same lengths, which are spread evenly on a logarithmic scale;
texts are joined IMDb reviews. Contenders in turn on the same texts, each in a process of its own:

- training: a PyTorch loop over transformers' model and ``TextClassifier.fit``; bf16 where the machine has it, AdamW, clipping at 1;
- prediction: transformers' model and ``predict_proba``.

transformers pads each batch to its longest text, batches of similar length with at most 8,192 tokens with padding; its attention is
sdpa (eager needs 22 GB for one text of 8,192 tokens in training). Memory: peak of a process that predicts or trains on one text,
with ``gf.load(path, precision="auto")``; of one text of 70,000 characters, loading included.
"""

import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

import glassformer as gf
from benchmarks.harness.command import command
from benchmarks.harness.options import count
from benchmarks.harness.processes import peak_mb, resident_mb
from benchmarks.harness.results import commit, half, kept
from benchmarks.harness.rounds import (
    Contender,
    Window,
    alone,
    compared,
    in_own_process,
    said,
    steps_of,
    use_threads,
)
from benchmarks.speed.families import make_head, put
from benchmarks.speed.hf_trainer import pad, train_on
from benchmarks.speed.memory import peak
from benchmarks.speed.train_imdb import LR
from glassformer.data.sources import load_text_dataset
from glassformer.data.text import encode
from glassformer.data.tokenizer_file import load_tokenizer
from glassformer.process import keep_freed_memory

SHORTEST, LONGEST = 64, 8192
BUDGET = 8192  # tokens of a batch
CHARACTERS = 70_000
WORKS = ("prediction", "training", "memory", "whole")  # whole: one text of CHARACTERS
Texts = tuple[list[str], list[int]]


def lengths_of(texts: int) -> list[int]:
    """Token counts spread evenly on a logarithmic scale."""
    quantiles = (np.arange(texts) + 0.5) / texts
    return np.round(SHORTEST * (LONGEST / SHORTEST) ** quantiles).astype(int).tolist()


def joined(path: Path, windows: int, texts: int, seed: int) -> list[Texts]:
    """Windows of joined reviews of these lengths, in random order, with labels 0 and 1 in turn."""
    wanted, tokenizer = lengths_of(texts), load_tokenizer(path)
    limit = windows * sum(wanted) // 100
    split = load_text_dataset("imdb", limit=limit, seed=seed, splits=["train"]).splits["train"]
    rest, rng, found = iter(split.texts), np.random.default_rng(seed), []
    for _ in range(windows):
        window = []
        for length in wanted:
            words: list[str] = []
            while len(encode(tokenizer, [" ".join(words)], max_length=length + 1).ids) <= length:
                words += next(rest).split()
            ids = encode(tokenizer, [" ".join(words)], max_length=length).ids
            window.append(tokenizer.decode(ids.tolist()))
        found.append(([window[i] for i in rng.permutation(texts)], [i % 2 for i in range(texts)]))
    return found


def tokens_of(path: Path, texts: list[str]) -> list[torch.Tensor]:
    table = encode(load_tokenizer(path), texts, max_length=LONGEST)
    return [torch.as_tensor(ids) for ids in table]


def batches_of(rows: list[torch.Tensor]) -> list[list[int]]:
    """Rows of similar length, at most ``BUDGET`` tokens with padding in each batch."""
    batches: list[list[int]] = [[]]
    for i in np.argsort([len(ids) for ids in rows], kind="stable").tolist():
        if batches[-1] and len(rows[i]) * (len(batches[-1]) + 1) > BUDGET:
            batches.append([])
        batches[-1].append(i)
    return batches


class Theirs:
    """transformers' model, trained or asked in batches of similar length."""

    def __init__(self, path: Path):
        from transformers import AutoModelForSequenceClassification

        keep_freed_memory()
        self.path = path
        self.model = AutoModelForSequenceClassification.from_pretrained(path, attn_implementation="sdpa")
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=LR, weight_decay=0.0, fused=True)

    def output(self, rows: list[torch.Tensor], **more: Any) -> Any:
        return self.model(**pad([{"input_ids": ids} for ids in rows]), **more)

    def train(self, texts: list[str], labels: list[int]) -> Window:
        rows, targets = tokens_of(self.path, texts), torch.tensor(labels)

        def loss_of(batch: list[int]) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16, enabled=half()):
                return self.output([rows[i] for i in batch], labels=targets[batch]).loss

        self.model.train()
        started = time.perf_counter()
        loss = float(np.mean(train_on(self.model, self.optimizer, batches_of(rows), loss_of)))
        return Window(len(rows), sum(map(len, rows)), time.perf_counter() - started, loss)

    def predict(self, texts: list[str]) -> Window:
        started, rows = time.perf_counter(), tokens_of(self.path, texts)
        with torch.inference_mode():
            logits = [self.output([rows[i] for i in batch]).logits for batch in batches_of(rows)]
        seconds, share = time.perf_counter() - started, torch.cat(logits).float().softmax(1)[:, 0].mean()
        return Window(len(rows), sum(map(len, rows)), seconds, float(share))  # in place of a loss


def theirs(path: Path, windows: list[Texts], what: str) -> Contender:
    one, setting = Theirs(path), {"attention": "sdpa"}
    if what == "training":
        name = "PyTorch loop over the HF model"
        return Contender(name, setting, lambda turn: one.train(*windows[turn]), noun="texts")
    if half():
        one.model.bfloat16()
    one.model.eval()
    return Contender("HF, sorted", setting, lambda turn: one.predict(windows[turn][0]), noun="texts")


def classifier(path: Path) -> Any:
    same: dict[str, Any] = {"schedule": "constant", "warmup": 0.0, "weight_decay": 0.0, "epochs": 1, "lr": LR}
    same |= make_head("modernbert")
    return gf.TextClassifier(str(path), max_length=LONGEST, batch_tokens=BUDGET, **same)


def ours(path: Path, windows: list[Texts], what: str) -> Contender:
    keep_freed_memory()

    def train(turn: int) -> Window:
        clf = classifier(path).fit(*windows[turn])
        tokens, seconds, loss = steps_of(clf.history_)
        return Window(len(windows[turn][0]), tokens, seconds, loss)

    if what == "training":
        return Contender("glassformer", {"padding": "none"}, train, noun="texts")
    clf = gf.load(path, precision="auto").set_params(max_length=LONGEST)

    def predict(turn: int) -> Window:
        texts = windows[turn][0]
        tokens = sum(map(len, tokens_of(path, texts)))
        started = time.perf_counter()
        share = clf.predict_proba(texts)[:, 0].mean()
        return Window(len(texts), tokens, time.perf_counter() - started, float(share))

    return Contender("glassformer", {"padding": "none"}, predict, noun="texts")


def memory(path: Path, who: str, what: str, text: str) -> dict[str, float]:
    """Peak memory of one text, in this process; a model that predicts has predicted a short text before."""
    windows = [([text, text], [0, 1])] if what == "training" else [([text], [0]), ([text[:99]], [0])]
    make = {"glassformer": ours, "transformers": theirs}[who]
    contender = make(path, windows, what)
    if what == "prediction":
        contender.run(1)
    return peak(lambda: contender.run(0))


def whole(path: Path, text: str) -> dict[str, Any]:
    """Embedding of one long text by a model with enough positions; the peak is that of the whole process."""
    clf = gf.load(path, precision="auto").set_params(max_length=32_768)
    ready, started = resident_mb(), time.perf_counter()
    vector = clf.embed([text])
    seconds, most = time.perf_counter() - started, peak_mb()
    cut = clf.embed([text[: len(text) - 400]])
    return {
        "ready_mb": round(ready, 1), "peak_mb": round(most, 1),
        "characters": len(text), "tokens": len(tokens_of_all(path, text)), "seconds": round(seconds, 1),
        "end_is_read": bool(np.abs(vector - cut).max() > 1e-4),
    }  # fmt: skip


def tokens_of_all(path: Path, text: str) -> np.ndarray:
    return encode(load_tokenizer(path), [text], max_length=32_768).ids


@command(
    "ModernBERT of base size, random weights, texts of 64 to 8,192 tokens: speed and memory",
    out="long-texts",
    packages=("transformers",),
    rounds=dict(type=count, default=3, help="timed windows of each contender"),
    texts=dict(type=count, default=12, help="texts in a window"),
    threads=dict(type=count, default=torch.get_num_threads()),
    lengths=[512, 2048, 8192],
    works=dict(nargs="+", choices=WORKS, default=list(WORKS), help="measured; the file keeps the rest"),
    memory_of=dict(nargs="+", choices=WORKS[:2], default=list(WORKS[:2]), help="whose memory is measured"),
    seed=0,
)
def main(options: Any) -> dict[str, Any]:
    use_threads(options.threads)
    found: dict[str, Any] = {"texts_per_window": options.texts, "lengths": lengths_of(options.texts)}
    earlier = kept(options.out)
    found |= {name: earlier[name] for name in WORKS if name in earlier and name not in options.works}
    now = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "commit": commit()}
    renewed = [f"memory of {what}" for what in options.memory_of] if "memory" in options.works else []
    renewed += [name for name in options.works if name != "memory"]
    found["measured"] = earlier.get("measured", {}) | dict.fromkeys(renewed, now)
    with tempfile.TemporaryDirectory() as name:
        path = put("modernbert", Path(name), max_position_embeddings=32_768) / "hub"
        windows = joined(path, options.rounds + 1, options.texts, options.seed)
        for what in (name for name in WORKS[:2] if name in options.works):
            contenders = [in_own_process(make, path, windows, what) for make in (theirs, ours)]
            found[what] = compared(contenders, options.rounds)
            for peer, ratio in found[what]["glassformer_against"].items():
                print(f"{what}: {said(ratio)} {peer}")
            options.write(found)
        long = " ".join(windows[0][0])
        memory_before = [row for row in earlier.get("memory", ()) if row["work"] not in options.memory_of]
        if "memory" in options.works:
            found["memory"] = []
        for length in options.lengths if "memory" in options.works else ():
            text = load_tokenizer(path).decode(tokens_of_all(path, long)[:length].tolist())
            found["memory"] += [row for row in memory_before if row["tokens"] == length]
            for what in options.memory_of:
                for who in ("transformers", "glassformer"):
                    used = alone(memory, path, who, what, text)
                    print(f"{what}, {length} tokens, {who}: {used}", flush=True)
                    found["memory"].append({"work": what, "tokens": length, "who": who, **used})
        if "whole" in options.works:
            found["whole"] = alone(whole, path, (long * 4)[:CHARACTERS])
            print(found["whole"])
    return found
