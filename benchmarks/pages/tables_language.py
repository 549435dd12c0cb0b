"""The tables of translation, masked words and word vectors, each from its result files; see tables.py."""

from __future__ import annotations

import json
from statistics import fmean, median
from typing import Any

from benchmarks.pages.tables_speed import RESULTS, measured, read, times


def _recipes(*prefixes: str) -> list[dict[str, Any]]:
    found = [p for prefix in prefixes for p in sorted(RESULTS.glob(f"recipe-{prefix}*.json"))]
    return [json.loads(p.read_text(encoding="utf-8")) for p in found]


def translations() -> str:
    """BLEU and chrF of the test part, of every translation recipe and both searches: means over the seeds."""
    lines = [
        "| Recipe (seeds) | Search | BLEU (lowest to highest) | chrF | BLEU, lower-cased and tokenised | Said / reference, tokens |",
        "|---|---|---|---|---|---|",
    ]
    signatures: dict[str, None] = {}
    for result in _recipes("multi30k"):
        tested = [run["scores"]["test"] for run in result["runs"]]
        for name in tested[0]:
            scores = [one[name] for one in tested]
            s = {
                key: fmean(one[key] for one in scores)
                for key in ("bleu", "chrf", "bleu_tokenised", "length_ratio")
            }
            low, high = (f"{most(one['bleu'] for one in scores):.1f}" for most in (min, max))
            search = f"beam {scores[0]['width']}" if name == "beam" else name
            spread = f" ({low} to {high})" if len(scores) > 1 else ""
            lines.append(
                f"| `{result['recipe']}` ({len(scores)}) | {search} | {s['bleu']:.1f}{spread} | {s['chrf']:.1f} "
                f"| {s['bleu_tokenised']:.1f} | {s['length_ratio']:.3f} |"
            )
            for one in scores:
                signatures |= dict.fromkeys(f"{key}: `{value}`" for key, value in one["signatures"].items())
    told = [f"{scores[0]['n']:,} test sentences. sacrebleu's signatures: {'; '.join(signatures)}."]
    return "\n".join([*lines, "", *told])


