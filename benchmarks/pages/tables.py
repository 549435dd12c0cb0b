"""Write the tables of README.md and of the documentation from benchmarks/results/*.json; nothing is typed by hand.

    .venv/bin/python -m benchmarks.pages.tables [--check]

A table stands between ``<!-- table: NAME -->`` and ``<!-- end -->``.
"""

import re
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from benchmarks.harness.options import parse
from benchmarks.harness.results import ROOT
from benchmarks.pages import tables_quality, tables_speed, task_price
from benchmarks.pages.markdown import Table, of, read, read_all, table, text, times
from glassformer.report.published import headline, shared_gpu_note, without_shared_gpu

PAGES = (
    "README.md",
    "docs/speed.md",
    "docs/benchmarks.md",
    "docs/guide/serve.md",
    "docs/guide/export.md",
    "docs/studies.md",
    "docs/faithfulness.md",
    "docs/guide/audit.md",
    "docs/guide/pairs.md",
    "docs/sequences.md",
    "docs/word-vectors.md",
    "docs/defaults.md",
    "docs/questions.md",
    "docs/install.md",
    "docs/guide/long-inputs.md",
    "docs/guide/semantic-search.md",
    "docs/guide/should-you.md",
    "docs/tutorial/reviews.md",
    "docs/tutorial/photos.md",
    "docs/tutorial/entities.md",
    "docs/extend.md",
)
ALIKE = "-avx512"  # the level whose files are all of one state of the code
MARK = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
FIGURE = re.compile(r"(<!-- figure: (\S+) -->).*?(<!-- end -->)")  # a number inside a sentence
WIDEST = 7  # columns that fit a laptop
FURTHER = "a linear head on a frozen DINOv2-small (a variant trained further for saliency)"
SHOWN = {  # the lines of the README's table, by recipe: data, and the model in a few words
    "imdb-minilm-best": ("IMDb reviews", "MiniLM, fine-tuned"),
    "imdb-from-mlm": ("IMDb reviews", "a small encoder, pre-trained here on IMDb's own text"),
    "ntc-bert": ("NTC-SCV, Vietnamese reviews", "a small BERT, pre-trained here on NTC-SCV's own text"),
    "multi30k-transformer": ("Multi30k, English to German", "a Transformer from scratch"),
    "cifar10-vit-stem": ("CIFAR-10", "a ViT with a convolution stem, from scratch"),
    "flowers-best": ("Flowers, five kinds", "a ViT from scratch"),
    "flowers-dinov2-frozen": ("Flowers, five kinds", FURTHER),
}
BEFORE = {"imdb-from-mlm": "imdb-mlm", "ntc-bert": "ntc-mlm"}  # what had to be trained first
TFIDF, BAG = "TF-IDF + logistic regression", "mean bag of embeddings"


# --- recipes --------------------------------------------------------------------------------------


def recipes() -> str:
    """One line a recipe of a classifier: test accuracy over seeds, beside the baselines of the same split."""
    results = [r for r in read_all("recipe-*") if "accuracy" in r]
    machines = sorted({machine_told(run) for r in results for run in r["runs"]})
    letters = {name: chr(ord("A") + i) for i, name in enumerate(machines)}
    rows = []
    for r in results:
        runs, seeds, known = r["runs"], len(r["seeds"]), r["runs"][0]["baselines"]
        low_high = f"{r['accuracy']['min']:.2%} to {r['accuracy']['max']:.2%}" if seeds > 1 else "one seed"
        reached = f"{fmean(headline(run)[0] for run in runs):.2%} ({seeds})"
        of_pairs = "TF-IDF of both sides + logistic regression"
        found = [known.get(TFIDF, known.get(of_pairs)), known.get(BAG)]
        base = [f"{one['accuracy']:.2%}" if one else "" for one in found]
        memory = f"{max(x['peak_memory_mb'] for x in without_shared_gpu(runs)) / 1000:.1f} GB"
        where = ", ".join(sorted({letters[machine_told(run)] for run in runs}))
        rows.append((f"`{r['recipe']}`", reached, low_high, *base, time_told(runs), memory, where))
    head = f"Recipe | Test accuracy (seeds) | Range | {TFIDF} | {BAG.capitalize()} | Training time | Peak memory | Machine"
    about = (
        f"Times are medians over the seeds. Machine {'; '.join(f'{letters[name]}: {name}' for name in machines)}. "
        "The intervals of single runs, the curves, the settings, versions and dates are in `benchmarks/results/recipe-*.json`."
    )
    return text(table(head, rows), about)


