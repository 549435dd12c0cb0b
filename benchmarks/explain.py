"""Which explanation to believe: every method against random orders on test texts of a finished run.

    .venv/bin/python benchmarks/explain.py runs/imdb-minilm-seed0 --data imdb --count 500

For each method: deletion, insertion, comprehensiveness and sufficiency, each beside random orders of the same text
with 95 % intervals; seconds an explanation; the randomisation check; agreement between methods; stability under a
synonym (our own list) and under a typo; and a verdict in words. Also what the heads do, and counter-examples to the
attention map. The texts are drawn from the test split with a seed; nothing is tuned on them. The texts judged so
far lie in ``--work``, so that an interrupted run goes on. Results: ``benchmarks/results/explain-NAME.json``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from common import RESULTS, environment, write_result
from rich.console import Console

from glassformer.data.sources import load_text_dataset
from glassformer.explain import faithfulness, heads, sanity
from glassformer.explain.methods import METHODS, explain
from glassformer.explain.subject import text_subject
from glassformer.saving import load

console = Console(stderr=True)


def judge_texts(clf: Any, texts: list[str], work: Path, draws: int) -> list[dict[str, Any]]:
    """Figures, seconds, errors and agreement for each text, kept in a file line by line."""
    lines = work.read_text(encoding="utf-8").splitlines() if work.exists() else []
    done = [json.loads(line) for line in lines]
    for number in range(len(done), len(texts)):
        subject = text_subject(clf, texts[number], judge=clf._predictor())
        scores, seconds, errors = {}, {}, {}
        for method in METHODS:
            started = time.perf_counter()
            e = explain(subject, method=method, maps=False)
            scores[method], seconds[method] = e.scores, time.perf_counter() - started
            if e.error is not None:
                errors[method] = e.error
        record = {
            "figures": faithfulness.judge(subject, scores, draws=draws, seed=number),
            "seconds": seconds, "errors": errors, "tokens": len(subject),
            "agreement": faithfulness.agreement(scores, subject.hideable),
        }  # fmt: skip
        done.append(record)
        with work.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        if (number + 1) % 10 == 0:
            console.print(f"{number + 1} of {len(texts)} texts judged")
    return done[: len(texts)]


def agreement(judged: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Mean rank correlation of every pair of methods."""
    return {
        a: {b: round(float(np.mean([j["agreement"][a][b] for j in judged])), 4) for b in METHODS}
        for a in METHODS
    }


def head_part(clf: Any, texts: list[str], labels: list[Any]) -> dict[str, Any]:
    """Where heads look, and what is lost without each."""
    figures = heads.head_figures([text_subject(clf, text) for text in texts])
    lost = heads.ablation(clf, texts, labels)
    return {
        "n": len(texts), "figures": {k: np.round(v, 4).tolist() for k, v in figures.items()},
        "words": heads.describe(figures),
        "ablation": {k: np.round(v, 5).tolist() if isinstance(v, np.ndarray) else v for k, v in lost.items()},
    }  # fmt: skip


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    return [rounded(v) for v in value] if isinstance(value, list | tuple) else value


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", default="imdb")
    parser.add_argument("--count", type=int, default=500, help="texts for the table")
    parser.add_argument("--noise", type=int, default=30, help="texts for the randomisation check")
    parser.add_argument("--stable", type=int, default=200, help="sentences for stability")
    parser.add_argument("--ablate", type=int, default=200, help="texts for heads and their ablation")
    parser.add_argument("--search", type=int, default=1000, help="sentences searched for counter-examples")
    parser.add_argument("--draws", type=int, default=5, help="random orders a text")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, default=Path("runs"))
    parser.add_argument("--name", default=None, help="of the result; the run's folder by default")
    args = parser.parse_args()
    clf = load(args.run)
    split = load_text_dataset(args.data, splits=["test"]).splits["test"]
    order = np.random.default_rng(args.seed).permutation(len(split.texts))
    texts = [split.texts[i] for i in order[: args.count]]
    labels = [(split.labels or [])[i] for i in order[: args.count]]
    name = args.name or args.run.resolve().name
    args.work.mkdir(parents=True, exist_ok=True)
    facts = json.dumps([str(args.run.resolve()), args.data, args.seed, args.draws])
    key = hashlib.sha256(facts.encode()).hexdigest()[:12]
    judged = judge_texts(clf, texts, args.work / f"explain-{name}-{key}.jsonl", args.draws)
    rows = faithfulness.table([j["figures"] for j in judged])

    noise = {}
    subjects = [text_subject(clf, text) for text in texts[: args.noise]]
    for method in METHODS:
        # A fixed number of points: under noise, completeness is not what is asked for.
        options = {"steps": 32, "max_steps": 32} if method == "integrated_gradients" else {}
        noise[method] = sanity.randomisation(subjects, method, **options)
        console.print(f"{method}: rank correlation {noise[method][-1]['mean']:.2f} when all is noise")

    # One sentence a review, so that a change of one word is a change of the whole input.
    sentences = [
        s for s in (text.replace("<br />", " ").split(". ")[0] for text in split.texts) if 40 < len(s) < 200
    ]
    pick = np.random.default_rng(args.seed + 1).permutation(len(sentences))
    usable = [sentences[i] for i in pick if sanity.with_synonym(sentences[i], np.random.default_rng(0))][
        : args.stable
    ]
    stable: dict[str, Any] = {}
    for method in METHODS:
        stable[method] = {
            "synonym": sanity.stability(clf, usable, method, seed=args.seed),
            "typo": sanity.stability(clf, usable, method, change=sanity.with_typo, seed=args.seed),
        }
        console.print(f"{method}: stability measured")

    found = heads.counter_examples(clf, sentences[: args.search])
    result = {
        "run": name, "weights_source": clf.weights_source_, "data": args.data, "count": len(texts),
        "seed": args.seed, "max_length": clf.max_length, "hidden_by": "mask", "random_orders": args.draws,
        "methods": {
            method: {
                **rows[method],
                "seconds": faithfulness.summary(np.array([j["seconds"][method] for j in judged])),
                "randomisation": noise[method], "randomisation_passed": sanity.passes(noise[method]),
                "stability": stable[method],
                "verdict": faithfulness.verdict(rows[method], abs(noise[method][-1]["mean"])),
            }
            for method in METHODS
        },
        "random": rows["random"],
        "completeness_error": {
            "median": float(np.median([j["errors"]["integrated_gradients"] for j in judged])),
            "max": float(np.max([j["errors"]["integrated_gradients"] for j in judged])),
            "share_within_1e-3": float(np.mean([j["errors"]["integrated_gradients"] <= 1e-3 for j in judged])),
        },
        "agreement": agreement(judged),
        "synonyms": "our own list of about 75 pairs (explain/sanity.py)",
        "heads": head_part(clf, texts[: args.ablate], labels[: args.ablate]),
        "counter_examples": {
            "searched": min(args.search, len(sentences)), "found": len(found),
            "clearest": [{**asdict(c), "in_words": c.in_words()} for c in found[:5]],
        },
        **environment(),
    }  # fmt: skip
    path = RESULTS / f"explain-{name}.json"
    write_result(path, rounded(result))
    for method in METHODS:
        console.print(f"{method}: {result['methods'][method]['verdict']}")
    console.print(str(path))


if __name__ == "__main__":
    main()
