"""The tables of speed, memory and cost, and of speed by kind of processor."""

import statistics
from functools import partial
from statistics import median
from typing import Any

from benchmarks.pages.markdown import Table, measured, missing, of, read, span, spread, table, text, times
from glassformer.report.charts import bar_panels

# The end of a file's name, and how the level is called; what every table is without an ending comes from AMX.
LEVELS = {"": "AMX", "-avx512": "AVX512-BF16", "-avx2": "AVX2"}
TRAINED = (("train_imdb", "Fine-tuning MiniLM"), ("train_imdb-bert-base", "Fine-tuning, BERT-base size"))
ANSWERED = ("HF pipeline", "HF, sorted", "ONNX Runtime, fp32", "ONNX Runtime, int8", "OpenVINO")
BERT_BASE = "benchmarks/speed/train_imdb.py --model bert-base --contenders best glassformer"
WORKS = (  # the result file and its part, what is done, and the rate
    ("train_imdb", "", "Fine-tuning MiniLM, real tokens", "tokens_per_second"),
    ("train_pictures-small", "", "Training a small ViT, images", "pictures_per_second"),
    ("inference", "labels", "Reviews to labels", "reviews_per_second"),
    ("inference", "vectors", "Reviews to embeddings", "reviews_per_second"),
    ("pretrain", "", "Pre-training, real tokens", "tokens_per_second"),
)
SHORT = {"PyTorch loop over the HF model": "PyTorch loop", "sentence-transformers": "SBERT"}
INT8_WAYS = {
    "torch, fp32": "fp32",
    "torch, bf16": "bf16",
    "torch._int_mm": "`_int_mm`",
    "onednn.qlinear_pointwise": "`qlinear_pointwise`",
    "glassformer": "ours",
}
WINDOWS = {
    "grouped": "random reviews, the Trainer's own grouping",
    "sorted": "random reviews, sorted by length",
    "whole batches": "batches of a whole epoch (AVX512-BF16 tables)",
}
SPEED_UP = "Speed-up of glassformer"  # head of a column: our speed divided by the other library's
LIBRARY_NAMES = {"HF Trainer, as it comes": "HF Trainer, default settings"}  # names in files -> on pages
TIME_IN = {  # parts of a profile whose names in files are not clear
    "optimiser": "in the optimizer",
    "between": "between operations (Python, calls of kernels)",
}


# --- training -------------------------------------------------------------------------------------


def fine_tuning(result: dict[str, Any]) -> str:
    """Training speed beside the peers."""
    against, rows = result["glassformer_against"], []
    for c in result["contenders"]:
        rows.append((c["name"], spread(c["tokens_per_second"]), times(against.get(c["name"]))))
    lines = table(f"Library | Real tokens/s (median, range) | {SPEED_UP}", rows)
    return text(lines, *attentions(result["contenders"]))


training = of("train_imdb", "make bench")(fine_tuning)
training_base = of("train_imdb-bert-base", BERT_BASE)(fine_tuning)


def training_there(ending: str = "") -> str:
    """Fine-tuning MiniLM, peer by peer; at a level, also on which machine."""
    if not ending:
        return training()
    found = [result for stem, _ in TRAINED if (result := read(stem + ending))]
    return training(ending=ending) + "\n\n" + (measured({"threads": 2} | found[0]) if found else "")


def attentions(contenders: list[dict[str, Any]]) -> list[str]:
    """Which attention the peers took that were given the choice."""
    apart = ("OpenVINO", "as it comes")
    others = [c for c in contenders if not c["name"].startswith("glassformer")]
    peers = [c for c in others if not any(word in c["name"] for word in apart)]
    chosen = [(c["name"], a) for c in peers if "times the time" in (a := c["setting"].get("attention", ""))]
    return ["Attention used: " + "; ".join(f"{name}: {a}" for name, a in chosen) + "."] if chosen else []