def highlights() -> str:
    """The best of what was measured, a line a data set; docs/results.md has everything."""
    rows = []
    for name, (data, model) in SHOWN.items():
        if (r := read(f"recipe-{name}")) is None:
            continue
        score = f"{r['accuracy']['mean']:.1%}" if "accuracy" in r else f"{r['score']['mean']:.1f} BLEU"
        base = r["runs"][0].get("baselines", {}).get(TFIDF)
        time = time_told(r["runs"])
        if first := read(f"recipe-{BEFORE[name]}") if name in BEFORE else None:
            time += f", after {first['runs'][0]['seconds']['train'] / 60:.0f} min of pre-training"
        beside = f"{base['accuracy']:.1%}" if base else "–"
        rows.append((data, model, f"{score} ({len(r['seeds'])})", beside, time))
    return text(table("Data | Model | Test score (seeds) | TF-IDF | Training time", rows))


def time_told(runs: list[dict[str, Any]]) -> str:
    """The median of training, and on what; a run may have stood beside other work."""
    quiet = without_shared_gpu(runs)
    seconds, machine = median(run["seconds"]["train"] for run in quiet), quiet[0]["machine"]
    time = f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
    if machine.get("gpu"):
        return f"{time} on a GPU" + shared_gpu_note(quiet).removesuffix(" on the GPU")
    some = f" ({len(quiet)} of {len(runs)} seeds timed)" if len(quiet) < len(runs) else ""
    return f"{time} on {machine['threads']} thread{'s' * (machine['threads'] > 1)}{some}"


def machine_told(run: dict[str, Any]) -> str:
    """The machine of a run in words, with the version of torch."""
    m = run["machine"]
    bf16 = ", ".join(m["bf16"]) or "no bf16"
    gpu = f"{m['gpu']} with " if m.get("gpu") else ""
    return f"{gpu}{m['cpu']}, {m['cores']} cores ({bf16}), {m['memory_gib']:.0f} GiB, torch {run['versions']['torch']}"


# --- the server and exports -----------------------------------------------------------------------


@of("serve", "make bench-serve")
def serve(result: dict[str, Any]) -> str:
    """What the server does under load, one line a finding; parts that were not run are left out."""

    def where(found: dict[str, Any]) -> tuple[str, str]:
        return str(found["threads"]), f"{found['machine']['load_before'][0]:.1f}"

    rows = [(*say(result[part]), *where(result[part])) for part, say in SERVED.items() if part in result]
    if clients := read("clients"):
        found = [c for m in clients["models"].values() for c in m.values()]
        inputs, labels = (sum(c[key] for c in found) for key in ("inputs", "other_labels"))
        worst, names = max(c["largest_difference"] for c in found), next(iter(clients["models"].values()))
        who = f"{', '.join(names)}; {' and '.join(clients['models'])}"
        told = f"{inputs:,} inputs: {labels} different labels, probabilities within {worst:.0e} of `predict_proba`"
        rows.append((who, told, *where(clients)))
    return text(table("Test | Result | Threads | Load average before", rows))


def _answers(r: dict[str, Any]) -> tuple[str, str]:
    counts = [v for k, v in r.items() if k.endswith("clients")]
    asked = sum(sum(c["statuses"].values()) for c in counts)
    wrong, broken = (sum(c[key] for c in counts) for key in ("wrong", "broken"))
    failed = sum(n for c in counts for status, n in c["statuses"].items() if status >= "500")
    told = f"{asked:,} requests: {wrong} wrong predictions, {failed} responses 5xx, {broken} broken responses"
    about = "predictions compared with `predict_proba` (fp32 within 1e-5, bf16 within 0.02); 1, 8, 64 and 256 clients"
    return about, told


PANDAS = "; pandas was installed, so scikit-learn loads it"
WITH_PANDAS = {None: "", True: PANDAS, False: "; only `glassformer[serve]` was installed"}
SERVED: dict[str, Callable[[dict[str, Any]], tuple[str, str]]] = {
    "speed": lambda r: (
        "requests per second, 32 clients",
        f"glassformer {r['requests_per_second_32_clients']['glassformer']['median']:.0f}, FastAPI with a pipeline "
        f"{r['requests_per_second_32_clients']['FastAPI + pipeline']['median']:.0f}: {times(r['times_the_peer'])}; "
        f"at 8 clients, the 99th percentile of the latency is {r['p99_over_p50_8_clients']['median']:.1f} times the median",
    ),
    "answers": _answers,
    "overload": lambda r: (
        "overload: a queue of 2,000 tokens, 64 clients",
        ", ".join(f"{n:,} responses {status}" for status, n in r["statuses"].items())
        + f"; 99th percentile of the latency of the 429 responses: {r['refused_p99_ms']:.0f} ms",
    ),
    "restarts": lambda r: (
        f"restarts: {r['kills']} times `kill -9` under load",
        f"ready after {r['seconds_to_ready']['median']:.1f} s "
        f"({r['seconds_to_ready']['min']:.1f} to {r['seconds_to_ready']['max']:.1f}), "
        f"{r['wrong_or_broken_after']} wrong or broken responses afterwards"
        + WITH_PANDAS[r.get("with_pandas")],
    ),
    "soak": lambda r: (
        f"{sum(r['statuses'].values()):,} requests ({r['model']})",
        f"memory at the start {r['memory_mib'][0]:,.0f} MiB, at the end {r['memory_mib'][-1]:,.0f} MiB ({r['growth']:+.1%}); "
        f"{r['wrong']} wrong, {r['broken']} broken",
    ),
}


