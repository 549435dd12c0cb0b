"""Write the tables of README.md and docs/benchmarks.md from benchmarks/results/*.json; nothing is typed by hand.

    .venv/bin/python -m benchmarks.pages.tables [--check]

A table stands between ``<!-- table: NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.pages import (
    tables_few,
    tables_int8,
    tables_levels,
    tables_packages,
    tables_padding,
    tables_questions,
    tables_untuned,
    task_price,
)
from benchmarks.pages import tables_language as language
from benchmarks.pages import tables_speed as speed
from benchmarks.pages import tables_trust as trust
from benchmarks.pages.tables_speed import RESULTS, read, times
from benchmarks.quality import auto
from glassformer.report.published import alone, company, headline

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md", "docs/benchmarks.md", "docs/serving.md", "docs/studies.md", "docs/explanations.md",
    "docs/sequences.md", "docs/word-vectors.md", "docs/defaults.md", "docs/questions.md", "docs/install.md",
    "docs/guide/long-inputs.md", "docs/guide/similar.md",
    "docs/extend.md",
)  # fmt: skip
ALIKE = "-avx512"  # the level whose files are all of one state of the code
MARK = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
FIGURE = re.compile(r"(<!-- figure: (\S+) -->).*?(<!-- end -->)")  # a number inside a sentence


def recipe_rows() -> list[dict[str, Any]]:
    """The result files of classifiers; docs/results.md has every recipe."""
    found = [json.loads(p.read_text(encoding="utf-8")) for p in sorted(RESULTS.glob("recipe-*.json"))]
    return [r for r in found if "accuracy" in r]


def recipes() -> str:
    """One line a recipe: test accuracy over seeds, beside the baselines of the same split."""
    lines = [
        "| Recipe | Test accuracy (seeds) | Range | TF-IDF + logistic regression | Mean bag of embeddings "
        "| Training time | Peak memory | Machine |",
        "|---|---|---|---|---|---|---|---|",
    ]
    letters = machines(recipe_rows())
    for r in recipe_rows():
        first, seeds = r["runs"][0], len(r["seeds"])
        spread = f"{r['accuracy']['min']:.2%} to {r['accuracy']['max']:.2%}" if seeds > 1 else "one seed"
        names = ("TF-IDF + logistic regression", "mean bag of embeddings")
        base = [f"{first['baselines'][n]['accuracy']:.2%}" if n in first["baselines"] else "" for n in names]
        memory = max(x["peak_memory_mb"] for x in alone(r["runs"])) / 1000
        lines.append(
            f"| `{r['recipe']}` | {fmean(headline(run)[0] for run in r['runs']):.2%} ({seeds}) | {spread} | {base[0]} | {base[1]} "
            f"| {time_told(r['runs'])} | {memory:.1f} GB "
            f"| {', '.join(sorted({letters[machine_told(run)] for run in r['runs']}))} |"
        )
    told = "; ".join(f"{letter}: {name}" for name, letter in letters.items())
    about = [f"Times are medians over the seeds. Machine {told}. The intervals of single runs, the curves, the settings, versions and dates are in "
             "`benchmarks/results/recipe-*.json`."]  # fmt: skip
    return "\n".join([*lines, "", *about])


SHOWN = {  # the lines of the README's table, by recipe: data, and the model in a few words
    "imdb-minilm-best": ("IMDb reviews", "MiniLM, fine-tuned"),
    "imdb-from-mlm": ("IMDb reviews", "a small encoder, pre-trained here on IMDb's own text"),
    "ntc-bert": ("NTC-SCV, Vietnamese reviews", "a small BERT, pre-trained here on NTC-SCV's own text"),
    "multi30k-transformer": ("Multi30k, English to German", "a Transformer from nothing"),
    "cifar10-vit-stem": ("CIFAR-10", "a ViT with a convolution in front, from nothing"),
    "flowers-best": ("Flowers, five kinds", "a ViT from nothing"),
    "flowers-dinov2-frozen": (
        "Flowers, five kinds",
        "a head on a frozen DINOv2-small, which was trained further for saliency",
    ),
}
BEFORE = {"imdb-from-mlm": "imdb-mlm", "ntc-bert": "ntc-mlm"}  # what had to be trained first


def highlights() -> str:
    """The best of what was measured, a line a data set; docs/results.md has everything."""
    lines = ["| Data | Model | Test score (seeds) | TF-IDF | Training time |", "|---|---|---|---|---|"]
    for name, (data, model) in SHOWN.items():
        path = RESULTS / f"recipe-{name}.json"
        if not path.is_file():
            continue
        r = json.loads(path.read_text(encoding="utf-8"))
        if "accuracy" in r:
            score = f"{r['accuracy']['mean']:.1%}"
        else:
            score = f"{r['score']['mean']:.1f} BLEU"
        base = r["runs"][0].get("baselines", {}).get("TF-IDF + logistic regression")
        beside = f"{base['accuracy']:.1%}" if base else "–"
        time = time_told(r["runs"])
        if first := read(f"recipe-{BEFORE[name]}") if name in BEFORE else None:
            time += f", after {first['runs'][0]['seconds']['train'] / 60:.0f} of pre-training"
        lines.append(f"| {data} | {model} | {score} ({len(r['seeds'])}) | {beside} | {time} |")
    return "\n".join(lines)


def time_told(runs: list[dict[str, Any]]) -> str:
    """The median of training, and on what; a run may have stood beside other work."""
    quiet = alone(runs)
    seconds, machine = median(run["seconds"]["train"] for run in quiet), quiet[0]["machine"]
    time = f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
    if machine.get("gpu"):
        return f"{time} on a GPU" + company(quiet).removesuffix(" on the GPU")
    some = f" ({len(quiet)} of {len(runs)} seeds)" if len(quiet) < len(runs) else ""
    return f"{time} on {machine['threads']} thread{'s' * (machine['threads'] > 1)}{some}"


def machine_told(run: dict[str, Any]) -> str:
    """The machine of a run in words, with the version of torch."""
    m = run["machine"]
    bf16 = ", ".join(m["bf16"]) or "no bf16"
    gpu = f"{m['gpu']} with " if m.get("gpu") else ""
    return f"{gpu}{m['cpu']}, {m['cores']} cores ({bf16}), {m['memory_gib']:.0f} GiB, torch {run['versions']['torch']}"


def machines(results: list[dict[str, Any]]) -> dict[str, str]:
    """The machines that the figures come from, each with its letter: A, B."""
    names = sorted({machine_told(run) for result in results for run in result["runs"]})
    return {name: chr(ord("A") + i) for i, name in enumerate(names)}


def serve() -> str:
    """What the server does under load, one line a finding; parts that were not run are left out."""
    result = read("serve")
    if result is None:
        return "Not measured yet: `make bench-serve`."
    lines = ["| Under load | Measured | Threads, load of the machine before |", "|---|---|---|"]
    for part, say in SERVED.items():
        if part in result:
            load = result[part]["machine"]["load_before"][0]
            lines.append(f"| {say(result[part])} | {result[part]['threads']}, {load:.1f} |")
    return "\n".join([*lines, *asked_by()])


def asked_by() -> list[str]:
    """Clients of other makes, from clients.json."""
    result = read("clients")
    if result is None:
        return []
    names = list(next(iter(result["models"].values())))
    found = [c for m in result["models"].values() for c in m.values()]
    inputs, labels = (sum(c[key] for c in found) for key in ("inputs", "other_labels"))
    worst = max(c["largest_difference"] for c in found)
    where = f"{result['threads']}, {result['machine']['load_before'][0]:.1f}"
    return [
        f"| {', '.join(names)}; {' and '.join(result['models'])} | {inputs:,} inputs: {labels} other labels, "
        f"probabilities within {worst:.0e} of `predict_proba` | {where} |"
    ]


def _answers(r: dict[str, Any]) -> str:
    counts = [v for k, v in r.items() if k.endswith("clients")]
    asked = sum(sum(c["statuses"].values()) for c in counts)
    wrong, broken = (sum(c[key] for c in counts) for key in ("wrong", "broken"))
    failed = sum(n for c in counts for status, n in c["statuses"].items() if status >= "500")
    return (
        f"1, 8, 64 and 256 clients, fp32 within 1e-5 and bf16 within 0.02 | {asked:,} requests: {wrong} wrong, "
        f"{failed} answered 5xx, {broken} broken"
    )


WITH_PANDAS = {
    None: "",
    True: "; with pandas installed, which scikit-learn loads where it is",
    False: "; nothing but `glassformer[serve]` installed",
}
SERVED: dict[str, Callable[[dict[str, Any]], str]] = {
    "speed": lambda r: (
        "requests a second, 32 clients | "
        f"glassformer {r['requests_per_second_32_clients']['glassformer']['median']:.0f}, FastAPI and a pipeline "
        f"{r['requests_per_second_32_clients']['FastAPI + pipeline']['median']:.0f}: {times(r['times_the_peer'])}; "
        f"at 8 clients the 99th percentile is {r['p99_over_p50_8_clients']['median']:.1f} times the median"
    ),
    "answers": _answers,
    "overload": lambda r: (
        "a queue of 2,000 tokens, 64 clients | "
        + ", ".join(f"{n:,} answered {status}" for status, n in r["statuses"].items())
        + f"; a refusal took {r['refused_p99_ms']:.0f} ms at most in 99 % of cases"
    ),
    "restarts": lambda r: (
        f"{r['kills']} times `kill -9` under load | ready after {r['seconds_to_ready']['median']:.1f} s "
        f"({r['seconds_to_ready']['min']:.1f} to {r['seconds_to_ready']['max']:.1f}), "
        f"{r['wrong_or_broken_after']} wrong or broken answers after" + WITH_PANDAS[r.get("with_pandas")]
    ),
    "soak": lambda r: (
        f"{sum(r['statuses'].values()):,} requests ({r['model']}) | memory {r['memory_mib'][0]:,.0f} MiB, at the end "
        f"{r['memory_mib'][-1]:,.0f} ({r['growth']:+.1%}); {r['wrong']} wrong, {r['broken']} broken"
    ),
}


def export() -> str:
    """ONNX files beside their models: how far logits lie apart, labels that differ, and what int8 costs."""
    result = read("export")
    if result is None:
        return "Not measured yet: `make bench-export`."
    lines = [
        "| Build | Inputs | Largest difference of a logit | Labels changed | int8 |",
        "|---|---|---|---|---|",
    ]
    for name, m in result["models"].items():
        small = m.get("int8")
        cost = ""
        if small:
            accuracy = f"{small['accuracy_int8']:.1%} for {small['accuracy_fp32']:.1%}"
            cost = f"{small['labels_changed']} labels changed; accuracy {accuracy}"
        lines.append(
            f"| {name} | {m['inputs']:,} | {m['largest_difference']:.1e} | {m['labels_changed']} | {cost} |"
        )
    return "\n".join(lines)


def hf_export() -> str:
    """Exports in the Hub's layout under each transformers that opened them."""
    result = read("hf-export")
    if result is None:
        return "Not measured yet: `benchmarks/reliability/hf_exports.py --other-python PATH`."
    lines = [
        "| Build | transformers | Opened by | Inputs | Largest difference of a logit | Labels changed |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {e['build']} | {e['transformers']} | `{e['opened']}` | {e['inputs']:,} | {e['largest_difference']:.1e} "
        f"| {e['labels_changed']} |"
        for e in result["exports"]
    ]
    return "\n".join(lines)