def compared(rate: str, unit: str, result: dict[str, Any]) -> str:
    """Contenders with their rate, the ratio to each peer, and how far its loss lies from ours."""
    rows = []
    for c in result["contenders"]:
        speed, apart = c[rate], result["loss_against_glassformer"].get(c["name"])
        shown = spread(speed, ",.0f" if speed["median"] >= 100 else ",.1f")
        ratio = times(result["glassformer_against"].get(c["name"]))
        name = LIBRARY_NAMES.get(c["name"], c["name"])
        rows.append((name, shown, ratio, "" if apart is None else f"{apart:+.1%}"))
    lines = table(f"Library | {unit} (median, range) | {SPEED_UP} | Its loss relative to ours", rows)
    return text(lines, *attentions(result["contenders"]), measured(result))


pretraining = of("pretrain", "make bench-pretrain")(partial(compared, "tokens_per_second", "Real tokens/s"))


@of("train_pictures-{}", "make bench-train_pictures ARGS='--size {}'")
def pictures(result: dict[str, Any], size: str) -> str:
    """Training on pictures beside a loop over transformers' model."""
    return compared("pictures_per_second", "Images/s", result)


@of("end-to-end", "benchmarks/speed/end_to_end.py")
def end_to_end(result: dict[str, Any]) -> str:
    """The whole command before the work on speed and now."""
    said = {"before": f"before (commit {result['before']})", "now": "now"}
    rows = []
    for when, runs in result["runs"].items():
        rate = statistics.median(run["tokens_per_second"] for run in runs)
        peak, first = max(run["peak_memory_mb"] for run in runs), runs[0]
        judged = f"{first['accuracy']:.2%} of {first['judged']:,}"
        rows.append((said[when], spread(result["seconds"][when]), f"{rate:,.0f}", f"{peak:,}", judged))
    head = "| Seconds, command to report (median, range) | Tokens/s in training | Peak memory, MB | Test accuracy"
    told = f"Time of the earlier commit / time now: {times(result['before_against_now'])}, over {len(runs)} rounds"
    limit = result["limit"]
    part = f"; at most {limit:,} examples per split." if limit else "; the whole data set."
    return text(table(head, rows), told + part, measured(result))


def equal_accuracy() -> str:
    """Accuracy of both after the same epoch, seed by seed, from equal-accuracy.json, or the larger equal-accuracy-full.json."""
    full = read("equal-accuracy-full")
    if full is not None and "difference" in full:
        gap, runs = full["difference"], [{"seed": seed, **run} for seed, run in full["runs"].items()]
        points, interval = gap["points"], "95 % interval {:+.2f} to {:+.2f}".format(*gap["interval"])
    elif (full := read("equal-accuracy")) is not None:
        gap, runs = full["difference_points"], full["runs"]
        points, interval = gap["mean"], f"{gap['min']:+.2f} to {gap['max']:+.2f}"
    else:
        return missing("make bench-equal_accuracy")
    names = list(full["accuracy"])
    whole = [run for run in runs if all(name in run for name in names)]
    rows = [(run["seed"], *(f"{run[name]['accuracy']:.2%}" for name in names)) for run in whole]
    rows.append(("mean", *(f"{full['accuracy'][name]:.2%}" for name in names)))
    learned = f"{full['train_reviews']:,} training reviews, {full['judged_reviews']:,} evaluated per seed"
    said = f"Ours minus the Trainer's: {points:+.2f} points ({interval}); {learned}."
    return text(table(f"Seed | {' | '.join(names)}", rows), said)


@of("padding", "benchmarks/speed/padding.py")
def padding(result: dict[str, Any]) -> str:
    """Shares of padding, a line a way to draw a window, a column a size of it."""
    windows, epoch = result["windows"], result["epoch"]
    lines = table(
        "Padding in a sample of | " + " | ".join(f"{row['reviews']} reviews" for row in windows),
        [(said, *(spread(row[way], ".1%") for row in windows)) for way, said in WINDOWS.items()],
    )
    told = (
        f"In an epoch of {epoch['reviews']:,} reviews the Trainer's own grouping pads {epoch['grouped']['median']:.1%}. "
        f"Counted, not timed: median and range over {result['seeds']} draws of reviews, batches of {result['batch']}, "
        f"at most {result['max_length']} tokens; transformers {result['versions']['transformers']}, {result['date'][:10]}."
    )
    return text(lines, told)


# --- prediction -----------------------------------------------------------------------------------