@of("export", "make bench-export")
def export(result: dict[str, Any]) -> str:
    """ONNX files beside their models: how far logits lie apart, labels that differ, and what int8 costs."""
    rows = []
    for name, m in result["models"].items():
        cost = ""
        if small := m.get("int8"):
            accuracy = f"{small['accuracy_int8']:.1%} instead of {small['accuracy_fp32']:.1%}"
            cost = f"{small['labels_changed']} labels changed; accuracy {accuracy}"
        rows.append((name, f"{m['inputs']:,}", f"{m['largest_difference']:.1e}", m["labels_changed"], cost))
    return text(table("Model | Inputs | Largest difference of a logit | Labels changed | int8", rows))


@of("hf-export", "benchmarks/reliability/hf_exports.py --other-python PATH")
def hf_export(result: dict[str, Any]) -> str:
    """Exports in the Hub's layout under each transformers that opened them."""
    rows = []
    for e in result["exports"]:
        apart = f"{e['inputs']:,}", f"{e['largest_difference']:.1e}", e["labels_changed"]
        rows.append((e["build"], e["transformers"], f"`{e['opened']}`", *apart))
    head = "Model | transformers | Opened by | Inputs | Largest difference of a logit | Labels changed"
    return text(table(head, rows))


# --- promises -------------------------------------------------------------------------------------


def passed(steps: dict[str, dict[str, Any]], name: str) -> bool:
    """Whether a step of packages was made and ended well."""
    return "seconds" in steps.get(name, {})


def counted(step: dict[str, Any]) -> str:
    """How many tests passed, or that some did not."""
    if "failed" in step:
        return "failed"
    return step["said"].split(" passed")[0] if "said" in step else "not run"


def extras(steps: dict[str, dict[str, Any]]) -> tuple[str, str]:
    """How many of the tried extras install and import, and how many of their tests passed; failures by name."""
    tried = [name for name in steps if name.startswith("[") and name.endswith("]")]
    wrong = [name for name in tried if not (passed(steps, name) and passed(steps, f"{name} imports"))]
    judged = [steps[f"{name} tests"] for name in tried if f"{name} tests" in steps]
    failed = [name for name in tried if "failed" in steps.get(f"{name} tests", {})]
    total = sum(int(counted(step)) for step in judged if "said" in step)
    installed = f"{len(tried) - len(wrong)} of {len(tried)}" if tried else "not tried"
    if wrong:
        installed += f", not {', '.join(wrong)}"
    return installed, f"{total}" + (f", failures in {', '.join(failed)}" if failed else "")


def order(column: dict[str, Any]) -> tuple[list[int], bool]:
    """Older Pythons first, the wheel before the source package."""
    return [int(part) for part in column["python"].split(".")], column["package"] != "wheel"


@of("packages", "benchmarks/reliability/packages.py")
def packages(result: dict[str, Any]) -> str:
    """A line a Python and a package: what was installed, ran and passed in an environment of its own."""
    head = "Python | Package | torch | `demo --quick` | Tests of the core | Extras that install | Tests of extras"
    lines = table(head, [])
    for t in sorted(result["tried"], key=order):
        steps = t["steps"]
        torch = steps.get("torch", {}).get("said") or f"{t['torch']} build"
        begins = f"| {t['python']} | {t['package']} | {torch}"
        if not passed(steps, "core"):
            why = steps.get("core", {}).get("failed", "not reached").splitlines()[0]
            lines.append(f"{begins} | {why} | | | |")
            continue
        demo = steps.get("demo --quick", {})
        time = "failed" if demo else "not run"
        if passed(steps, "demo --quick"):
            time = f"{demo['seconds']:.0f} s"
            time += f", load {demo['load_before']:.0f}" if "load_before" in demo else ""
            if "processor_seconds" in demo:
                time += f"; {demo['processor_seconds']:.0f} CPU seconds"
        tests = counted(steps.get("tests", {}))
        lines.append(f"{begins} | {time} | {tests} | {' | '.join(extras(steps))} |")
    by: dict[str, list[str]] = {}
    for t in sorted(result["tried"], key=order):
        version = ".".join(t["python"].split(".")[:2])
        if version not in (versions := by.setdefault(t["installer"], [])):
            versions.append(version)
    note = "; ".join(f"{installer} for Python {' and '.join(versions)}" for installer, versions in by.items())
    note = f"Installers: {note}. Each environment was empty at first. The counts are of passed tests."
    return text(lines, f"{note} One core of {result['machine']['cpu']}.")