def starts() -> str:
    """How a masked-word model begins: the loss as it reads, and the words guessed right in the end."""
    result = read("starts")
    if result is None:
        return "Not measured yet: `benchmarks/quality/starts.py`."
    runs = [(name, seed, run) for name, seeds in result["starts"].items() for seed, run in seeds.items()]
    shortest, per = min(len(run["losses"]) for *_, run in runs), 1_000_000 // result["window"]
    at = list(range(1, shortest // per + 1))  # millions of tokens
    head = [
        *(f"Loss at {m} million tokens" for m in at),
        "Held-out loss",
        "Held-out words guessed right",
        "Time",
    ]
    lines = ["| Start, seed | " + " | ".join(head) + " |", "|---" * (len(head) + 1) + "|"]
    for name, seed, run in runs:
        losses = [f"{run['losses'][m * per - 1]:.2f}" for m in at]
        right = f"{run['accuracy']:.1%} of {run['masked_tokens']:,}"
        cells = [f"{name}, {seed}", *losses, f"{run['loss']:.2f}", right, f"{run['seconds'] / 60:.0f} min"]
        lines.append("| " + " | ".join(cells) + " |")
    m = result["machine"]
    about = (
        f"The recipe `{result['recipe']}` on {result['limit']:,} reviews of each split, one pass; each loss is the "
        f"mean over {result['window']:,} tokens. {m['cpu']}, threads: {m['threads']}; {result['date'][:10]}."
    )
    return "\n".join([*lines, "", about])


def masked() -> str:
    """How many words were chosen, and what became of them, of every masked-word recipe."""
    lines = [
        "| Recipe, seed | Tokens | Chosen | Became [MASK] | Another token | Stayed "
        "| Held-out words guessed right | Texts left out |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for result in _recipes("europe-mlm", "imdb-mlm", "ntc-mlm"):
        for run in result["runs"]:
            m = run.get("masks")
            if m is None:
                continue
            n = m["chosen"]
            shares = " | ".join(f"{m[key] / n:.1%}" for key in ("masked", "random", "kept"))
            left = ", ".join(f"{count:,} of {split}" for split, count in run.get("excluded", {}).items())
            lines.append(
                f"| `{result['recipe']}`, {run['seed']} | {m['tokens']:,} | {n:,} ({n / m['tokens']:.1%}) | {shares} "
                f"| {run['masked']['accuracy']:.1%} | {left or 'none'} |"
            )
    return "\n".join(lines)


def traps() -> str:
    """The mini-Transformers on the generated sentences and on those that mislead."""
    lines = ["| Recipe | Seeds | Test sentences | Misleading sentences |", "|---|---|---|---|"]
    for result in _recipes("europe-frozen", "europe-trained"):
        runs = [run for run in result["runs"] if "misleading" in run]
        if runs:
            test, hard = ([r[key]["accuracy"] for r in runs] for key in ("test", "misleading"))
            lines.append(
                f"| `{result['recipe']}` | {len(runs)} | {min(test):.2%} to {max(test):.2%} "
                f"| {min(hard):.2%} to {max(hard):.2%} |"
            )
    return "\n".join(lines)


VECTOR_TESTS = {
    "wordsim353": "WordSim-353, Spearman",
    "simlex999": "SimLex-999, Spearman",
    "google": "Google analogies",
}


def quality() -> str:
    """Word vectors beside gensim's over seeds, for each number of epochs, from word2vec-quality.json."""
    result = read("word2vec-quality")
    parts = {
        n: part
        for n, part in (result or {"epochs": {}})["epochs"].items()
        if {kind for seed in part["seeds"].values() for kind in seed} >= {"glassformer", "gensim"}
    }
    if not parts:
        return "Not measured yet: `benchmarks/speed/word2vec.py quality`.\n"
    lines = [
        "| Epochs | Test (points of 100) | glassformer | gensim | Difference (95 % interval) | Seeds |",
        "|---|---|---|---|---|---|",
    ]
    for n, part in sorted(parts.items(), key=lambda item: int(item[0])):
        for test, d in part.get("difference", {}).items():
            found = {
                kind: [seed[kind][test] for seed in part["seeds"].values() if kind in seed]
                for kind in ("glassformer", "gensim")
            }
            means = " | ".join(f"{fmean(values):.1f}" for values in found.values())
            seeds = " and ".join(str(len(values)) for values in found.values())
            apart = f"{d['mean']:+.1f} ({d['low']:+.1f} to {d['high']:+.1f})" if d else ""
            lines.append(f"| {n} | {VECTOR_TESTS[test]} | {means} | {apart} | {seeds} |")
    setting = result["setting"]
    told = f"Seeds are those of glassformer and of gensim; threads: {setting['threads']}, "
    return "\n".join([*lines, "", f"{told}vectors of {setting['dim']} numbers."])


def quality_by_seconds(ending: str = "") -> str:
    """What so many seconds give: the trainings that word2vec-fit.json timed, with the mean figures of word2vec-quality.json."""
    timed, judged = read("word2vec-fit" + ending), read("word2vec-quality")
    if timed is None or judged is None:
        return "Not measured yet: `benchmarks/speed/word2vec.py fit` and `quality`.\n"
    rows = []
    for n, part in timed["epochs"].items():
        seeds = judged["epochs"].get(n, {"seeds": {}})["seeds"].values()
        for kind, seconds in part["seconds"].items():
            found = [seed[kind] for seed in seeds if kind in seed]
            if found:
                means = [f"{fmean(one[test] for one in found):.1f}" for test in VECTOR_TESTS]
                rows.append((median(seconds), [kind, n, f"{median(seconds):,.0f}", *means]))
    head = ["", "Epochs", "Seconds", *VECTOR_TESTS.values()]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *(f"| {' | '.join(cells)} |" for _, cells in sorted(rows))])


def word_vectors_fit(ending: str = "") -> str:
    """Seconds from sentences to vectors beside gensim, from word2vec-fit.json."""
    result = read("word2vec-fit" + ending)
    if result is None:
        return "Not measured yet: `benchmarks/speed/word2vec.py fit`.\n"
    lines = ["| Epochs | glassformer, s | gensim, s | glassformer is |", "|---|---|---|---|"]
    for n, part in result["epochs"].items():
        ours, theirs = (median(part["seconds"][kind]) for kind in ("glassformer", "gensim"))
        lines.append(f"| {n} | {ours:,.0f} | {theirs:,.0f} | {times(part['ratio'])} |")
    where = result["environment"] | {"threads": result["setting"]["threads"]}
    return "\n".join([*lines, "", measured(where)])


def defaults() -> str:
    """Accuracy and seconds with every setting unset, one line a kind of model on a data set."""
    result = read("defaults")
    if result is None:
        return "Not measured yet: `make bench-defaults`."
    rows = result["rows"]
    sizes = sorted({r["asked"] for r in rows})
    lines = [
        "| Data | Model | " + " | ".join(f"{size:,} examples" for size in sizes) + " |",
        "|---|---|" + "---|" * len(sizes),
    ]
    for data, kind in sorted({(r["data"], r["kind"]): None for r in rows}):
        cells = []
        for size in sizes:
            found = [r for r in rows if (r["data"], r["kind"], r["asked"]) == (data, kind, size)]
            cells.append(_spread(found) if found else "")
        lines.append(f"| {data} | {kind} | " + " | ".join(cells) + " |")
    chance = {r["data"]: r["chance"] for r in rows}
    told = ", ".join(f"{data} {share:.1%}" for data, share in sorted(chance.items()))
    lines += [
        "",
        f"Accuracy, its range over seeds, seconds of training on one thread (of its processor; by the clock for 64 examples). The most frequent class has: {told}.",
    ]
    return "\n".join([*lines, "Flowers has fewer pictures than the largest number: all of them are taken."])


def _spread(found: list[dict[str, Any]]) -> str:
    scores = [r["accuracy"] for r in found]
    seconds = sum(r.get("cpu_seconds", r["seconds"]) for r in found) / len(
        found
    )  # the first files have no other
    low_high = f"{min(scores):.1%} to {max(scores):.1%}" if len(found) > 1 else "one seed"
    return f"{sum(scores) / len(scores):.1%} ({low_high}), {seconds:.0f} s"