def inference_part(part: str, checked: str, result: dict[str, Any]) -> str:
    found, rows = result[part], []
    for c in found["contenders"]:
        same = found["agreement"].get(c["name"])
        ratio = times(found["glassformer_against"].get(c["name"]))
        ready = f"{c['setting']['prepare_seconds']:.0f} s"
        rate = spread(c["reviews_per_second"])
        rows.append((c["name"], rate, ratio, "" if same is None else f"{same:.4f}", ready))
    int8 = ""
    if against := found.get("int8_against", {}):
        gate = result["int8_gate"]
        told = "; ".join(f"{times(ratio)} compared with {name}" for name, ratio in against.items())
        int8 = f"{SPEED_UP} in int8: {told}. In the check, {gate['agree']:.2%} of {gate['n']:,} labels equal those in fp32."
    head = f"Library | Reviews/s (median, range) | {SPEED_UP} | {checked} | Start-up time"
    return text(table(head, rows), int8, *attentions(found["contenders"]), measured(result))


inference = of("inference", "make bench-inference")(partial(inference_part, "labels", "Equal labels"))
embedding = of("inference", "make bench-inference")(partial(inference_part, "vectors", "Lowest cosine"))


@of("int8", "benchmarks/speed/int8.py")
def int8(result: dict[str, Any]) -> str:
    """Prediction and products in int8 beside the other formats, at levels limited by switches."""
    rows, products = [], []
    told = [f"Times of layers are in milliseconds. Seconds are CPU time; {result['rounds']} rounds."]
    for level in result["levels"].values():
        found, name = level["prediction"], level["level"]
        for way, seconds in found["seconds"].items():
            ratio = times(found["int8_against"].get(way))
            share, right = found["labels_as_in_fp32"][way], found["accuracy"][way]
            spent = spread(seconds, ".1f")
            rows.append((name, f"{found['reviews']:,}", way, spent, ratio, f"{share:.2%}", f"{right:.2%}"))
        for one in (product for product in level["products"] if product["rows"] == 1024):
            spent = {way: one["microseconds"].get(way, {}).get("median") for way in INT8_WAYS}
            wrong = {way: " (sums wrong)" * (one["exact"].get(way) is False) for way in INT8_WAYS}
            shown = ["" if t is None else f"{t / 1000:.2f}{wrong[way]}" for way, t in spent.items()]
            products.append((name, f"{one['inputs']} → {one['columns']}", *shown))
        gate = found["gate"]
        passed = f"check {'passed' if gate['passed'] else 'not passed'}"
        agreed = f"{gate['agree']:.2%} of {gate['n']:,} labels are equal"
        told.append(f"{name}: {passed} ({agreed}). {measured(result | level)}")
    head = "Level | Reviews | Format | Seconds | Time / time in int8 | Labels equal to fp32 | Accuracy"
    beside = table("Level | Layer, 1,024 rows | " + " | ".join(INT8_WAYS.values()), products)
    return text([*table(head, rows), "", *beside], " ".join(told))


@of("families", "make bench-families")
def families(result: dict[str, Any]) -> str:
    """Families of base size, each beside its nearest peer."""
    rows, reversed_order = [], []
    for family, works in result["families"].items():
        for work, found in works.items():
            rates = {c["name"]: c["tokens_per_second"]["median"] for c in found["contenders"]}
            against = found["glassformer_against"]
            name = min(against, key=lambda peer: against[peer]["median"])
            ours = next(rate for own, rate in rates.items() if own.startswith("glassformer"))
            day = found.get("date", result["date"])[:10]
            task, theirs = f"{family}, {work}", rates[name]
            rows.append((task, name, f"{theirs:,.0f}", f"{ours:,.0f}", times(against[name]), day))
            if (ours - theirs) * (against[name]["median"] - 1) < 0:
                reversed_order.append(task)
    head = f"Task | Fastest other library | Its real tokens/s | Real tokens/s of glassformer | {SPEED_UP} | Measured"
    said = "The speed-up is the median of the ratios per round, and the rates are medians over the rounds."
    if reversed_order:
        tasks = " and ".join(f"*{task}*" for task in reversed_order)
        said += f" For {tasks} the two disagree about which library is faster, because rounds differ much."
    return text(table(head, rows), said, measured(result))


