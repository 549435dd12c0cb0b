"""Published systems, recipes that stand for them, and what these reach by run folders and result files."""

from __future__ import annotations

import json
import re
import statistics
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from glassformer.config import build
from glassformer.errors import ConfigError
from glassformer.report.charts import curves, learning_curves

TABLE = Path(__file__).parents[1] / "recipes" / "published.json"


@dataclass(frozen=True)
class Row:
    """One published system, as ``recipes/published.json`` has it."""

    number: int
    system: str
    data: str
    published: str
    given: tuple[str, ...] = ()  # recipes as the document sets it; ``reproduce`` runs them in turn
    best: str = ""  # the recipe of ours that gets furthest on the same task; it may be one that is given
    others: tuple[str, ...] = ()  # of ours, beside it
    hours: str = ""  # of all that is given, on two cores; an estimate until it has been measured
    missing: str = ""  # what its runs need and do not find everywhere
    words: str = ""  # a line for the table
    studies: tuple[str, ...] = ()  # of the same question, with what can be had
    findings: tuple[str, ...] = ()  # result files that answer a question of the row
    pictures: str = ""  # the heading of the gallery that shows them
    figures: dict = field(default_factory=dict)  # recipe -> the published accuracy, or one an epoch

    @property
    def recipes(self) -> tuple[str, ...]:
        """All of the row, each once."""
        return tuple(dict.fromkeys((*self.given, *filter(None, (self.best,)), *self.others)))


@cache
def published_rows() -> tuple[Row, ...]:
    """The table that ships with the recipes, in its order."""
    rows = json.loads(TABLE.read_text(encoding="utf-8"))["rows"]
    return tuple(build(Row, row, TABLE.name) for row in rows)


def find_row(text: str) -> Row:
    """The row of that number.

    Raises:
        ConfigError: there is none, or it is figures rather than a run.
    """
    rows = published_rows()
    row = next((row for row in rows if str(row.number) == text.strip()), None)
    if row is None:
        fix = f"Rows are 1 to {len(rows)}: see --table"
        raise ConfigError(f"no row {text!r}", where="reproduce", fix=fix)
    if not row.recipes:
        what = f"row {row.number} ({row.system}) has no recipe"
        raise ConfigError(what, where="reproduce", fix=row.missing)
    return row


LEVEL = 0.05  # of significance, after correction
SEED = 0.005  # how far two seeds of a fine-tuning lie apart by chance


def check(metrics: dict[str, Any], published: float | Sequence[float] | None) -> list[str]:
    """A run's figure beside the published one, an epoch a line where each has one, with a verdict.

    Two accuracies agree where they differ by no more than the draw of the judged examples explains (1.96
    standard errors of a difference of two shares) and half a point for the seed.
    """
    judged = metrics.get("test") or metrics.get("validation") or {}
    if published is None or "accuracy" not in judged:
        return ["the document gives no figure to compare with"]
    n = judged["n"]
    if isinstance(published, int | float):
        return [_verdict("", judged["accuracy"], published, n)]
    epochs = [e["accuracy"] for e in metrics.get("epochs") or ()]
    if len(epochs) != len(published):
        return [f"{len(epochs)} epochs were judged, the document has {len(published)}: no verdict"]
    pairs = enumerate(zip(epochs, published, strict=True), 1)
    return [_verdict(f"epoch {i}: ", found, float(told), n) for i, (found, told) in pairs]


def _verdict(before: str, found: float, told: float, n: int) -> str:
    room = 1.96 * ((found * (1 - found) + told * (1 - told)) / n) ** 0.5 + SEED
    said = "confirmed" if abs(found - told) <= room else "above it" if found > told else "not reached"
    return f"{before}{found:.2%} here, {told:.2%} there, {room:.2%} is chance on {n:,}: {said}"


ASIDE = ("seed", "verbose", "threads", "baselines")  # settings that change no weights, or are told beside