def studies() -> str:
    """Every measured study as ``glassformer compare`` tells it, under a heading of its own."""
    from glassformer.study.results import markdown

    found = [json.loads(p.read_text(encoding="utf-8")) for p in sorted(RESULTS.glob("study-*.json"))]
    told = ["#" + markdown(study) + f"Read from `study-{study['name']}.json`." for study in found]
    return "\n\n".join(told) or "Not measured yet: `benchmarks/quality/studies.py NAME`."


PROMISED = {  # the rows of reliability.json that README.md shows, in short; docs/reliability.md has all, in full
    "kills": "`kill -9` at a random instant, half of them inside a save; resumed to the same bits",
    "signals": "SIGTERM or Ctrl-C at a random instant: saved, and the resumed run ends the same",
    "damages": "a checkpoint's file removed, cut, flipped, swapped: named, and the older one used",
    "tables": "malformed tables: read, or one error that names the file",
    "malicious": "pickles, impossible headers and paths in checkpoints: refused, nothing executed",
    "trainer_kills": "Hugging Face's Trainer under `kill -9`; resumed to the same bits",
}


def scoreboard() -> str:
    """The main promises, how often each was tested and how often it held, from reliability.json."""
    result = read("reliability")
    if result is None:
        return "Not measured yet: `make soak`."
    rows = result["rows"]
    lines = ["| Promise | Wanted | Run | Held |", "|---|---|---|---|"]
    lines += [
        f"| {said} | {rows[name]['asked']:,} | {rows[name]['run']:,} | {rows[name]['passed']:,} |"
        for name, said in PROMISED.items()
        if name in rows
    ]
    return "\n".join(lines)