@of("long-texts", "benchmarks/speed/long_texts.py")
def long_texts(result: dict[str, Any]) -> str:
    """ModernBERT on texts of 64 to 8,192 tokens beside transformers: speed, then memory."""
    rows = []
    for work in ("prediction", "training"):
        if found := result.get(work):
            ours, peer = sorted(found["contenders"], key=lambda c: not c["name"].startswith("glassformer"))
            rates = (f"{c['tokens_per_second']['median']:,.0f}" for c in (peer, ours))
            rows.append((work, peer["name"], *rates, times(found["glassformer_against"][peer["name"]])))
    head = f"Task | Compared with | Its real tokens/s | Real tokens/s of glassformer | {SPEED_UP}"
    used = {(row["work"], row["tokens"], row["who"]): row["peak_mb"] for row in result.get("memory", ())}
    peaks = [
        (work, f"{tokens:,}", *(f"{used[work, tokens, who]:,.0f}" for who in ("transformers", "glassformer")))
        for work, tokens, who in used
        if who == "glassformer"
    ]
    memory = "Task | Tokens of the text | Memory of transformers, MB | Memory of glassformer, MB"
    lines = [*table(head, rows), "", *table(memory, peaks)]
    said = f"Each round has {result['texts_per_window']} texts, with lengths spread evenly on a logarithmic scale. Memory is the peak of the process on one text (training: two). "
    if whole := result.get("whole"):
        said += (
            f"One text of {whole['characters']:,} characters ({whole['tokens']:,} tokens) is embedded as a whole in "
            f"{whole['seconds']:.0f} s, with at most {whole['peak_mb']:,.0f} MB in the process. "
        )
    parts = (f"{part} on commit {made['commit']}" for part, made in result["measured"].items())
    return text(lines, said + f"Measured apart: {', '.join(parts)}. ", measured(result))


# --- parts and costs ------------------------------------------------------------------------------


@of("maps", "make bench-maps")
def maps(result: dict[str, Any]) -> str:
    """What attention maps cost."""
    rows = []
    for c in result["contenders"]:
        share = result["time_against_plain"].get(c["name"])
        slower = times(result["all_maps_against"].get(c["name"]))
        rows.append((c["name"], spread(share, ".2f") if share else "", slower and slower + " the time"))
    head = "Forward pass | Time / plain forward pass | Time / all maps by glassformer"
    return text(table(head, rows), measured(result))


@of("cost-attention", "benchmarks/speed/cost.py attention")
def cost(result: dict[str, Any]) -> str:
    """Attention's variants against length."""
    kinds = ("full", "local", "linear")
    rows = [
        (f"{int(n):,}", *(f"{found[k]['median_ms']:,.0f}, {found[k]['added_mb']:,.0f}" for k in kinds))
        for n, found in result["attention_forward_backward"].items()
    ]
    lines = table("Length | " + " | ".join(f"{k}: ms, MB" for k in kinds), rows)
    return text(lines, measured(result))


@of("cost-encoder", "benchmarks/speed/cost.py encoder")
def cost_encoder(result: dict[str, Any]) -> str:
    found = result["forward_backward"]
    kinds = list(found["1024"])
    rows = [(f"{int(n):,}", *(f"{found[n][kind]['median_ms']:,.0f}" for kind in kinds)) for n in found]
    lines = table("Tokens per text | " + " | ".join(f"{kind} (ms)" for kind in kinds), rows)
    about = f"{result['num_layers']} layers of {result['d_model']}, {result['tokens']:,} tokens, {result['dtype']}, {result['clock']}; local: places on either side."
    return "\n".join([*lines, "", about, measured(result)])


@of("cost-texts", "benchmarks/speed/cost.py texts")
def texts(result: dict[str, Any]) -> str:
    """Prediction of many texts."""
    keys = ("texts", "texts_per_second", "added_mb", "texts_mb")
    rows = [[f"{row[key]:,.0f}" for key in keys] for row in result["rows"]]
    lines = table("Texts | Texts/s | Memory added, MB | The texts themselves, MB", rows)
    return text(lines, measured(result))


