"""The tables of what models reach, and of how far their answers and explanations can be trusted."""

import re
from collections import Counter
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

from benchmarks.pages.markdown import Table, missing, of, read, read_all, span, table, text
from benchmarks.quality import auto
from glassformer.explain import faithfulness

VECTOR_TESTS = {
    "wordsim353": "WordSim-353, Spearman",
    "simlex999": "SimLex-999, Spearman",
    "google": "Google analogies",
}
FEW_SHOT = ("glassformer", "SetFit", "fine-tuning", "linear probe")
FEW_SHOT_DATA = {"imdb": "IMDb", "goemotions": "GoEmotions, five emotions"}
CLEAREST = 3  # counter-examples that a page shows
FAITHFUL = ("deletion", "insertion", "comprehensiveness", "sufficiency")
SHORT = 0.01  # below TF-IDF by so much of macro-F1: something is to be changed


def scores_of(scores: Sequence[float]) -> str:
    """The mean of some shares and their range over the seeds."""
    low_high = f"{min(scores):.1%} to {max(scores):.1%}" if len(scores) > 1 else "one seed"
    return f"{fmean(scores):.1%} ({low_high})"


def mean_of(summary: dict[str, Any] | None, form: str = "+.3f") -> str:
    """A mean with its interval."""
    return "–" if summary is None else f"{summary['mean']:{form}} {span(*summary['interval'], form)}"


# --- translation, masked words, word vectors ------------------------------------------------------


def translations() -> str:
    """BLEU and chrF of the test part, of every translation recipe and both searches: means over the seeds."""
    rows, signatures, n = [], {}, 0
    for result in read_all("recipe-multi30k*"):
        tested = [run["scores"]["test"] for run in result["runs"]]
        for name in tested[0]:
            scores = [one[name] for one in tested]
            n, bleu = scores[0]["n"], [one["bleu"] for one in scores]
            s = {key: fmean(one[key] for one in scores) for key in ("chrf", "bleu_tokenised", "length_ratio")}
            search = f"beam {scores[0]['width']}" if name == "beam" else name
            reached = f"{fmean(bleu):.1f}" + f" {span(min(bleu), max(bleu), '.1f')}" * (len(scores) > 1)
            means = f"{s['chrf']:.1f}", f"{s['bleu_tokenised']:.1f}", f"{s['length_ratio']:.3f}"
            rows.append((f"`{result['recipe']}` ({len(scores)})", search, reached, *means))
            for one in scores:
                signatures |= dict.fromkeys(f"{key}: `{value}`" for key, value in one["signatures"].items())
    head = "Recipe (seeds) | Search | BLEU (lowest to highest) | chrF | BLEU, lower-cased and tokenized | Length / reference's"
    about = f"{n:,} test sentences. The last column is the number of tokens in the translations divided by that in the references."
    return text(table(head, rows), f"{about} sacrebleu's signatures: {plain('; '.join(signatures))}.")