TABLES: dict[str, Callable[[], str]] = tables_levels.TABLES | {
    "serve": serve,
    "export": export,
    "hf-export": hf_export,
    "recipes": recipes,
    "highlights": highlights,
    "explain": trust.explained,
    "before-after": trust.before_after,
    "calibration": trust.calibration,
    "label-noise": trust.label_noise,
    "studies": studies,
    "folds": tables_questions.folds,
    "questions": tables_questions.questions,
    "training": speed.training,
    "training-bert-base": speed.training_base,
    "levels": tables_levels.levels,
    "end-to-end": speed.end_to_end,
    "equal-accuracy": speed.equal_accuracy,
    "pretraining": speed.pretraining,
    "pictures-small": lambda: speed.pictures("small"),
    "pictures-base": lambda: speed.pictures("base"),
    "nearest-peers": lambda: speed.nearest_peers(ALIKE, tables_levels.LEVELS[ALIKE]),
    "reliability": scoreboard,
    "task-price": task_price.table,
    "inference": speed.inference,
    "embedding": speed.embedding,
    "families": speed.families,
    "rate": speed.rate,
    "kernels-fp32": speed.kernels_fp32,
    "int8": tables_int8.int8,
    "few-shot": tables_few.few_shot,
    "maps": speed.maps,
    "word-vectors-quality": language.quality,
    "word-vectors-seconds": lambda: language.quality_by_seconds(ALIKE),
    "translations": language.translations,
    "masked": language.masked,
    "starts": language.starts,
    "defaults": language.defaults,
    "auto": auto.table,
    "untuned": tables_untuned.untuned,
    "untuned-changes": tables_untuned.untuned_changes,
    "traps": language.traps,
    "cost": speed.cost,
    "cost-encoder": tables_questions.cost_encoder,
    "texts": speed.texts,
    "tuned": speed.tuned,
    "packages": tables_packages.packages,
    "padding": tables_padding.padding,
}