TABLES: dict[str, Table] = {
    **tables_speed.TABLES,
    **tables_quality.TABLES,
    "nearest-peers": partial(tables_speed.nearest_peers, ALIKE, tables_speed.LEVELS[ALIKE]),
    "serve": serve,
    "export": export,
    "hf-export": hf_export,
    "recipes": recipes,
    "highlights": highlights,
    "packages": packages,
    "task-price": task_price.table,
}


def kills() -> str:
    """How often a training that was killed went on to the same bits, and how often the Trainer did."""
    rows = read("reliability")["rows"]
    ours, theirs = (f"{rows[key]['passed']} of {rows[key]['run']}" for key in ("kills", "trainer_kills"))
    return f"{ours} tries (Hugging Face's Trainer: {theirs})"


def demo(method: str) -> str:
    """The mean accuracy of a way over the draws of the demo's messages, in %."""
    return f"{100 * fmean(draw[method]['accuracy'] for draw in read('demo')['draws']):.0f}"


def mean_of(recipe: str, metric: str) -> str:
    """The mean over seeds of a recipe's score, in %."""
    return f"{100 * read(f'recipe-{recipe}')[metric]['mean']:.1f}"


FIGURES = {
    "flowers-dinov2-frozen": partial(mean_of, "flowers-dinov2-frozen", "accuracy"),
    "wnut17-minilm": partial(mean_of, "wnut17-minilm", "entity_f1"),
    "imdb-minilm-best": partial(mean_of, "imdb-minilm-best", "accuracy"),
    "kills": kills,
    **{f"demo-{name}": partial(demo, name) for name in ("ours", "svc", "embeddings")},
    "nearest-training-avx512": partial(tables_speed.nearest_ratio, "train_imdb", ending=ALIKE),
    "nearest-base-avx512": partial(tables_speed.nearest_ratio, "train_imdb-bert-base", ending=ALIKE),
    "nearest-labels-avx2": partial(tables_speed.nearest_ratio, "inference", "labels", "-avx2"),
    "nearest-embedding-avx512": partial(tables_speed.nearest_ratio, "inference", "vectors", ALIKE),
}


# --- pages ----------------------------------------------------------------------------------------


def narrow(said: str) -> str:
    """Markdown whose wider tables are cut into several, each with the first column."""
    out, block = [], []
    for line in [*said.split("\n"), ""]:
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
    tables = [[f"|{'|'.join([row[0], *row[low:high]])}|" for row in rows] for low, high in pairwise(edges)]
    empty = re.compile(r"\|[^|]*\|(?: – \|)+")  # nothing but a name
    kept = [line for part in tables for line in [*(row for row in part if not empty.fullmatch(row)), ""]]
    return kept[:-1]


def filled(page: str) -> str:
    page = MARK.sub(lambda m: m[1] + narrow(TABLES[m[2]]()).rstrip() + "\n" + m[3], page)
    return FIGURE.sub(lambda m: m[1] + FIGURES[m[2]]() + m[3], page)


MADE: dict[str, Callable[[str], str]] = {  # a file -> what it holds now, from what it held
    **dict.fromkeys(PAGES, filled),
    "docs/_static/speed.svg": lambda _: tables_speed.nearest_chart(ALIKE),
}


def main() -> None:
    args = parse(__doc__, check=(False, "change nothing, fail where a page is out of date"))
    stale = []
    for page, make in MADE.items():
        path = ROOT / page
        old = path.read_text(encoding="utf-8") if path.is_file() else ""
        new = make(old)
        if new != old:
            stale.append(page)
            if not args.check:
                path.write_text(new, encoding="utf-8")
    if stale and args.check:
        raise SystemExit(f"out of date: {', '.join(stale)}; run python -m benchmarks.pages.tables")


if __name__ == "__main__":
    main()
