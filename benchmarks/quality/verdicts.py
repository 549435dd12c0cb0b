"""Does the verdict on one explanation hold? Explanations of shuffled weights should fail it, a planted word be found.

    .venv/bin/python -m benchmarks.quality.verdicts runs/tweet-emotion --data tweet-emotion --count 200

For texts of the test split, each under all ways of hiding (``explain(trust=True)``): the explanation itself; that of the
same model with all its weights shuffled, judged on the trained one; and a random order. Counted is what passes under every
way of hiding that tells, and under any. Then a word that means nothing, put into a random place of half of the texts,
decides the label: a model learns that, and for each method counted is how often the word comes first. Results:
``benchmarks/results/verdicts-NAME.json``.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import glassformer as gf
from benchmarks.harness.command import command
from benchmarks.harness.results import RESULTS
from glassformer.data.sources import load_text_dataset
from glassformer.evaluate.intervals import share_interval
from glassformer.explain.faithfulness import check_faithfulness
from glassformer.explain.methods import default_method, explain, make_subject, methods_for
from glassformer.explain.sanity import shuffled
from glassformer.tasks.load import load

WORD = "qxj"  # the planted word


def verdicts(clf: Any, texts: list[str], seeds: int = 5) -> dict[str, Any]:
    """For each kind of explanation, how many of those that the test can judge pass."""
    method, judge = default_method(clf), clf.predictor()
    noise = [[model for _, model in shuffled(clf.model_, seed)][-1] for seed in range(seeds)]
    counts = {kind: {"told": 0, "every": 0, "any": 0} for kind in ("trained", "shuffled", "random")}
    for number, text in enumerate(texts):
        subject = make_subject(clf, text)
        other = subject.with_model(noise[number % seeds])
        named = subject.classes[subject.target]
        scores = {
            "trained": explain(subject, method=method, maps=False).scores,
            "shuffled": explain(other, method=method, target=named, maps=False).scores,
            "random": np.random.default_rng(number).random(len(subject)),
        }
        for kind, own in scores.items():
            found = check_faithfulness(replace(subject, predictor=judge), own, seed=number)["operators"]
            passes = [one["passes"] for one in found.values() if one["passes"] is not None]
            counts[kind]["told"] += bool(passes)
            counts[kind]["every"] += bool(passes) and all(passes)
            counts[kind]["any"] += any(passes)
    for count in counts.values():
        for key in ("every", "any"):
            count[f"{key}_interval"] = share_interval(count[key] / max(count["told"], 1), count["told"])
    return {"method": method, "ways": list(subject.operators), "explanations": counts}


def planted(texts: list[str], rng: np.random.Generator) -> tuple[list[str], list[int]]:
    """Texts, a random half of them with ``WORD`` in a random place, and whether they have it."""
    out, has = [], (rng.random(len(texts)) < 0.5).astype(int).tolist()
    for text, mark in zip(texts, has, strict=True):
        words = text.split()
        if mark:
            words.insert(int(rng.integers(0, len(words) + 1)), WORD)
        out.append(" ".join(words))
    return out, has


def hits(train: list[str], test: list[str], count: int, maskable: bool) -> dict[str, Any]:
    """How often each method ranks the planted word first."""
    rng = np.random.default_rng(0)
    (X, y), (X_test, y_test) = planted(train, rng), planted(test, rng)
    settings: dict[str, Any] = {"epochs": 2, "head_start": "random", "max_length": 96}
    clf = gf.TextClassifier("all-minilm-l6-v2", maskable=maskable, **settings).fit(X, y)
    right = clf.predict(X_test) == np.array(y_test)
    with_word = [x for x, mark, ok in zip(X_test, y_test, right, strict=True) if mark and ok][:count]
    shares = {}
    for method in methods_for(clf.model_):
        found = [explain(make_subject(clf, x), method=method, maps=False).words() for x in with_word]
        first = [max(words, key=lambda one: one[1])[0] for words in found]
        share = float(np.mean([word == WORD for word in first]))
        shares[method] = {"share": share, "interval": share_interval(share, len(first))}
    return {"accuracy": float(right.mean()), "count": len(with_word), "maskable": maskable, "methods": shares}


@command(
    "verdicts on explanations: shuffled weights, random orders, a planted word",
    "run",
    out=lambda options: RESULTS / f"verdicts-{Path(options.run).name}.json",
    data=str,
    count=(200, "test texts of each part"),
    train=(2000, "texts that the model with the planted word learns from"),
)
def main(options: Any) -> dict[str, Any]:
    clf = load(options.run)
    splits = load_text_dataset(options.data, splits=["train", "test"]).splits
    train, test = list(splits["train"].texts)[: options.train], list(splits["test"].texts)
    rng = np.random.default_rng(1)
    texts = [test[i] for i in rng.permutation(len(test))[: options.count]]
    run, data = Path(options.run).name, Path(options.data).stem
    found: dict[str, Any] = {"run": run, "data": data, "count": options.count, **verdicts(clf, texts)}
    options.write(found)
    found["planted"] = [hits(train, test[:1000], options.count, maskable) for maskable in (False, True)]
    return found