FIGURES: dict[str, Callable[[], str]] = {
    name + ending: partial(speed.against_trainer, setting, ending)
    for name, setting in (("best", "at its best"), ("common", "as commonly run"))
    for ending in tables_levels.LEVELS
}


WIDEST = 7  # columns that fit a laptop


def narrow(text: str) -> str:
    """Markdown whose wider tables are cut into several, each with the first column."""
    out, block = [], []
    for line in [*text.split("\n"), ""]:
        if line.startswith("|"):
            block.append(line)
            continue
        out += _cut(block)
        block = []
        out.append(line)
    return "\n".join(out[:-1])


def _cut(lines: list[str]) -> list[str]:
    rows = [re.split(r"(?<!\\)\|", line.strip().strip("|")) for line in lines]
    if not rows or len(rows[0]) <= WIDEST:
        return lines
    rest = len(rows[0]) - 1
    parts = -(-rest // (WIDEST - 1))
    edges = [1 + rest * i // parts for i in range(parts + 1)]
    tables = [
        ["|" + "|".join([row[0], *row[low:high]]) + "|" for row in rows] for low, high in pairwise(edges)
    ]
    empty = re.compile(r"\|[^|]*\|(?: – \|)+")  # nothing but a name
    return [line for table in tables for line in [*(row for row in table if not empty.fullmatch(row)), ""]][
        :-1
    ]


def filled(text: str) -> str:
    text = MARK.sub(lambda m: m[1] + narrow(TABLES[m[2]]()).rstrip() + "\n" + m[3], text)
    return FIGURE.sub(lambda m: m[1] + FIGURES[m[2]]() + m[3], text)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="change nothing, fail where a page is out of date"
    )
    args = parser.parse_args()
    stale = []
    for page in PAGES:
        path = ROOT / page
        old = path.read_text(encoding="utf-8")
        new = filled(old)
        if new != old:
            stale.append(page)
            if not args.check:
                path.write_text(new, encoding="utf-8")
    if stale and args.check:
        raise SystemExit(f"out of date: {', '.join(stale)}; run python -m benchmarks.pages.tables")


if __name__ == "__main__":
    main()
