"""The tables of speed and cost, each from its file in benchmarks/results; see tables.py."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"


def read(name: str) -> dict[str, Any] | None:
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def training(name: str = "train_imdb", command: str = "make bench") -> str:
    """Training speed beside the peers, from train_imdb.json or a file like it."""
    result = read(name)
    if result is None:
        return f"Not measured yet: `{command}`.\n"
    lines = ["| Contender | Real tokens/s (median, range) | glassformer is |", "|---|---|---|"]
    for c in result["contenders"]:
        speed = c["tokens_per_second"]
        ratio = result["glassformer_against"].get(c["name"])
        times = f"{ratio['median']:.1f} × ({ratio['min']:.1f} to {ratio['max']:.1f})" if ratio else ""
        lines.append(
            f"| {c['name']} | {speed['median']:,.0f} ({speed['min']:,.0f} to {speed['max']:,.0f}) | {times} |"
        )
    return "\n".join([*lines, *attentions(result["contenders"])]) + "\n"


def attentions(contenders: list[dict[str, Any]]) -> list[str]:
    """Which attention the peers took that were given the choice; and that one in bf16 was not, where it was not."""
    ours = [c for c in contenders if c["name"].startswith("glassformer")]
    peers = [
        c
        for c in contenders
        if c not in ours and "OpenVINO" not in c["name"] and "as it comes" not in c["name"]
    ]
    chosen = [(c["name"], a) for c in peers if "times the time" in (a := c["setting"].get("attention", ""))]
    told = ["", "Attention taken: " + "; ".join(f"{name}: {a}" for name, a in chosen) + "."] if chosen else []
    if any("bf16" in c["setting"].get("precision", "") for c in peers if c["name"] not in dict(chosen)):
        told += [
            "",
            "Measured before peers had the choice: those in bf16 had sdpa, which may not be their faster attention.",
        ]
    return told


def training_base(ending: str = "") -> str:
    """The same at BERT-base's size."""
    command = "benchmarks/speed/train_imdb.py --model bert-base --contenders best glassformer"
    return training("train_imdb-bert-base" + ending, command)


def end_to_end(ending: str = "") -> str:
    """The whole command before the work on speed and now, from end-to-end.json."""
    result = read("end-to-end" + ending)
    if result is None:
        return "Not measured yet: `benchmarks/speed/end_to_end.py`.\n"
    said = {"before": f"before (commit {result['before']})", "now": "now"}
    lines = [
        "| | Seconds, command to report (median, range) | Training's tokens/s | Peak memory, MB | Test accuracy |",
        "|---|---|---|---|---|",
    ]
    for when, runs in result["runs"].items():
        took, first = result["seconds"][when], runs[0]
        lines.append(
            f"| {said[when]} | {took['median']:,.0f} ({took['min']:,.0f} to {took['max']:,.0f}) "
            f"| {statistics.median(run['tokens_per_second'] for run in runs):,.0f} "
            f"| {max(run['peak_memory_mb'] for run in runs):,} | {first['accuracy']:.2%} of {first['judged']:,} |"
        )
    told = f"Before took {times(result['before_against_now'])} as long, over {len(runs)} rounds"
    part = (
        f"; at most {result['limit']:,} examples of a split." if result["limit"] else "; the whole data set."
    )
    return "\n".join([*lines, "", told + part, "", measured(result)]) + "\n"