@of("starts", "benchmarks/quality/starts.py")
def starts(result: dict[str, Any]) -> str:
    """How a masked-word model begins: the loss as it reads, and the words guessed right in the end."""
    runs = [(name, seed, run) for name, seeds in result["starts"].items() for seed, run in seeds.items()]
    shortest, per = min(len(run["losses"]) for *_, run in runs), 1_000_000 // result["window"]
    at = list(range(1, shortest // per + 1))  # millions of tokens
    rows = []
    for name, seed, run in runs:
        losses = [f"{run['losses'][m * per - 1]:.2f}" for m in at]
        end = f"{run['loss']:.2f}", f"{run['accuracy']:.1%} of {run['masked_tokens']:,}"
        rows.append((f"{name}, {seed}", *losses, *end, f"{run['seconds'] / 60:.0f} min"))
    read_so_far = " | ".join(f"Loss at {m} million tokens" for m in at)
    lines = table(f"Start, seed | {read_so_far} | Held-out loss | Held-out words predicted | Time", rows)
    lines[1] = "|---" * (lines[0].count("|") - 1) + "|"
    m = result["machine"]
    about = (
        f"The recipe `{result['recipe']}` on {result['limit']:,} reviews of each split, one epoch. Each training loss is the "
        f"mean over {result['window']:,} tokens. {m['cpu']}, threads: {m['threads']}; {result['date'][:10]}."
    )
    return text(lines, about)


def masked() -> str:
    """How many words were chosen, and what became of them, of every masked-word recipe."""
    rows = []
    for result in read_all("recipe-europe-mlm*", "recipe-imdb-mlm*", "recipe-ntc-mlm*"):
        for run in result["runs"]:
            if (m := run.get("masks")) is None:
                continue
            n = m["chosen"]
            shares = [f"{m[key] / n:.1%}" for key in ("masked", "random", "kept")]
            left = ", ".join(f"{count:,} of {split}" for split, count in run.get("excluded", {}).items())
            name, chosen = f"`{result['recipe']}`, {run['seed']}", f"{n:,} ({n / m['tokens']:.1%})"
            right = f"{run['masked']['accuracy']:.1%}"
            rows.append((name, f"{m['tokens']:,}", chosen, *shares, right, left or "none"))
    head = "Recipe, seed | Tokens | Selected | Replaced by [MASK] | By a random token | Unchanged | Held-out words predicted | Texts removed"
    return text(table(head, rows))


def traps() -> str:
    """The mini-Transformers on the generated sentences and on those that mislead."""
    rows = []
    for result in read_all("recipe-europe-frozen*", "recipe-europe-trained*"):
        if runs := [run for run in result["runs"] if "misleading" in run]:
            parts = [[run[key]["accuracy"] for run in runs] for key in ("test", "misleading")]
            ranges = [f"{min(part):.2%} to {max(part):.2%}" for part in parts]
            rows.append((f"`{result['recipe']}`", len(runs), *ranges))
    return text(table("Recipe | Seeds | Test sentences | Misleading sentences", rows))


def word_vectors_quality() -> str:
    """Word vectors beside gensim's over seeds, for each number of epochs, from word2vec-quality.json."""
    result, kinds = read("word2vec-quality") or {"epochs": {}}, ("glassformer", "gensim")
    rows = []
    for n, part in sorted(result["epochs"].items(), key=lambda item: int(item[0])):
        seeds = part["seeds"].values()
        if not {kind for seed in seeds for kind in seed} >= {*kinds}:
            continue
        for test, d in part.get("difference", {}).items():
            found = [[seed[kind][test] for seed in seeds if kind in seed] for kind in kinds]
            apart = f"{d['mean']:+.1f} {span(d['low'], d['high'], '+.1f')}" if d else ""
            means = [f"{fmean(values):.1f}" for values in found]
            rows.append((n, VECTOR_TESTS[test], *means, apart, " and ".join(str(len(f)) for f in found)))
    if not rows:
        return missing("benchmarks/speed/word2vec.py quality")
    head = "Epochs | Test | glassformer | gensim | Difference (95 % interval) | Seeds"
    lines = table(head, rows)
    told = f"Scores are multiplied by 100. Seeds: number of trainings with glassformer and with gensim. Threads: {result['setting']['threads']}; "
    return text(lines, f"{told}{result['setting']['dim']} dimensions.")


def word_vectors_seconds(ending: str = "") -> str:
    """What so many seconds give: the trainings that word2vec-fit.json timed, with the mean figures of word2vec-quality.json."""
    timed, judged = read("word2vec-fit" + ending), read("word2vec-quality")
    if timed is None or judged is None:
        return "Not measured yet: `benchmarks/speed/word2vec.py fit` and `quality`."
    rows = []
    for n, part in timed["epochs"].items():
        seeds = judged["epochs"].get(n, {"seeds": {}})["seeds"].values()
        for kind, seconds in part["seconds"].items():
            if found := [seed[kind] for seed in seeds if kind in seed]:
                means = [f"{fmean(one[test] for one in found):.1f}" for test in VECTOR_TESTS]
                rows.append((median(seconds), [kind, n, f"{median(seconds):,.0f}", *means]))
    head = " | ".join(["", "Epochs", "Seconds", *VECTOR_TESTS.values()])
    return text(table(head, [cells for _, cells in sorted(rows)]))


# --- defaults -------------------------------------------------------------------------------------


@of("defaults", "make bench-defaults")
def defaults(result: dict[str, Any]) -> str:
    """Accuracy and seconds with every setting unset, one line a kind of model on a data set."""
    found: dict[tuple[str, str], dict[int, list[dict[str, Any]]]] = {}
    for r in result["rows"]:
        sizes_of = found.setdefault((r["data"], r["kind"].replace("low-rank", "LoRA")), {})
        sizes_of.setdefault(r["asked"], []).append(r)
    sizes = sorted({r["asked"] for r in result["rows"]})

    def cell(rows: list[dict[str, Any]]) -> str:
        seconds = fmean(r.get("cpu_seconds", r["seconds"]) for r in rows)  # the first files have no other
        return f"{scores_of([r['accuracy'] for r in rows])}, {seconds:.0f} s"

    head = "Data | Model | " + " | ".join(f"{size:,} examples" for size in sizes)
    rows = [(*key, *(cell(of[n]) if n in of else "" for n in sizes)) for key, of in sorted(found.items())]
    chance = {r["data"]: r["chance"] for r in result["rows"]}
    told = ", ".join(f"{data} {share:.1%}" for data, share in sorted(chance.items()))
    about = (
        "Each entry has the accuracy (mean and range over seeds) and the training time on one thread in seconds (CPU time; for 64 examples wall-clock time). "
        f"Share of the most frequent class: {told}.\nFlowers has fewer than 5,000 images, so all are used."
    )
    return text(table(head, rows), about)


@of("untuned", "benchmarks/quality/untuned.py")
def untuned(result: dict[str, Any]) -> str:
    """Macro-F1 of each model at its defaults, of TF-IDF on the same split, and the mean difference."""
    rows = []
    for group in groups(result["rows"]):
        if group[0]["change"]:
            continue
        seconds = fmean(r["cpu_seconds"] for r in group)
        time = f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
        both = [scores_of([r["macro_f1"] for r in of]) for of in (group, [r["tfidf"] for r in group])]
        rows.append((group[0]["data"], group[0]["model"], *both, f"{gap(group):+.1f} points", time))
    counts = {
        r["data"]: ", ".join(f"{n:,} {label}" for label, n in r["classes"].items()) for r in result["rows"]
    }
    judged = "; ".join(f"{data}: {told}" for data, told in counts.items())
    machine, seeds = result["machine"], ", ".join(map(str, result["seeds"]))
    limit = f" A try with {result['limit']:,} texts of each split." if result.get("limit") else ""
    about = (
        f"Evaluated on the validation split of each data set ({judged}). Mean and range over seeds {seeds}. Measured on "
        f"{machine['cpu']}, one thread, {result['date'][:10]}.{limit}"
    )
    head = "Data | Model | Macro-F1 | Macro-F1 of TF-IDF | Difference | CPU time of training"
    return text(table(head, rows), about)


@of("untuned", "benchmarks/quality/untuned.py")
def untuned_changes(result: dict[str, Any]) -> str:
    """For each default that falls short of TF-IDF, what was tried and what to take instead."""
    all_of, lines = groups(result["rows"]), []
    for rows in all_of:
        if not rows[0]["change"] and gap(rows) < -100 * SHORT:
            data, model = rows[0]["data"], rows[0]["model"]
            told = advice(all_of, data, model)
            lines.append(f"- **{model}** on {data} is {-gap(rows):.1f} points below TF-IDF. {told}")
    return "\n".join(lines) or "No default of these is more than one point of macro-F1 below TF-IDF."


def advice(all_of: list[list[dict[str, Any]]], data: str, model: str) -> str:
    """The change that brings most, if one brings something, and the model that is best there."""
    here = [rows for rows in all_of if rows[0]["data"] == data]
    defaults = {rows[0]["model"]: rows for rows in here if not rows[0]["change"]}
    said = []
    changes = [rows[0] for rows in here if rows[0]["model"] == model and rows[0]["change"]]
    if changes:
        own = {r["seed"]: r["macro_f1"] for r in defaults[model]}
        best = max(changes, key=lambda r: r["macro_f1"])
        gain = 100 * (best["macro_f1"] - own[best["seed"]])
        if gain > 0:
            asked = " ".join(f"--set {value}" for value in best["settings"][2:])
            left = 100 * (best["macro_f1"] - best["tfidf"]["macro_f1"])
            adds = f"`{asked}` ({best['change']}) adds {gain:.1f} points (one seed)"
            said.append(f"{adds}; the difference from TF-IDF is then {left:+.1f}.")
        else:
            said.append(f"Tried without a gain (one seed): {', '.join(r['change'] for r in changes)}.")
    first = max(defaults, key=lambda name: fmean(r["macro_f1"] for r in defaults[name]))
    if gap(defaults[first]) >= -100 * SHORT:
        said.append(f"Better: use `{first}` ({gap(defaults[first]):+.1f} points compared with TF-IDF).")
    else:
        names = ", ".join(f"`{name}`" for name in sorted(defaults))
        other = "use TF-IDF, or a checkpoint that was trained on this language"
        said.append(f"None of {names} reaches TF-IDF: {other}.")
    return " ".join(said)


def groups(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The seeds of each model on each table, with each change."""
    found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for r in rows:
        found.setdefault((r["data"], r["model"], r["change"]), []).append(r)
    return [found[key] for key in sorted(found)]


def gap(rows: list[dict[str, Any]]) -> float:
    """Points of macro-F1 above TF-IDF on the same split, mean over the seeds."""
    return 100 * fmean(r["macro_f1"] - r["tfidf"]["macro_f1"] for r in rows)


def few_shot() -> str:
    """Accuracies over draws, the paired difference from SetFit with its interval, and the share of its time."""
    files = [found for name in FEW_SHOT_DATA if (found := read(f"few-shot-{name}")) is not None]
    if not files:
        return missing("benchmarks/quality/few_shot.py")
    rows = []
    for result in files:
        for one in result["summary"]:
            found, beside = one["methods"], one["ours_less"]["SetFit"]
            shares = [f"{found[name]['accuracy']:.1%}" if name in found else "" for name in FEW_SHOT]
            low, high = (100 * end for end in beside["interval"])
            less = f"{100 * beside['accuracy']:+.1f} {span(low, high, '+.1f')}"
            draws = min(found[name]["draws"] for name in FEW_SHOT if name in found)
            data = f"{FEW_SHOT_DATA[one['data']]}, {one['examples']}"
            rows.append((data, draws, *shares, less, of_the_time(result, one["data"], one["examples"])))
    kinds = sorted({r["processor"] for result in files for r in result["records"]})
    about = (
        "The first column gives the data and the number of training examples per class. Accuracy is the mean test accuracy "
        "over random draws of the training examples. Differences are in percentage points, paired by draw, with a 95 % "
        "bootstrap interval over draws. The last column is our CPU time as a share of SetFit's, median over draws, for each kind of processor. "
        f"Measured on {' and '.join(kinds)}, 1 thread; torch {files[-1]['versions']['torch']}, "
        f"until {max(result['date'] for result in files)[:10]}."
    )
    head = "Data, examples per class | Draws | Ours | SetFit | Fine-tuning | Frozen encoder + head | Ours minus SetFit | CPU time / SetFit's"
    return text(table(head, rows), about)


def of_the_time(result: dict[str, Any], data: str, each: int) -> str:
    """The median share of SetFit's processor time that ours takes, on each kind of processor that ran draws."""
    there = [r for r in result["records"] if (r["data"], r["examples"]) == (data, each)]
    took = {(r["processor"], r["method"], r["draw"]): r["cpu_seconds"] for r in there}
    shares: dict[str, list[float]] = {}
    for (processor, method, draw), seconds in took.items():
        if method == "glassformer" and (processor, "SetFit", draw) in took:
            shares.setdefault(processor, []).append(seconds / took[processor, "SetFit", draw])
    return ", ".join(
        f"{median(found):.0%}" + (f" ({processor.split('(')[0].split()[0]})" if len(shares) > 1 else "")
        for processor, found in sorted(shares.items())
    )


# --- trust ----------------------------------------------------------------------------------------


def verbatim(said: str) -> str:
    """A text of the data in one line of Markdown, in which none of its signs mean anything."""
    return re.sub(r"([\\`*_\[\]<>|$])", r"\\\1", " ".join(said.split()))


def explained() -> str:
    """Methods of explanation beside random orders, a table for each judged run, from explain-*.json."""
    told = "\n\n".join(map(explained_run, read_all("explain-*")))
    return told or missing("benchmarks/quality/explain.py RUN")


def explained_run(result: dict[str, Any]) -> str:
    methods = result["methods"]
    first = next(iter(methods.values()))
    changes, ways, rows = list(first["stability"]), list(first.get("operators", ())), []
    noise = any("randomisation" in row for row in methods.values())
    for method, row in methods.items():
        cells = [mean_of(row[key]["better"]) for key in FAITHFUL]
        if ways:
            cells += [mean_of(row["operators"][by]) for by in ways]
            cells += [mean_of(row["normalized"][key], ".2f") for key in ("deletion", "insertion")]
        if noise:
            cells.append({None: "–", True: "yes", False: "no"}[row.get("randomisation_passed")])
        stable = row["stability"]
        cells += [mean_of(stable[change]["correlation"], ".2f") if stable else "–" for change in changes]
        left = abs(row["randomisation"][-1]["mean"]) if "randomisation" in row else None
        verdict = faithfulness.verdict(row, left).split(":")[0].replace(" the faithfulness test", "")
        rows.append((f"`{method}`", *cells, f"{row['seconds']['mean']:.2f}", verdict))
    heads = ["Method", "Deletion", "Insertion", "Comprehensiveness", "Sufficiency"]
    heads += [f"Gap, {faithfulness.MASKING_NAMES[by]}" for by in ways]
    heads += ["Deletion of best order", "Insertion of best order"] if ways else []
    heads += ["Passes weight randomization"] * noise + [f"Stability: {change}" for change in changes]
    length, error = result.get("max_length"), result.get("completeness_error")
    cut = f", cut to {length} tokens" if length else ""
    fewest = min(row["deletion"]["n"] for row in methods.values())
    cut += f" (slow methods and other libraries: the first {fewest:,})" if fewest < result["count"] else ""
    summed = ""
    if error:
        most = f"{error['median']:.1e} in the median, {error['max']:.1e} at most"
        summed = "the relative difference between the sum of the scores and the change of the logit"
        summed = f"Integrated gradients: {summed} is {most}. "
    lines = [
        f"**`{result['run']}`, {result['count']:,} test {result['inputs']} of {result['data']}{cut}.** Differences "
        "from random orders of the same input; positive is better:",
        "",
        *table(" | ".join([*heads, "Seconds", "Verdict"]), rows),
        "",
        f"{summed}M{on(result)[1:]}; `explain-{result['run']}.json` "
        "also has the tests of attention heads and the agreement of the methods.",
    ]
    compared = [
        (f"`{own}` minus `{peer}`", *(mean_of(by_operator[by]) for by in ways))
        for own, row in result.get("against_peers", {}).items()
        for peer, by_operator in row.items()
    ]
    if compared:
        told = "On the same inputs, the gap of our method minus the gap of another library's method:"
        head = " | ".join(["Methods", *(faithfulness.MASKING_NAMES[by] for by in ways)])
        lines += ["", told, "", *table(head, compared)]
    counter = result.get("counter_examples", {})
    if counter.get("searched"):
        told = "Sentences in which removing the most attended word does not change the prediction, but removing another word does"
        end = ". The clearest:" if counter["clearest"] else "."
        lines += ["", f"{told}: {counter['found']:,} of {counter['searched']:,}{end}", ""]
        shown = counter["clearest"][:CLEAREST]
        lines += [f"- *{verbatim(one['text'])}* {verbatim(one['in_words'])}" for one in shown]
    return "\n".join(lines)


def on(result: dict[str, Any]) -> str:
    return f"measured on {result['machine']['cpu']}, {result['date'][:10]}"


def maskable() -> str:
    """What ``maskable`` costs and gives."""
    rows = []
    for result in read_all("maskable-*"):
        for key, name, form in (
            ("accuracy", "accuracy", ".1%"),
            ("half_masked", "accuracy, half of the tokens masked", ".1%"),
            ("gap", "gap", ".3f"),
            ("beyond", "gap, beyond random orders", ".3f"),
        ):
            one = result[key]
            more = f"{one.get('difference', one.get('mean')):+{form}} {span(*one['interval'], '+' + form)}"
            rows.append((result["data"], name, f"{one['plain']:{form}}", f"{one['maskable']:{form}}", more))
    if not rows:
        return missing("benchmarks/quality/maskable.py DATA")
    about = (
        f"MiniLM, means over {len(result['seeds'])} seeds, paired differences with 95 % intervals; {result['test']:,} test texts, "
        f"explanations of {result['explained']} by `{result['method']}`; {on(result)}."
    )
    return text(table("Data | Metric | Plain | `maskable=True` | Difference", rows), about)


ORDERS = {"trained": "the trained model", "shuffled": "shuffled weights", "random": "random numbers"}


def verdicts() -> str:
    """Whether the verdict on one explanation holds, and which methods find a planted word."""
    rows, hits, found = [], [], read_all("verdicts-*")
    for result in found:
        for kind, count in result["explanations"].items():
            passed = [f"{count[key]} {span(*count[key + '_interval'], '.0%')}" for key in ("every", "any")]
            judged = f"{count['told']} of {result['count']}"
            rows.append((f"`{result['run']}`", ORDERS[kind], judged, *passed))
    if not found:
        return missing("benchmarks/quality/verdicts.py RUN")
    for one in found[0]["planted"]:  # the other runs on these data train the same two models for it
        best = sorted(one["methods"].items(), key=lambda item: -item[1]["share"])
        shares = ", ".join(f"`{name}` {method['share']:.0%}" for name, method in best)
        hits.append((found[0]["data"], "yes" if one["maskable"] else "no", one["count"], shares))
    head = "Run | Scores from | Inputs with a result | Passes with every way of hiding | Passes with any way"
    planted = table("Data | `maskable` | Texts | Ranks the planted word first", hits)
    about = f"Explained by `{found[0]['method']}`, {on(found[0])}."
    return text([*table(head, rows), "", *planted], about)


def inside() -> str:
    """What pruning costs and gives, and how many words counterfactuals change."""
    rows, turned, found = [], [], read_all("inside-*")
    for result in found:
        one, other = result["pruned"], result["counterfactuals"]
        sizes, accuracy = one["parameters"], one["accuracy"]
        lost = f"{one['difference']:+.1%} {span(*one['interval'], '+.1%')}"
        faster = f"{one['faster']:.2f} × {span(*one['faster_range'], '.2f')}"
        cells = (f"{accuracy['whole']:.1%}", f"{accuracy['pruned']:.1%}", lost, faster)
        rows.append((f"`{result['run']}`", f"{1 - sizes['pruned'] / sizes['whole']:.0%}", *cells))
        share = f"{other['valid']:.0%} {span(*other['interval'], '.0%')}"
        fewer = mean_of(other["fewer"], "+.2f")
        changed = (f"{other['words']:.2f}", f"{other['greedy_words']:.2f}", fewer)
        turned.append((f"`{result['run']}`", other["texts"], share, f"{other['greedy_valid']:.0%}", *changed))
    if not found:
        return missing("benchmarks/quality/inside.py RUN")
    lines = table("Run | Fewer parameters | Accuracy | Pruned by 30 % | Difference | Faster prediction", rows)
    head = "Run | Texts | Valid counterfactuals | Valid by greedy deletion | Words changed | Words changed by greedy deletion | Fewer words"
    about = (
        "At most six words are changed; a text without such a counterfactual counts as seven. *Fewer words* is the mean paired "
        f"difference between the two methods. Both tables {on(found[0])}."
    )
    return text([*lines, "", *table(head, turned)], about)


@of("audit", "benchmarks/quality/audit.py")
def audit(result: dict[str, Any]) -> str:
    """Which planted defects an audit finds, and what it says where nothing is planted."""
    rows = []
    for defect, pair in result["pairs"].items():
        codes = Counter(code for code, _ in pair["clean"]["warnings"])
        said = ", ".join(f"{code} ({n} times)" if n > 1 else code for code, n in codes.items())
        rows.append((defect, "yes" if pair["planted"]["found"] else "no", said or "none"))
    simulated, pairs = result["diff"], result["pairs"].values()
    longest = max(one["seconds"] for pair in pairs for one in pair.values())
    about = (
        f"The audit found {result['found']} of {len(rows)} defects. Without a defect it gave {result['false_alarms']} warning(s) about data or "
        f"probabilities. The longest audit took {longest / 60:.1f} minutes, on a machine shared with other jobs.\n\n"
        f"`diff` was tested in {simulated['simulations']} simulations, in which the second model loses 30 % of its correct predictions on "
        f"one slice of 4 to 6 % of the rows. `diff` reported that slice in {simulated['named']} of them. In {simulated['simulations']} "
        f"simulations without such a slice it reported one {simulated['false_alarms']} times. Both {on(result)}."
    )
    return text(table("Defect | Found and named | Warnings without the defect", rows), about)


@of("zero-shot", "benchmarks/quality/zero_shot.py")
def zero_shot(result: dict[str, Any]) -> str:
    """What a sentence encoder reaches with the names of the classes alone."""
    rows = []
    for one in result["records"]:
        reached = f"{one['accuracy']:.1%} {span(*one['accuracy_interval'], '.1%')}"
        others = [f"{one[key]:.1%}" for key in ("most_frequent", "confidence")]
        rows.append((one["data"], ", ".join(one["names"]), one["n"], reached, *others))
    head = "Data | Names | Test texts | Accuracy | Most frequent class | Mean probability"
    return text(table(head, rows), f"all-minilm-l6-v2, {on(result)}.")


@of("before-after", "benchmarks/quality/before_after.py")
def before_after(result: dict[str, Any]) -> str:
    """Where a ViT looks before and after augmentation."""
    rows = []
    for method, correlation in result["correlation"].items():
        middle = [mean_of(result[turn][method]["middle"], ".1%") for turn in ("before", "after")]
        rows.append((method, mean_of(correlation, ".2f"), *middle))
    head = "Method | Rank correlation of the two runs' maps | Share in the middle quarter, before | after"
    pair = " and ".join(f"`{run}`" for run in result["runs"])
    return text(table(head, rows), f"{result['pictures']} images, {pair}; {on(result)}.")


def label_noise() -> str:
    """Labels flipped on purpose that the review finds, one line a recipe, from label-noise-*.json."""
    found = read_all("label-noise-*")
    if not found:
        return missing("benchmarks/quality/label_noise.py ntc-textcnn --folds 3")
    rows, told = [], set()
    for r in found:
        first = r["found_among_first"].values()
        among = [f"{a['flipped']:,} ({a['share_of_flips']:.1%} of the changed labels)" for a in first]
        time, machine = f"{r['seconds']['train'] / 60:.0f} min", r["machine"]
        counts = f"{r['examples']:,}", f"{r['flipped']:,}", r["folds"]
        rows.append((f"`{r['recipe']}`", *counts, *among, f"{r['suspicious']:,}", time))
        told.add(
            f"Measured on {machine['cpu']}, {machine['threads']} thread{'s' * (machine['threads'] > 1)}; "
            f"torch {r['versions']['torch']}, {r['date'][:10]}; seed of the changes: {r['seed']}."
        )
    first = found[0]["found_among_first"]
    counts = "".join(f"Changed labels among the first {int(k):,} suggestions | " for k in first)
    head = f"Recipe | Examples | Labels changed | Folds | {counts}All suggestions | Training time"
    return "\n".join([*table(head, rows), "", *sorted(told)])


def calibration() -> str:
    """Calibration error before and after one temperature, from calibration-*.json."""
    rows = []
    for r in read_all("calibration-*"):
        for name, split in r["splits"].items():
            both = [split[when] for when in ("before", "after")]
            errors = [f"{one['ece']:.2%} {span(*one['ece_interval'], '.2%')}" for one in both]
            losses = [f"{one['log_loss']:.4f}" for one in both]
            examples = f"{name}, {both[0]['n']:,}"
            rows.append((f"`{r['run']}`", examples, f"{r['temperature']:.2f}", *errors, *losses))
    head = "Run | Examples | Temperature | Calibration error before | Calibration error after | Log loss before | Log loss after"
    return text(table(head, rows)) if rows else missing("benchmarks/quality/calibration.py RUN")


# --- questions and studies ------------------------------------------------------------------------


def p_value(p: float) -> str:
    """Three digits, and more where they would hide on which side of 0.05 it lies."""
    if p < 0.001:
        return "< 0.001"
    return f"{p:.5f}" if f"{p:.3f}" == "0.050" else f"{p:.3f}"


def points(found: dict[str, Any]) -> str:
    """A difference in points with its interval."""
    return f"{found['points']:+.1f} {span(*found['interval'], '+.1f')}"


PLAIN = {  # words in result files -> those on the page; longer texts come first
    r"Heads and readings": "Heads and pooling",
    r", then its last block,": ", also with its last block trained,",
    r", then the last block": ", last block also trained",
    r", each rung on top of the one before,": ", each strength adding to the one before,",
    r"from our CIFAR-10 weights, and from none,": "from our CIFAR-10 weights, and from scratch,",
    r"\bboth, (?=linear|MLP)": "[CLS] + mean, ",
    r"linear from a regression": "linear, initialized by logistic regression",
    r"(?<!with )(?<!words )\band next sentence\b": "masked words + next sentence",
    r"\blinear-max\b": "max, linear",
    r"\bmlp-half-dropout-unfrozen\b": "mean, MLP D/2, dropout 0.3, last block also trained",
    r"\bmlp-half-unfrozen\b": "mean, MLP D/2, last block also trained",
    r"\bmlp-half-dropout\b": "mean, MLP D/2, dropout 0.3",
    r"\bmlp-half\b": "mean, MLP D/2",
    r"\bmlp-quarter\b": "mean, MLP D/4",
    r"\bmlp-full\b": "mean, MLP D",
    r"`linear`": "`mean, linear`",
    r"\| linear \(baseline\)": "| mean, linear (baseline)",
    r"for every arm the same": "the same for every variant",
    r"with the variation between seeds as Student's t": "combined with the variation between seeds (Student's t)",
    r"\b1 comparisons\b": "1 comparison",
    r"\barms\b": "variants",
    r"\bArm\b": "Variant",
    r"\bfrom nothing\b": "from scratch",
    r"\bFrom nothing\b": "From scratch",
    r"\bpictures\b": "images",
    r"\brung\b": "step",
    r"\bjudging\b": "evaluation",
    r"\barm\b": "variant",
    r"values of their own": "separate values",
    r"at rates of their own": "with different learning rates",
    r"How much hangs on the spread of the first weights": "How much does the spread of the initial weights matter",
    r"What does a training lose whose keys are its values": "What does it cost if the keys are also the values",
    r"What does a training without the root of d_k lose": "What does it cost not to divide by the root of d_k",
    r"one whose last block learns too": "one whose last block is trained too",
    r"last block learning\?": "last block trained?",
    r"last block learns": "last block trained",
    r"One pre-training stands behind all seeds\.": "All seeds start from the same pre-trained weights.",
    r"so this does not tell what pre-training is worth beside them": "so this does not show the value of pre-training compared with those settings",
    r"words and marks apart": "with punctuation marks as separate tokens",
    r"other settings go further than either variant": "other settings are more accurate than both variants",
}


def plain(said: str) -> str:
    """A text of a result file in the words of the page."""
    for old, new in PLAIN.items():
        said = re.sub(old, new, said)
    return said


@of("lab-questions", "benchmarks/quality/lab_questions.py")
def questions(result: dict[str, Any]) -> str:
    """A section a question: its differences with intervals and corrected p, and what each arm reaches."""
    parts = []
    for one in result["questions"].values():
        differences = one["differences"].items()
        minus = {name: plain(name).replace(" less ", " minus ") for name, _ in differences}
        rows = [(minus[name], points(f), p_value(f["p_holm"]), f["says"]) for name, f in differences]
        arms = "; ".join(f"{plain(name)} {fmean(arm['accuracy']):.1%}" for name, arm in one["arms"].items())
        judges = " or ".join(f"{n:,}" for n in sorted({found["n"] for found in one["differences"].values()}))
        of = one["measured"]
        precision = "bf16" if of["machine"]["bf16"] else "fp32"
        about = (
            f"Accuracy: {arms}. {len(one['seeds'])} seeds, {judges} evaluated examples. "
            f"Transformers in {precision}, on {of['machine']['cpu']}, {of['date'][:10]}."
        )
        lines = table("Difference | Points (95 % interval) | p (Holm) | Shows", rows)
        parts.append(f"## {plain(one['asked'])}\n\n" + text(lines, plain(one.get("note", "")), about))
    return "\n\n".join(parts)


def folds() -> str:
    """A section a study by cross-validation: what each arm reaches, and how it differs from the baseline."""
    parts = []
    for found in read_all("folds-*"):
        rows = []
        for name, arm in found["arms"].items():
            reached = [f"{fmean(arm[key]):.1%}" for key in ("accuracy", "macro_f1")]
            one = found["differences"].get(name)
            apart = (points(one), p_value(one["p_holm"])) if one else ("baseline", "–")
            rows.append((plain(name), *reached, *apart))
        mean = fmean(found["arms"][found["baseline"]]["accuracy"])
        half = 196 * (mean * (1 - mean) / found["n"]) ** 0.5
        about = (
            f"{found['n']:,} images, each evaluated once per seed by {found['folds']}-fold cross-validation; seeds "
            f"{', '.join(map(str, found['seeds']))}. The 95 % interval of a single accuracy is ± {half:.0f} points. Read from "
            f"`folds-{found['name']}.json`, measured on {found['machine']['cpu']}, {found['date'][:10]}{weights(found)}."
        )
        lines = table("Variant | Accuracy | Macro-F1 | Difference (95 % interval) | p (Holm)", rows)
        parts.append(f"## {found['name']}\n\n{plain(found['summary'])}\n\n" + text(lines, about))
    return "\n\n".join(parts) or missing("benchmarks/quality/folds.py NAME")


def weights(found: dict[str, Any]) -> str:
    """The weights that a study was run with in place of those that it names, in words."""
    models = [one.removeprefix("model=") for one in found.get("overrides", ()) if one.startswith("model=")]
    return f", with the weights of `{models[-1].rsplit('/')[-1]}`" if models else ""


def studies() -> str:
    """Every measured study as ``glassformer compare`` tells it, under a heading of its own."""
    from glassformer.study.results import markdown, sentences

    told = []
    for study in read_all("study-*"):
        names = sorted((re.escape(arm["name"]) for arm in study["arms"]), key=len, reverse=True)
        verdict = re.sub(rf"(?<!\w)(?:{'|'.join(names)})(?!\w)", r"`\g<0>`", sentences(study)["verdict"])
        page = plain(markdown(study | {"verdict": verdict}))
        told.append(f"#{page}Read from `study-{study['name']}.json`.")
    return "\n\n".join(told) or missing("benchmarks/quality/studies.py NAME")


TABLES: dict[str, Table] = {
    "explain": explained,
    "before-after": before_after,
    "maskable": maskable,
    "verdicts": verdicts,
    "audit": audit,
    "zero-shot": zero_shot,
    "inside": inside,
    "calibration": calibration,
    "label-noise": label_noise,
    "studies": studies,
    "folds": folds,
    "questions": questions,
    "few-shot": few_shot,
    "word-vectors-quality": word_vectors_quality,
    "word-vectors-seconds": lambda: word_vectors_seconds("-avx512"),
    "translations": translations,
    "masked": masked,
    "starts": starts,
    "defaults": defaults,
    "auto": auto.table,
    "auto-images": lambda: auto.table(auto.IMAGES),
    "untuned": untuned,
    "untuned-changes": untuned_changes,
    "traps": traps,
}