def rate(ending: str = "") -> str:
    """The share of the machine's rate, and where the time goes, from rate.json and rate-bert-base.json."""
    found = [r for name in ("rate", "rate-bert-base") if (r := read(name + ending))]
    if not found:
        return missing("benchmarks/speed/rate.py")
    works = [(r["model"], w) for r in found for w in r["works"]]
    shares = [
        f"**{s['median']:.0%}** {span(s['min'], s['max'], '.0%')}"
        for s in (w["share_of_rate"] for _, w in works)
    ]
    rows = [["Share of the computing rate", *shares]]
    for part in works[0][1]["time_in"]:
        name = f"Time {TIME_IN.get(part, f'in {part}')}"
        rows.append([name, *(f"{w['time_in'][part]:.1%}" for _, w in works)])
    told = []
    for r in found:
        shape, best = max(r["machine_tflops"].items(), key=lambda x: x[1]["median"])
        reach = f"{'fp32' if r['precision'] == 'float32' else 'bf16'} reach {best['median']:.2f} TFLOP/s"
        told.append(f"{r['model']}: pure matrix products in {reach} ({shape}). {measured(r)}")
    if len({r["machine"]["cpu"] for r in found}) > 1:
        told.append("The models were measured on different processors, so their columns cannot be compared.")
    lines = table("| " + " | ".join(f"{model}: {w['work']}" for model, w in works), rows)
    return "\n".join([*lines, "", *told])


@of("kernels-fp32", "benchmarks/speed/kernels_fp32.py")
def kernels_fp32(result: dict[str, Any]) -> str:
    """Torch's way beside the kernels in fp32, at levels limited by switches."""
    levels = list(result["levels"].values())
    rows = [
        (name, *(times(level[kind][name]["glassformer_against_torch"], 2) for level in levels))
        for kind in ("whole", "alone")
        for name in levels[0][kind]
    ]
    took = {work: found["milliseconds"] for work, found in levels[0]["whole"].items()}
    each = {
        work: [f"{t[who]['median']:,.0f} ms in {who}" for who in ("torch", "glassformer")]
        for work, t in took.items()
    }
    told = "; ".join(f"{work} {', '.join(both)}" for work, both in each.items())
    about = (
        f"Times for {sum(levels[0]['tokens']):,} tokens with {levels[0]['level']}: {told}. "
        f"{result['rounds']} rounds, CPU time on one core. {measured(result)}"
    )
    head = "| " + " | ".join(f"{level['level']}: time of torch / ours" for level in levels)
    return text(table(head, rows), about)


@of("tuned", "benchmarks/speed/tuned.py")
def tuned(result: dict[str, Any]) -> str:
    """A tuned process beside one as Python starts it."""
    rows = []
    for part in (result["alone"], result["beside"]):
        for work, gain in part["gain"].items():
            own = [c for c in part["contenders"] if c["setting"]["work"] == work]
            own.sort(key=lambda c: not c["setting"]["tuned"])
            peaks = [f"{c['windows'][-1]['peak_mb']:,.0f} MB" for c in own]
            rows.append((work, part["busy"] or "none", times(gain, 2), peaks[0], peaks[1]))
    head = "Task | Other busy processes | Speed, tuned / default | Peak memory, tuned | Peak memory, default"
    return text(table(head, rows), f"{result['rounds']} rounds. {measured(result)}")


@of("memory", "benchmarks/speed/memory.py")
def memory(result: dict[str, Any], part: str, unit: str) -> str:
    """Megabytes at the peak, a line a contender: ``training`` by length, ``prediction`` by documents."""
    by = {"training": "length", "prediction": "documents"}[part]
    sizes = sorted({row[by] for row in result[part]})
    names = dict.fromkeys(row["name"] for row in result[part])
    peaks = {(row["name"], row[by]): row["peak_mb"] for row in result[part]}
    lines = table(
        "Peak, MB | " + " | ".join(f"{size:,} {unit}" for size in sizes),
        [(name, *(f"{peaks[name, size]:,.0f}" for size in sizes)) for name in names],
    )
    return text(lines, attention(result[part], by, unit), measured(result))


def attention(rows: list[dict[str, Any]], by: str, unit: str) -> str:
    """Which of transformers' attentions each contender had, for memory hangs on it: eager holds all weights."""
    taken: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        if said := row["setting"].get("attention"):
            taken.setdefault(row["name"], {}).setdefault(said.split()[0], []).append(f"{row[by]:,}")
    told = []
    for name, kinds in taken.items():
        each = [f"{kind} at {' and '.join(sizes)}" for kind, sizes in kinds.items()]
        told.append(f"{name}: {', '.join(each if len(kinds) > 1 else kinds)}")
    return f"Attention used ({unit}): {'; '.join(told)}." if told else ""