@dataclass(frozen=True)
class Measured:
    """What a recipe reached: the finished runs of one recipe."""

    recipe: str
    score: str  # in words: 78.15 % (76.56 to 79.75)
    seeds: int
    seconds: float  # of training, mean over seeds
    fastest: float  # of the seeds, seconds of training
    slowest: float
    machine: str
    date: str  # of the first and the last seed
    overrides: tuple[str, ...]
    source: str  # the file or folder pattern that it was read from
    mean: str = ""  # the score without its spread
    runs: tuple[dict[str, Any], ...] = ()  # the record of each seed

    @property
    def time(self) -> str:
        """Of training, in words: a range where runs differ by more than a tenth."""
        quiet = alone(self.runs)
        some = f" ({len(quiet)} of {len(self.runs)} seeds)" if len(quiet) < len(self.runs) else ""
        return duration_range(self.fastest, self.slowest, self.seconds) + company(quiet) + some

    @property
    def changed(self) -> str:
        """The settings that were changed, without those that change no weights."""
        return ", ".join(o for o in self.overrides if o.split("=")[0].split(".")[-1] not in ASIDE)


def alone(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs that shared no GPU with other trainings, so that their times say something; or else all."""
    return [r for r in records if not r.get("beside")] or list(records)


def company(records: Sequence[dict[str, Any]]) -> str:
    """Words behind a time: how many other trainings shared the GPU at most; empty where none did."""
    others = max((r.get("beside") or 0 for r in records), default=0)
    return f", beside up to {others} other trainings on the GPU" if others else ""


@dataclass(frozen=True)
class InForm:
    """A recipe that was run end to end on random weights, because its own could not be had."""

    recipe: str
    layout: str  # the checkpoint whose files and sizes were imitated
    parameters: int
    examples: int  # that training saw
    steps: int
    seconds: float  # from data to report
    accuracy: float
    judged: int  # examples that the accuracy is of
    chance: float  # the accuracy of always naming the most frequent class
    files: tuple[str, ...]  # of the run folder
    grid: tuple[int, int] | None  # rows and columns of the figure with one picture a class
    overrides: tuple[str, ...]
    machine: str
    date: str


def in_form(results: Path) -> dict[str, InForm]:
    """Recipe -> what ``benchmarks/in_form.py`` has written of it; empty: it has not been run."""
    file = results / "in-form.json"
    if not file.is_file():
        return {}
    entries = json.loads(file.read_text(encoding="utf-8"))["recipes"]
    return {
        e["recipe"]: InForm(
            e["recipe"],
            e["layout"],
            e["parameters"],
            e["examples"]["train"],
            e["steps"],
            e["seconds"]["total"],
            e["accuracy"],
            e["examples"]["judged"],
            e["chance"],
            tuple(e["files"]),
            (e["grid"]["rows"], e["grid"]["columns"]) if e.get("grid") else None,
            tuple(e["overrides"]),
            machine_name(e["machine"]),
            e["date"][:10],
        )
        for e in entries
    }


def machine_name(machine: dict[str, Any]) -> str:
    """The processor with its threads, or the GPU, as a run's record states them."""
    return str(
        machine.get("gpu") or f"{machine.get('cpu', 'unknown')}, threads: {machine.get('threads', '?')}"
    )


def measured(recipe: str, results: Path, runs: Path) -> Measured | None:
    """From the result file of the recipe, else from its run folders; None: it has not been run to its end."""
    file = results / f"recipe-{recipe}.json"
    overrides: Sequence[str] = ()
    if file.is_file():
        found = json.loads(file.read_text(encoding="utf-8"))
        records, overrides, source = found["runs"], found.get("overrides", ()), str(file.name)
    else:
        files = sorted(
            f
            for f in runs.glob(f"{recipe}*/metrics.json")
            if f.parent.name in (recipe, *(f"{recipe}-seed{i}" for i in range(100)))
        )
        records = [json.loads(f.read_text(encoding="utf-8")) for f in files]
        source = f"{recipe}*/metrics.json"
    scores = [score for r in records if (score := headline(r, recipe)) is not None]
    if not scores or len(scores) < len(records):
        return None
    unit = scores[0][1]
    values = [value for value, _ in scores]
    mean = unit.format(statistics.mean(values))
    number = unit[: unit.index("}") + 1]  # without the words behind it
    low, high = (number.format(f(values)) for f in (min, max))
    spread = f" ({low} to {high})" if low != high else ""
    where = "; ".join(dict.fromkeys(machine_name(r.get("machine", {})) for r in records))
    dates = sorted({str(r.get("date", ""))[:10] for r in records})
    seconds = [r.get("seconds", {}).get("train", 0.0) for r in alone(records)]
    return Measured(
        recipe,
        mean + spread,
        len(values),
        statistics.mean(seconds),
        min(seconds),
        max(seconds),
        where,
        " to ".join(dict.fromkeys((dates[0], dates[-1]))),
        tuple(overrides),
        source,
        mean,
        tuple(records),
    )


def measured_study(name: str, results: Path) -> str | None:
    """What a study's arms reached, in words; None: it has not been run to its end."""
    file = results / f"study-{name}.json"
    if not file.is_file():
        return _measured_by_folds(results / f"folds-{name}.json")
    found = json.loads(file.read_text(encoding="utf-8"))
    means = [arm["accuracy"]["mean"] for arm in found["arms"]]
    counts = f"{len(means)} arms, {len(found['seeds'])} seeds, {found['n']:,} {found['judged']} examples"
    said = str(found["verdict"]).rstrip(".")
    return f"**{min(means):.1%} to {max(means):.1%}** ({counts}). {said} ([](studies.md))"


def _measured_by_folds(file: Path) -> str | None:
    """The same of a study by cross-validation."""
    if not file.is_file():
        return None
    found = json.loads(file.read_text(encoding="utf-8"))
    means = {name: statistics.fmean(arm["accuracy"]) for name, arm in found["arms"].items()}
    counts = (
        f"{len(means)} arms, {len(found['seeds'])} seeds, {found['n']:,} examples, "
        f"each judged once by {found['folds']}-fold cross-validation"
    )
    apart = [name for name, one in found["differences"].items() if one["p_holm"] < LEVEL]
    said = (
        f"Different from {found['baseline']} after correction: {'; '.join(apart)}"
        if apart
        else (
            f"No significant difference: none of the {len(means) - 1} arms differs from {found['baseline']} "
            "beyond chance"
        )
    )
    half = max((one["interval"][1] - one["interval"][0]) / 2 for one in found["differences"].values())
    said += f". Differences are known to ± {half:.0f} points or better"
    return f"**{min(means.values()):.1%} to {max(means.values()):.1%}** ({counts}). {said} ([](studies.md))"


@dataclass(frozen=True)
class Found:
    """What a measurement of a row's question came to, as its result file says."""

    title: str
    verdict: str  # sentences with figures and intervals
    tables: tuple[dict[str, Any], ...]  # each with title, columns, rows
    seeds: int
    machine: str
    date: str
    curve: dict[str, Any] | None = None  # panels and what stands at the ends of their axis; see ``curves``


def measured_finding(name: str, results: Path) -> Found | None:
    """From ``NAME.json``; None: it has not been measured."""
    file = results / f"{name}.json"
    if not file.is_file():
        return None
    found = json.loads(file.read_text(encoding="utf-8"))
    return Found(
        found["title"],
        found["verdict"],
        tuple(found["tables"]),
        len(found["seeds"]),
        machine_name(found["machine"]),
        str(found["date"])[:10],
        found.get("curve"),
    )


def headline(metrics: dict[str, Any], recipe: str = "") -> tuple[float, str] | None:
    """The figure that a task is judged by, and how it is written; None: there is none in it.

    A translator's is that of the beam; of a recipe as given greedy search, as its document has it.
    """
    if (metrics.get("test") or {}).get("micro_f1") is not None:  # several labels an example
        return metrics["test"]["macro_f1"], "{:.2%} macro-F1"
    if (found := (metrics.get("test") or {}).get("entity_f1")) is not None:
        return found, "{:.2%} entity F1"
    if (metrics.get("test") or {}).get("exact_match") is not None:
        return metrics["test"]["f1"], "{:.2%} F1 of answers"
    if (accuracy := (metrics.get("test") or {}).get("accuracy")) is not None:
        return accuracy, "{:.2%}"
    translated = (metrics.get("scores") or {}).get(metrics.get("judged", ""), {})
    for search in ("greedy", "beam") if recipe.endswith("-given") else ("beam", "greedy"):
        if (bleu := translated.get(search, {}).get("bleu")) is not None:
            return bleu, "{:.1f} BLEU" + ", greedy" * (search == "greedy")
    if tests := metrics.get("tests"):
        judged = next((t for t in tests.values() if t and t.get("accuracy") is not None), None)
        return None if judged is None else (judged["accuracy"], "{:.1%} of analogies")
    if masked := metrics.get("masked"):
        return masked["accuracy"], "{:.1%} of masked words"
    judged = (metrics.get("similarity") or {}).get(metrics.get("judged", "")) or {}
    for key, unit in (("spearman", "{:.4f} Spearman"), ("found", "{:.1%} of partners found")):
        if key in judged:
            return judged[key], unit
    if (accuracy := (metrics.get("validation") or {}).get("accuracy")) is not None:
        return accuracy, "{:.2%} (validation)"
    return None


def duration(seconds: float) -> str:
    """1 h 18 min, 12 min or 23 s."""
    if seconds >= 5400:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def duration_range(fastest: float, slowest: float, mean: float) -> str:
    """12 to 31 min where times differ by more than a tenth, else their mean."""
    low, high = duration(fastest), duration(slowest)
    if slowest <= 1.1 * fastest or low == high:
        return duration(mean)
    number, unit = low.rsplit(" ", 1)
    # "78 min to 1 h 40 min" needs both units, "12 to 31 min" one.
    return f"{number if high.split()[1:] == [unit] else low} to {high}"


# --- as Markdown pages ----------------------------------------------------------------------------
#
# One table of all, a page a row, one of the runs in form.


TEMPLATES = Path(__file__).parent / "templates"
FEW = 3  # seeds, below which the table says how many there are
SCORES = {"macro_f1": "Macro-F1", "log_loss": "Log loss"}  # of a judged split

Measure = Callable[[str], Measured | None]
Study = Callable[[str], str | None]
Finding = Callable[[str], Found | None]


def pages(
    measure: Measure,
    measure_study: Study = lambda name: None,
    form: Mapping[str, InForm] | None = None,
    settings: Callable[[str], str] = lambda name: "",
    stem: str = "results",
    measure_finding: Finding = lambda name: None,
) -> dict[str, str]:
    """Path -> text of every page and curve; the table is ``STEM.md``, all else lies in ``STEM/``.

    Args:
        measure: recipe -> what it reached, or None.
        measure_study: study -> what it found, in words, or None.
        form: recipe -> its run on random weights, where there is one.
        settings: recipe -> its file's text.
        measure_finding: result file of a row's question -> what it says, or None.
    """
    form, template = form or {}, _templates()
    made = {f"{stem}.md": page(measure, measure_study, form, stem)}
    for row in published_rows():
        found = {name: m for name in row.recipes if (m := measure(name)) is not None}
        told = {name: measure_finding(name) for name in row.findings}
        drawn = {name: curve for name, m in found.items() if (curve := curve_of(m))}
        drawn |= {name: finding_curve(f) for name, f in told.items() if f is not None and f.curve}
        texts = {name: settings(name) for name in row.recipes}
        made[f"{stem}/row-{row.number:02d}.md"] = template.get_template("published_row.md.j2").render(
            row=row,
            found=found,
            form=form,
            drawn=drawn,
            ranged=any("(" in m.score for m in found.values()),
            settings=texts,
            sources=sources_of(texts),
            studies={name: measure_study(name) for name in row.studies},
            findings=told,
            measures=measures,
            duration=duration,
            seeds=seeds_of,
            epochs=epochs_of,
            baselines=baselines_of,
            part=part_of,
            stem=stem,
        )
        made |= {f"{stem}/{name}.svg": curve for name, curve in drawn.items()}
    if form:
        runs = [(row, form[name]) for row in published_rows() for name in row.recipes if name in form]
        made[f"{stem}/in-form.md"] = template.get_template("published_form.md.j2").render(
            runs=runs, duration=duration, unlike=unlike_layouts(form, settings)
        )
    return made


def page(
    measure: Measure,
    measure_study: Study = lambda name: None,
    form: Mapping[str, InForm] | None = None,
    stem: str = "results",
) -> str:
    """The table of all rows; see ``pages``."""
    rows = published_rows()
    found = {name: measure(name) for row in rows for name in row.recipes}
    return (
        _templates()
        .get_template("published.md.j2")
        .render(
            rows=rows,
            found=found,
            form=form or {},
            given=lambda row: _cell(row.given, found) if row.recipes else "–",
            ours=lambda row: _ours(row, found, measure_study),
            plain=lambda row: _plain(found[row.best]) if row.best else "",
            stem=stem,
        )
    )


def _templates() -> Environment:
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _cell(names: Sequence[str], found: Mapping[str, Measured | None]) -> str:
    """The figures of some recipes for the table: several are named by what tells them apart."""
    reached = {name: m for name in names if (m := found[name]) is not None}
    if not reached:
        return "not measured"
    if len(names) == 1:
        (m,) = reached.values()
        return _figure(m)
    return "<br>".join(
        f"{short}: {_figure(reached[name]) if name in reached else 'not measured'}"
        for name, short in zip(names, _short(names), strict=True)
    )


def _figure(m: Measured) -> str:
    """A recipe's mean, with the number of its seeds where these are few."""
    return m.mean + (f" ({m.seeds} seed{'s' * (m.seeds > 1)})" if m.seeds < FEW else "")


def _plain(m: Measured | None) -> str:
    """The best plain model beside a recipe, as the end of a note; empty where none was judged."""
    judged = [(b["accuracy"], name) for name, b in (_baselines(m) if m else {}).items() if "accuracy" in b]
    return "; plain: {1} {0:.2%}".format(*max(judged)) if judged else ""


def _ours(row: Row, found: Mapping[str, Measured | None], measure_study: Study) -> str:
    if row.best:
        return _cell([row.best], found)
    told = [
        match[1] for name in row.studies if (match := re.match(r"\*\*(.*?)\*\*", measure_study(name) or ""))
    ]
    if told:
        return f"{'study' if len(told) == 1 else 'studies'}: " + ", ".join(told)
    return "not measured" if row.recipes else "–"


def _short(names: Sequence[str]) -> list[str]:
    """Names without the words that all of them begin with, and without the mark of those as given."""
    parts = [name.removesuffix("-given").split("-") for name in names]
    same = 0
    while all(len(p) > same + 1 for p in parts) and len({p[same] for p in parts}) == 1:
        same += 1
    return ["-".join(p[same:]) for p in parts]


def part_of(row: Row, name: str) -> str:
    """What a recipe is in its row."""
    if name in row.given:
        return "as given, our best" if name == row.best else "as given"
    return "our best" if name == row.best else "ours"


def sources_of(settings: Mapping[str, str]) -> dict[str, str]:
    """The data source of each recipe by its file's text, where a row's recipes have several; else none.

    Figures on unlike data are not to be compared, so a page then says which stands where.
    """
    found = {name: tomllib.loads(text).get("data", {}).get("source", "") for name, text in settings.items()}
    return found if len(set(found.values())) > 1 else {}


def unlike_layouts(form: Mapping[str, InForm], settings: Callable[[str], str]) -> dict[str, str]:
    """Recipe -> the weights that it names, where a run in form has imitated others."""
    found = {name: tomllib.loads(settings(name)).get("model", {}).get("model", "") for name in form}
    return {name: named for name, named in found.items() if named and named != form[name].layout}


def seeds_of(m: Measured) -> list[dict[str, str]]:
    """A line a seed: its figure, other scores of the same split, seconds, memory."""
    lines = []
    for record in m.runs:
        score = headline(record, m.recipe)
        line = {"Seed": str(record.get("seed", "–")), "Figure": score[1].format(score[0]) if score else "–"}
        judged = record.get("test") or record.get("validation") or {}
        line |= {title: f"{judged[key]:.4f}" for key, title in SCORES.items() if key in judged}
        line |= _searches((record.get("scores") or {}).get(record.get("judged", "")) or {})
        if asked := (record.get("masked") or {}).get("masked_tokens"):
            line["Words asked"] = f"{asked:,}"
        if seconds := record.get("seconds", {}).get("train"):
            line["Training"] = duration(seconds) + company([record])
        if memory := record.get("peak_memory_mb"):
            line["Memory"] = f"{memory / 1000:.1f} GB"
        if (pairs := (record.get("masked") or {}).get("next_sentence_accuracy")) is not None:
            line["Next sentence"] = f"{pairs:.1%} of held-out pairs (chance 50%)"
        lines.append(line)
    return lines


def baselines_of(m: Measured) -> dict[str, str]:
    """The plain models beside the first run, with the figure of each."""
    return {name: f"{b['accuracy']:.2%}" for name, b in _baselines(m).items() if "accuracy" in b}


def _baselines(m: Measured) -> dict[str, Any]:
    found: dict[str, Any] = (m.runs[0].get("baselines") or {}) if m.runs else {}
    return {name: b for name, b in found.items() if b}


def _searches(translated: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """A translator's figure by each search, and of lower-cased words set apart, as many papers count."""
    out = {}
    for search, found in translated.items():
        title = "Greedy" if search == "greedy" else f"Beam of {found.get('width', 5)}"
        apart = found.get("bleu_tokenised")
        out[title] = f"{found['bleu']:.1f} BLEU" + (f", tokenised {apart:.1f}" if apart is not None else "")
    return out


def epochs_of(m: Measured) -> list[dict[str, str]]:
    """A line an epoch whose weights were judged, over the seeds: mean batch loss, accuracy and its spread."""
    runs = [run["epochs"] for run in m.runs if run.get("epochs")]
    lines = []
    for records in zip(*runs, strict=True) if runs else ():
        accuracy = [r["accuracy"] for r in records]
        low, high = min(accuracy), max(accuracy)
        spread = f" ({low:.2%} to {high:.2%})" if low != high else ""
        losses = [r["batch_loss"] for r in records if r.get("batch_loss") is not None]
        lines.append(
            {
                "Epoch": str(records[0]["epoch"]),
                "Mean batch loss": f"{statistics.fmean(losses):.4f}" if losses else "–",
                "Test accuracy": f"{statistics.fmean(accuracy):.2%}{spread}",
            }
        )
    return lines


def measures(finding: str) -> str:
    """The command that measures a finding: a recipe in another precision is named behind the script."""
    kind, _, recipe = finding.partition("-")
    return f"precision.py {recipe}" if kind == "precision" else finding.replace("-", "_") + ".py"


def finding_curve(found: Found) -> str:
    """The curve that a measurement has, empty where it has none."""
    if not found.curve:
        return ""
    first, last = found.curve["ends"]
    return curves(found.curve["panels"], ends=(first, last))


def curve_of(m: Measured) -> str:
    """Loss and accuracy over the epochs of the first seed; empty: fewer than two were judged.

    Where each epoch's weights were judged, the test part stands beside the training.
    """
    first: dict[str, Any] = m.runs[0] if m.runs else {}
    return learning_curves(first.get("evaluations") or (), first.get("epochs") or ())