def equal_accuracy() -> str:
    """Accuracy of both after the same epoch, seed by seed, from equal-accuracy.json, or the larger equal-accuracy-full.json."""
    full = read("equal-accuracy-full")
    if full is not None and "difference" in full:
        gap, runs = full["difference"], [{"seed": seed, **run} for seed, run in full["runs"].items()]
        low, high = gap["interval"]
        interval = f"95 % interval {low:+.2f} to {high:+.2f}"
    elif (full := read("equal-accuracy")) is not None:
        gap, runs = full["difference_points"], full["runs"]
        gap, interval = {"points": gap["mean"]}, f"{gap['min']:+.2f} to {gap['max']:+.2f}"
    else:
        return "Not measured yet: `make bench-equal_accuracy`.\n"
    names = list(full["accuracy"])
    lines = [f"| Seed | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    for run in runs:
        if all(name in run for name in names):
            lines.append(
                f"| {run['seed']} | " + " | ".join(f"{run[name]['accuracy']:.2%}" for name in names) + " |"
            )
    lines.append("| mean | " + " | ".join(f"{full['accuracy'][name]:.2%}" for name in names) + " |")
    said = f"Ours minus the Trainer's: {gap['points']:+.2f} points ({interval})"
    learned = f"{full['train_reviews']:,} reviews to learn from, {full['judged_reviews']:,} judged a seed"
    return "\n".join([*lines, "", f"{said}; {learned}."]) + "\n"


def pretraining(ending: str = "") -> str:
    """Pre-training beside HF Trainer, from pretrain.json."""
    return compared("pretrain" + ending, "make bench-pretrain", "tokens_per_second", "Real tokens/s")


def pictures(size: str, ending: str = "") -> str:
    """Training on pictures beside a loop over transformers' model, from train_pictures-SIZE.json."""
    command = f"make bench-train_pictures ARGS='--size {size}'"
    return compared(f"train_pictures-{size}{ending}", command, "pictures_per_second", "Pictures/s")


def compared(name: str, command: str, rate: str, unit: str) -> str:
    """Contenders with their rate, the ratio to each peer, and how far its loss lies from ours."""
    result = read(name)
    if result is None:
        return f"Not measured yet: `{command}`.\n"
    lines = [
        f"| Contender | {unit} (median, range) | glassformer is | Its loss, beside ours |",
        "|---|---|---|---|",
    ]
    for c in result["contenders"]:
        speed, apart = c[rate], result["loss_against_glassformer"].get(c["name"])
        form = ",.0f" if speed["median"] >= 100 else ",.1f"
        lines.append(
            f"| {c['name']} | {speed['median']:{form}} ({speed['min']:{form}} to {speed['max']:{form}}) "
            f"| {times(result['glassformer_against'].get(c['name']))} | {'' if apart is None else f'{apart:+.1%}'} |"
        )
    return "\n".join([*lines, *attentions(result["contenders"]), "", measured(result)]) + "\n"


def times(ratio: dict[str, float] | None) -> str:
    """A ratio with its range."""
    return f"{ratio['median']:.1f} × ({ratio['min']:.1f} to {ratio['max']:.1f})" if ratio else ""


def inference_part(part: str, checked: str, ending: str = "") -> str:
    result = read("inference" + ending)
    if result is None:
        return "Not measured yet: `make bench-inference`.\n"
    found = result[part]
    lines = [
        f"| Contender | Reviews/s (median, range) | glassformer is | {checked} | Made ready in |",
        "|---|---|---|---|---|",
    ]
    for c in found["contenders"]:
        speed = c["reviews_per_second"]
        same = found["agreement"].get(c["name"])
        lines.append(
            f"| {c['name']} | {speed['median']:,.0f} ({speed['min']:,.0f} to {speed['max']:,.0f}) "
            f"| {times(found['glassformer_against'].get(c['name']))} | {'' if same is None else f'{same:.4f}'} "
            f"| {c['setting']['prepare_seconds']:.0f} s |"
        )
    against = found.get("int8_against", {})
    if against:
        gate = result["int8_gate"]
        told = ", ".join(f"{times(ratio)} {name}" for name, ratio in against.items())
        lines += [
            "",
            f"In int8 glassformer is {told}; its gate: {gate['agree']:.2%} of {gate['n']:,} labels as in fp32.",
        ]
    return "\n".join([*lines, *attentions(found["contenders"]), "", measured(result)])


def inference(ending: str = "") -> str:
    """Raw text to labels beside the peers, from inference.json."""
    return inference_part("labels", "Equal labels", ending)


def embedding(ending: str = "") -> str:
    """Raw text to embeddings beside sentence-transformers, from inference.json."""
    return inference_part("vectors", "Lowest cosine", ending)


def nearest_peers(ending: str = "", level: str = "") -> str:
    """A line for each kind of work: glassformer beside the peer that comes nearest; the page has them all.

    ``ending`` is that of a level's files, ``level`` the level's name.
    """
    found = []  # what is done, its contenders, their rate, the ratios to the peers, and where it was measured
    if result := read("train_imdb" + ending):
        ratios = result["glassformer_against"]
        found.append(
            ("Fine-tuning MiniLM, real tokens", result["contenders"], "tokens_per_second", ratios, result)
        )
    if result := read("inference" + ending):
        for part, said in (("labels", "Reviews to labels"), ("vectors", "Reviews to embeddings")):
            one = result[part]
            found.append((said, one["contenders"], "reviews_per_second", one["glassformer_against"], result))
    if result := read("pretrain" + ending):
        ratios = result["glassformer_against"]
        found.append(("Pre-training, real tokens", result["contenders"], "tokens_per_second", ratios, result))
    if result := read("word2vec-speed" + ending):
        where = result["environment"]
        where = where | {"threads": where["machine"]["threads"]}
        ratios = {
            c["name"]: result["ratio"]
            for c in result["contenders"]
            if not c["name"].startswith("glassformer")
        }
        found.append(("Word vectors, words", result["contenders"], "tokens_per_second", ratios, where))
    lines = ["| Work, each a second | Nearest peer | glassformer | glassformer is |", "|---|---|---|---|"]
    places: dict[str, list[str]] = {}
    before = []
    for said, contenders, rate, ratios, where in found:
        nearest = min(ratios, key=lambda name: ratios[name]["median"])
        peer = next(c for c in contenders if c["name"] == nearest)
        ours = next(c for c in contenders if c["name"].startswith("glassformer"))
        rates = f"{peer[rate]['median']:,.0f} | {ours[rate]['median']:,.0f}"
        lines.append(f"| {said} | {nearest}: {rates} | {times(ratios[nearest])} |")
        before += [(said, line) for line in attentions(contenders) if line.startswith("Measured before")]
        places.setdefault(where["machine"]["cpu"], []).append(said[0].lower() + said[1:])
    if not found:
        return "Not measured yet: `make bench-inference`."
    machines = [f"{cpu} ({', '.join(works)})" if len(places) > 1 else cpu for cpu, works in places.items()]
    told = [f"Two threads on {'; '.join(machines)}{level and f', {level}'}."]
    if before:  # the same words for each of them
        told.append(f"{', '.join(said for said, _ in before)}: m{before[0][1][1:]}")
    return "\n".join([*lines, "", *told])


def families() -> str:
    """RoBERTa and DistilBERT of base size beside transformers at its best, from families.json."""
    result = read("families")
    if result is None:
        return "Not measured yet: `make bench-families`.\n"
    lines = ["| Work | Peer | Peer, real tokens/s | glassformer | glassformer is |", "|---|---|---|---|---|"]
    for family, works in result["families"].items():
        for work, found in works.items():
            peer, ours = (c["tokens_per_second"]["median"] for c in sorted_by_side(found["contenders"]))
            (name, ratio), *_ = found["glassformer_against"].items()
            lines.append(f"| {family}, {work} | {name} | {peer:,.0f} | {ours:,.0f} | {times(ratio)} |")
    return "\n".join([*lines, "", measured(result)]) + "\n"


def sorted_by_side(contenders: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The peers first, ours last."""
    return sorted(contenders, key=lambda c: c["name"].startswith("glassformer"))


def against_trainer(setting: str, ending: str = "") -> str:
    """How many times as fast as the Trainer a fine-tuning step of MiniLM is, ``at its best`` or ``as commonly run``."""
    result = read("train_imdb" + ending)
    return (
        "?" if result is None else f"{result['glassformer_against'][f'HF Trainer, {setting}']['median']:.1f}"
    )


def maps(ending: str = "") -> str:
    """What attention maps cost, from maps.json."""
    result = read("maps" + ending)
    if result is None:
        return "Not measured yet: `make bench-maps`.\n"
    lines = ["| Forward pass | Time, of the plain one | Against all maps of glassformer |", "|---|---|---|"]
    for c in result["contenders"]:
        share = result["time_against_plain"].get(c["name"])
        share = f"{share['median']:.2f} ({share['min']:.2f} to {share['max']:.2f})" if share else ""
        slower = result["all_maps_against"].get(c["name"])
        lines.append(f"| {c['name']} | {share} | {times(slower) and times(slower) + ' the time'} |")
    return "\n".join([*lines, "", measured(result)])


def word_vectors(ending: str = "") -> str:
    """Words a second beside gensim, from word2vec-speed.json."""
    result = read("word2vec-speed" + ending)
    if result is None:
        return "Not measured yet: `benchmarks/speed/word2vec.py speed`.\n"
    lines = ["| Contender | Words/s (median, range) | glassformer is |", "|---|---|---|"]
    where = result["environment"]
    for c in result["contenders"]:
        speed, ours = c["tokens_per_second"], c["name"].startswith("glassformer")
        shown = f"{speed['median']:,.0f} ({speed['min']:,.0f} to {speed['max']:,.0f})"
        lines.append(f"| {c['name']} | {shown} | {'' if ours else times(result['ratio'])} |")
    return "\n".join([*lines, "", measured(where | {"threads": where["machine"]["threads"]})])


def cost() -> str:
    """Attention's variants against length, from cost-attention.json."""
    result = read("cost-attention")
    if result is None:
        return "Not measured yet: `benchmarks/speed/cost.py attention`.\n"
    kinds = ("full", "local", "linear")
    lines = ["| Length | " + " | ".join(f"{k}: ms, MB" for k in kinds) + " |", "|---|---|---|---|"]
    for length, found in result["attention_forward_backward"].items():
        cells = [f"{found[k]['median_ms']:,.0f}, {found[k]['added_mb']:,.0f}" for k in kinds]
        lines.append(f"| {int(length):,} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", measured(result)])


def texts() -> str:
    """Prediction of many texts, from cost-texts.json."""
    result = read("cost-texts")
    if result is None:
        return "Not measured yet: `benchmarks/speed/cost.py texts`.\n"
    lines = ["| Texts | Texts/s | Memory added, MB | The texts themselves, MB |", "|---|---|---|---|"]
    for row in result["rows"]:
        lines.append(
            f"| {row['texts']:,} | {row['texts_per_second']:,.0f} | {row['added_mb']:,.0f} | {row['texts_mb']:,.0f} |"
        )
    return "\n".join([*lines, "", measured(result)])


def rate(ending: str = "") -> str:
    """The share of the machine's rate, and where the time goes, from rate.json and rate-bert-base.json."""
    found = [r for name in ("rate", "rate-bert-base") if (r := read(name + ending))]
    if not found:
        return "Not measured yet: `benchmarks/speed/rate.py`.\n"
    works = [(r["model"], w) for r in found for w in r["works"]]
    lines = [
        "| | " + " | ".join(f"{model}: {w['work']}" for model, w in works) + " |",
        "|---|" + "---|" * len(works),
    ]
    shares = [w["share_of_rate"] for _, w in works]
    told = [f"**{s['median']:.0%}** ({s['min']:.0%} to {s['max']:.0%})" for s in shares]
    lines.append("| Share of the rate | " + " | ".join(told) + " |")
    for part in works[0][1]["time_in"]:
        lines.append(
            f"| Time in {part} | " + " | ".join(f"{w['time_in'][part]:.1%}" for _, w in works) + " |"
        )
    told = []
    for r in found:
        shape, best = max(r["machine_tflops"].items(), key=lambda x: x[1]["median"])
        numbers = "fp32" if r["precision"] == "float32" else "bf16"
        told.append(
            f"{r['model']}: the machine's rate in {numbers} is {best['median']:.2f} TFLOP/s ({shape}). {measured(r)}"
        )
    if len({r["machine"]["cpu"] for r in found}) > 1:
        told.append("The models were measured on different processors, so their columns do not compare.")
    return "\n".join([*lines, "", *told])


def kernels_fp32() -> str:
    """Torch's way beside the kernels in fp32, at levels limited by switches, from kernels-fp32.json."""
    result = read("kernels-fp32")
    if result is None:
        return "Not measured yet: `benchmarks/speed/kernels_fp32.py`.\n"
    levels = list(result["levels"].values())
    lines = ["| | " + " | ".join(f"{level['level']}: torch takes" for level in levels) + " |"]
    lines.append("|---|" + "---|" * len(levels))
    for kind in ("whole", "alone"):
        for name in levels[0][kind]:
            found = [level[kind][name]["glassformer_against_torch"] for level in levels]
            told = [f"{r['median']:.2f} × ({r['min']:.2f} to {r['max']:.2f})" for r in found]
            lines.append(f"| {name} | " + " | ".join(told) + " |")
    took = [levels[0]["whole"][name]["milliseconds"] for name in levels[0]["whole"]]
    told = [f"{t['torch']['median']:,.0f} and {t['glassformer']['median']:,.0f} ms" for t in took]
    return "\n".join(
        [
            *lines,
            "",
            f"Training step and prediction over {sum(levels[0]['tokens']):,} tokens with {levels[0]['level']}: "
            f"{'; '.join(told)}. {result['rounds']} rounds, the process's time on one core. {measured(result)}",
        ]
    )


def tuned() -> str:
    """A tuned process beside one as Python starts it, from tuned.json."""
    result = read("tuned")
    if result is None:
        return "Not measured yet: `benchmarks/speed/tuned.py`.\n"
    lines = [
        "| Work | Other busy processes | Tuned is | Largest memory, tuned | As Python starts it |",
        "|---|---|---|---|---|",
    ]
    for part in (result["alone"], result["beside"]):
        for work, gain in part["gain"].items():
            peaks = [
                f"{c['windows'][-1]['peak_mb']:,.0f} MB"
                for tuned in (True, False)
                for c in part["contenders"]
                if c["setting"]["work"] == work and c["setting"]["tuned"] is tuned
            ]
            ratio = f"{gain['median']:.2f} × ({gain['min']:.2f} to {gain['max']:.2f})"
            lines.append(f"| {work} | {part['busy'] or 'none'} | {ratio} | {peaks[0]} | {peaks[1]} |")
    return "\n".join([*lines, "", f"{result['rounds']} rounds. {measured(result)}"])


def measured(result: dict[str, Any]) -> str:
    """On which machine, with how many threads, when."""
    m = result["machine"]
    return (
        f"Measured on {m['cpu']}, {result['threads']} thread{'s' * (result['threads'] > 1)}, load before "
        f"{m['load_before'][0]:.1f}; torch {result['versions']['torch']}, {result['date'][:10]}."
    )