@of("startup", "benchmarks/speed/startup.py")
def startup(result: dict[str, Any]) -> str:
    """Seconds and memory of processes that only begin."""
    rows = []
    for row in result["rows"]:
        rows.append((f"`{row['name']}`", spread(row["seconds"], ".2f"), f"{row['peak_mb']['median']:,.0f}"))
    lines = table("Process | Seconds (median, range) | Peak, MB", rows)
    return text(lines, f"{result['rounds']} rounds. {measured(result)}")


# --- word vectors ---------------------------------------------------------------------------------


@of("word2vec-speed", "benchmarks/speed/word2vec.py speed")
def word_vectors(result: dict[str, Any]) -> str:
    """Words a second beside gensim."""
    rows = []
    for c in result["contenders"]:
        ours = c["name"].startswith("glassformer")
        rows.append((c["name"], spread(c["tokens_per_second"]), "" if ours else times(result["ratio"])))
    where = result["environment"]
    lines = table(f"Library | Words/s (median, range) | {SPEED_UP}", rows)
    return text(lines, measured(where | {"threads": where["machine"]["threads"]}))


@of("word2vec-fit", "benchmarks/speed/word2vec.py fit")
def word_vectors_fit(result: dict[str, Any]) -> str:
    """Seconds from sentences to vectors beside gensim."""
    rows = []
    for n, part in result["epochs"].items():
        ours, theirs = (f"{median(part['seconds'][kind]):,.0f}" for kind in ("glassformer", "gensim"))
        rows.append((n, ours, theirs, times(part["ratio"])))
    where = result["environment"] | {"threads": result["setting"]["threads"]}
    return text(table(f"Epochs | glassformer, s | gensim, s | {SPEED_UP}", rows), measured(where))


# --- by kind of processor -------------------------------------------------------------------------


def levels() -> str:
    """How many times the peers' speed, a column a level; and the share of the rate of bare products."""
    columns = [found(ending) for ending in LEVELS]
    names = dict.fromkeys(name for column in columns for name in column)
    rows = [(name, *(c.get(name, "not measured") for c in columns)) for name in names]
    return text(table("Task and library | " + " | ".join(LEVELS.values()), rows))


def found(ending: str) -> dict[str, str]:
    """The cells of one level, by row."""
    cells: dict[str, str] = {}
    for stem, said in TRAINED:
        if result := read(stem + ending):
            for peer, ratio in result["glassformer_against"].items():
                cells[f"{said}: {peer}"] = times(ratio)
    if result := read("train_pictures-small" + ending):
        cells["Training a small ViT: transformers at its best"] = nearest(result)
    if result := read("inference" + ending):
        part, off = result["labels"], not (result.get("int8_gate") or {"passed": True})["passed"]
        peers = part["glassformer_against"]
        names = {peer: next((known for known in ANSWERED if peer.startswith(known)), peer) for peer in peers}
        for peer, ratio in peers.items():
            cells[f"Prediction: {names[peer]}"] = times(ratio)
        for peer, ratio in part.get("int8_against", dict.fromkeys(names) if off else {}).items():
            cells[f"Prediction, ours in int8: {names[peer]}"] = "check not passed" if off else times(ratio)
        if "vectors" in result:
            cells["Embeddings: sentence-transformers"] = nearest(result["vectors"])
    if result := read("pretrain" + ending):
        cells["Pre-training: HF Trainer, at its best"] = nearest(result)
    if result := read("word2vec-speed" + ending):
        cells["Word vectors, words per second: gensim"] = times(result["ratio"])
    if result := read("word2vec-fit" + ending):
        for n, part in result["epochs"].items():
            epochs = "1 epoch" if n == "1" else f"{n} epochs"
            cells[f"Sentences to word vectors, {epochs}: gensim"] = times(part["ratio"])
    for stem, model in (("rate", "MiniLM"), ("rate-bert-base", "BERT-base size")):
        for work in (read(stem + ending) or {"works": ()})["works"]:
            kind = work["work"].split(",")[0]
            said = f"Share of the rate of pure matrix products, {model}: {kind}"
            cells[said] = spread(work["share_of_rate"], ".0%")
    return cells


def nearest(result: dict[str, Any]) -> str:
    """The ratio to the peer that comes nearest."""
    return times(min(result["glassformer_against"].values(), key=lambda ratio: ratio["median"]))


Compared = tuple[str, str, dict[str, float], dict[str, float], dict[str, float], Any]


def nearest_works(ending: str) -> list[Compared]:
    """What is done, the nearest peer, its rate, ours, the ratio, and where it was measured: one for each kind of work."""
    works = []
    for stem, part, said, rate in WORKS:
        if result := read(stem + ending):
            one = result[part] if part else result
            works.append((said, one["contenders"], rate, one["glassformer_against"], result))
    if result := read("word2vec-speed" + ending):
        peers = [c["name"] for c in result["contenders"] if not c["name"].startswith("glassformer")]
        ratios, where = dict.fromkeys(peers, result["ratio"]), result["environment"]
        works.append(("Word vectors, words", result["contenders"], "tokens_per_second", ratios, where))
    found = []
    for said, contenders, rate, ratios, where in works:
        name = min(ratios, key=lambda name: ratios[name]["median"])
        peer = next(c for c in contenders if c["name"] == name)
        ours = next(c for c in contenders if c["name"].startswith("glassformer"))
        found.append((said, name, peer[rate], ours[rate], ratios[name], where))
    return found


def nearest_peers(ending: str, level: str) -> str:
    """A line for each kind of work: glassformer and its nearest peer; the page of benchmarks has them all.

    ``ending`` is that of a level's files, ``level`` the level's name.
    """
    rows, places = [], {}
    for said, name, theirs, ours, ratio, where in nearest_works(ending):
        rows.append((said, name, f"{theirs['median']:,.0f}", f"{ours['median']:,.0f}", times(ratio)))
        places.setdefault(where["machine"]["cpu"], []).append(said[0].lower() + said[1:])
    if not rows:
        return missing("make bench-inference")
    machines = [f"{cpu} ({', '.join(works)})" if len(places) > 1 else cpu for cpu, works in places.items()]
    head = f"Task, unit per second | Fastest other library | Its rate | Rate of glassformer | {SPEED_UP}"
    return text(table(head, rows), f"Two threads on {'; '.join(machines)}, {level}.")


def nearest_chart(ending: str) -> str:
    """The same as bars: each work's rate in multiples of its nearest peer's."""
    panels = {
        said: [("glassformer", ratio["median"]), (SHORT.get(peer := name.split(",")[0], peer), 1.0)]
        for said, name, _, _, ratio, _ in nearest_works(ending)
    }
    return bar_panels(panels, "{:.1f} ×")


def nearest_ratio(stem: str, part: str = "", ending: str = "") -> str:
    """How many times as fast as its nearest peer glassformer is, in a result file or a part of it."""
    result = read(stem + ending)
    ratios = (result[part] if part else result)["glassformer_against"]
    return f"{min(one['median'] for one in ratios.values()):.1f}"


# Tables that each level has: `training`, `training-avx512`, `training-avx2`.
OF_LEVEL: dict[str, Table] = {
    "training": training_there,
    "training-bert-base": training_base,
    "inference": inference,
    "embedding": embedding,
    "pictures-small": partial(pictures, "small"),
    "pretraining": pretraining,
    "end-to-end": end_to_end,
    "maps": maps,
    "rate": rate,
    "memory-training": partial(memory, "training", "tokens"),
    "memory-prediction": partial(memory, "prediction", "documents"),
    "startup": startup,
    "word-vectors": word_vectors,
    "word-vectors-fit": word_vectors_fit,
}
TABLES: dict[str, Table] = {
    **{name + end: partial(make, ending=end) for name, make in OF_LEVEL.items() for end in LEVELS},
    "levels": levels,
    "equal-accuracy": equal_accuracy,
    "pictures-base": partial(pictures, "base"),
    "padding": padding,
    "int8": int8,
    "families": families,
    "long-texts": long_texts,
    "cost": cost,
    "cost-encoder": cost_encoder,
    "texts": texts,
    "kernels-fp32": kernels_fp32,
    "tuned": tuned,
}
