"""A model card: the ``README.md`` of a saved model, with the metadata that the Hugging Face Hub reads.

Everything in it was measured or set; what nobody has said is listed as a blank. Names from data and
settings stand in code spans, where they can neither format nor link; paths are cut to their last part, so
that a card tells nothing of the machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from glassformer.data.image_sources import NAMED_IMAGES
from glassformer.data.pairs import PAIR_SOURCES
from glassformer.data.sources import NAMED_SOURCES
from glassformer.evaluate.intervals import share_interval
from glassformer.outputs import printable
from glassformer.report.wording import count, duration
from glassformer.targets.regression import Numbers

TEMPLATES = Path(__file__).parent / "templates"
# What is counted or timed beside figures, and is none itself.
COUNTED = {"n", "of", "contexts", "width", "step", "best_step", "words", "entities", "pairs"}
NO_FIGURES = COUNTED | {"length_penalty", "seconds", "sentences_per_second"}
NO_FIGURES |= {"epoch", "kind", "is_best"}
# Figure -> the Hub's name of the metric, and ours for people.
METRICS = {
    "accuracy": ("accuracy", "accuracy"),
    "macro_f1": ("f1", "macro-F1"),
    "micro_f1": ("f1", "micro-F1"),
    "weighted_f1": ("f1", "weighted F1"),
    "roc_auc": ("roc_auc", "ROC-AUC"),
    "average_precision": ("average_precision", "average precision"),
    "log_loss": ("log_loss", "log loss"),
    "r2": ("r_squared", "R²"),
    "mse": ("mse", "mean squared error"),
    "rmse": ("rmse", "root mean squared error"),
    "mae": ("mae", "mean absolute error"),
    "pearson": ("pearsonr", "Pearson"),
    "spearman": ("spearmanr", "Spearman"),
    "bleu": ("bleu", "BLEU"),
    "bleu_tokenised": ("bleu_tokenised", "BLEU of tokenized text"),
    "chrf": ("chrf", "chrF"),
    "perplexity": ("perplexity", "perplexity"),
}
MOST_LABELS = 50
MOST_ROWS = 40
MOST_FINDINGS = 12
_PATH = re.compile(r"(?<!\S)(?:[A-Za-z]:\\|~|\.{0,2}/)[^;:()]*[\\/]")
_PACKAGE = re.compile(r"package \S+ \(([\w.-]+/[\w.-]+),")
_HUB = re.compile(r"([\w.-]+/[\w.-]+) at (?:revision|its default revision)")
_LANGUAGE = re.compile(r"[a-z]{2,3}")


@dataclass(frozen=True)
class Figure:
    """One measured number."""

    whose: str  # "this model", or the simple model's name
    where: str  # the split
    key: str  # as metrics.json calls it
    value: float
    interval: tuple[float, float] | None = None  # 95 %
    n: int | None = None  # examples

    @property
    def name(self) -> str:
        """What people call it."""
        *path, last = self.key.split(".")
        return ", ".join([*path, METRICS.get(last, (last, last.replace("_", " ")))[1]])


@dataclass(frozen=True)
class Model:
    """What an estimator says of itself; ``Estimator.card`` fills it in."""

    kind: str  # its class
    tag: str = ""  # the Hub's pipeline_tag; "" where the Hub has none
    labels: tuple[str, ...] = ()
    parameters: int = 0
    source: str = ""  # where its weights come from, in words
    settings: Mapping[str, Any] = field(default_factory=dict)
    chosen: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0  # of training
    versions: Mapping[str, str] = field(default_factory=dict)
    examples: Mapping[str, int] = field(default_factory=dict)  # split -> how many the fit was given
    judged: Mapping[str, float] = field(default_factory=dict)  # figures of the kept weights while training
    limits: tuple[str, ...] = ()
    use: str = ""  # lines of Python that ask it
    task: str = ""
    several: bool = False  # whether an example may have several of the labels, or none


@dataclass(frozen=True)
class Form:
    """How the folder is opened."""

    library: str = "glassformer"
    opens_as: str = ""  # the class of transformers
    whole: bool = True  # whether that class gives the answers; else run.py does


def model_card(
    model: Model,
    config: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Any] | None = None,
    doctor: Mapping[str, Any] | None = None,
    form: Form | None = None,
) -> str:
    """The text of ``README.md``: YAML metadata between two lines of ``---``, then Markdown.

    Args:
        config, metrics, doctor: ``config.toml``, ``metrics.json`` and ``doctor.json`` of the run that the
            model comes from; None where there was none.
        form: of the folder; None: as ``save`` writes it.
    """
    config, metrics, form = config or {}, metrics or {}, form or Form()
    data = _data(config)
    title = str(config.get("name") or "") or model.kind
    figures = list(figures_of(metrics)) or list(_while_training(model))
    about = {
        "model": model,
        "form": form,
        "data": data,
        "title": title,
        "summary": str(config.get("summary") or ""),
        "figures": figures[:MOST_ROWS],
        "left_out": max(len(figures) - MOST_ROWS, 0),
        "from_run": bool(metrics),
        "chosen_by_them": not metrics and bool(figures),
        "openings": metrics.get("openings") or {},
        "splits": _splits(metrics) or dict(model.examples),
        "findings": [
            str(f.get("message", ""))
            for f in (doctor or {}).get("findings", [])
            if f.get("severity") == "warning"
        ][:MOST_FINDINGS],
        "base": base_of(model.source),
        "source": without_paths(model.source),
        "date": str(metrics.get("date") or "")[:10],
        "machine": metrics.get("machine") or {},
        "truncated": {k: v for k, v in (metrics.get("truncated") or {}).items() if v and v[0]},
        "labels": model.labels[:MOST_LABELS],
        "more_labels": max(len(model.labels) - MOST_LABELS, 0),
        "seed": metrics.get("seed", model.settings.get("seed")),
        "settings": {
            k: v
            for k, v in {**model.settings, **model.chosen}.items()
            if v is not None and k in SHOWN_SETTINGS
        },
        "blanks": _blanks(model, data, figures, bool(metrics)),
    }
    body = _environment().get_template("card.md.j2").render(about)
    metadata = _metadata(model, form, data, title, figures)
    body = re.sub(r"\n{3,}", "\n\n", body).strip()
    return f"---\n{metadata}---\n\n{body}\n"


SHOWN_SETTINGS = (
    "epochs",
    "lr",
    "batch_size",
    "schedule",
    "warmup",
    "weight_decay",
    "max_length",
    "precision",
)
SHOWN_SETTINGS += (
    "C",
    "alpha",
    "monitor",
    "keep_best",
    "class_weight",
    "label_smoothing",
    "lora_rank",
    "image_size",
)


def base_of(source: str) -> str | None:
    """The Hub id of the weights that a model was begun with; None: random ones, a folder, or not known."""
    found = _PACKAGE.match(source) or _HUB.match(source)
    return found[1] if found else None


def without_paths(text: str) -> str:
    """Paths cut to their last part."""
    return _PATH.sub("", text)


# --- figures ----------------------------------------------------------------------------------------


def figures_of(metrics: Mapping[str, Any]) -> Iterator[Figure]:
    """The figures of a run on what it was not trained on, the judged split first, simple models behind."""
    judged = str(metrics.get("judged") or "test")
    for split, name in (("test", judged), ("validation", "validation")):
        if isinstance(found := metrics.get(split), Mapping):
            yield from _of(found, "this model", name)
            if split == "test":
                for name_of_simple, scores in (metrics.get("baselines") or {}).items():
                    yield from (f for f in _of(scores, str(name_of_simple), name) if f.interval)
            if split == "test" and name == "validation":
                break
    for key, name in (("masked", "validation"), ("tests", "test"), ("scores", ""), ("similarity", "")):
        for where, scores in _leaves(metrics.get(key), name):
            yield from _of(scores, "this model", where)
    for name, scores in (metrics.get("others") or {}).items():
        yield from (f for f in _of(scores, str(name), judged) if f.interval)


def _leaves(value: Any, where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Dictionaries that hold numbers, with the names on the way to them."""
    if not isinstance(value, Mapping):
        return
    if any(_is_number(v) for v in value.values()):
        yield where, value
        return
    for name, below in value.items():
        yield from _leaves(below, f"{where}, {name}".removeprefix(", "))


def _of(scores: Mapping[str, Any], whose: str, where: str) -> Iterator[Figure]:
    n = scores.get("n", scores.get("known", scores.get("pairs")))
    for key, value in scores.items():
        if key not in NO_FIGURES and _is_number(value):
            bounds = scores.get(f"{key}_interval")
            if bounds and n and key not in Numbers.compared:  # older files say 1 to 1 where all are right
                bounds = share_interval(value, scores.get("contexts", scores.get("entities", n)), bounds)
            yield Figure(whose, where, key, float(value), _ends(bounds), n)


def _ends(bounds: Sequence[float] | None) -> tuple[float, float] | None:
    return (bounds[0], bounds[1]) if bounds else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _while_training(model: Model) -> Iterator[Figure]:
    """The figures of the kept weights on what the fit held out; an accuracy has Wilson's interval."""
    n = model.examples.get("validation")
    for key, value in model.judged.items():
        bounds = share_interval(value, n) if n and key == "accuracy" else None
        yield Figure("this model", "validation", key, value, _ends(bounds), n)


def _splits(metrics: Mapping[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    texts = metrics.get("texts")
    if isinstance(texts, Mapping):
        found |= {str(k): v for k, v in texts.items() if isinstance(v, int)}
    elif isinstance(texts, int):
        found["train"] = texts
    for split in ("train", "validation", "test"):
        if isinstance(scores := metrics.get(split), Mapping) and (n := scores.get("of", scores.get("n"))):
            found[str(metrics.get("judged") or split) if split == "test" else split] = n
    for split, searches in (metrics.get("scores") or {}).items():
        for scores in searches.values():
            found[str(split)] = scores.get("n", 0)
    if isinstance(cut := (metrics.get("truncated") or {}).get("train"), list):
        found.setdefault("train", cut[1])
    order = ("train", "validation")
    return {k: found[k] for k in sorted(found, key=lambda k: order.index(k) if k in order else 2)}


# --- data -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Data:
    name: str = ""  # of the data set, or the last part of the path; "" where it is not known
    description: str = ""
    license: str = ""  # of the data, in words
    notes: tuple[str, ...] = ()
    hub: str = ""
    languages: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


def _data(config: Mapping[str, Any]) -> _Data:
    section = config.get("data")
    section = section if isinstance(section, Mapping) else {}
    source = str(section.get("source") or "")
    kept = {k: section[k] for k in ("limit", "split_seed", "hold_out", "drop_duplicates") if section.get(k)}
    kept |= {k: section[k] for k in ("validation_size", "test_size", "copies") if section.get(k)}
    if "split_seed" in section:
        kept["split_seed"] = section["split_seed"]
    known: Any = NAMED_SOURCES.get(source) or NAMED_IMAGES.get(source) or PAIR_SOURCES.get(source)
    if known is None:
        return _Data(name=re.split(r"[\\/]", source.rstrip("\\/"))[-1], settings=kept)
    languages = tuple(filter(None, (getattr(known, "language", ""),)))
    if source in PAIR_SOURCES:
        sides = section.get("source_column"), section.get("target_column")
        languages = tuple(c for c in sides if isinstance(c, str) and _LANGUAGE.fullmatch(c))
    return _Data(
        source,
        known.description,
        known.licence,
        tuple(getattr(known, "notes", ())),
        getattr(known, "hub", ""),
        languages,
        kept,
    )


def _blanks(model: Model, data: _Data, figures: list[Figure], from_run: bool) -> list[str]:
    """What a reader would look for and nobody has said."""
    out = ["license: under which terms these weights may be used"]
    if not data.languages and "image" not in model.tag:
        out.append("language: which languages the texts are in")
    if not data.name:
        out.append("datasets: what it was trained on")
    elif not data.license:
        out.append(f"the terms of the data ({data.name}), how they were gathered, and whom they concern")
    if not figures:
        out.append("model-index: no figure was measured; `glassformer evaluate` measures some")
    elif not from_run:
        out.append("figures on data that chose nothing: those above were seen while training")
    if not base_of(model.source) and not model.source.startswith(("random", "solved")):
        out.append("base_model: the weights that it was begun with have no name on the Hub")
    return [*out, "intended use, and uses that it is not meant for"]


# --- metadata ---------------------------------------------------------------------------------------


def _metadata(model: Model, form: Form, data: _Data, title: str, figures: list[Figure]) -> str:
    """The YAML block, every string on one line."""
    import yaml

    out: dict[str, Any] = {}
    if data.languages:
        out["language"] = list(data.languages)
    out["library_name"] = form.library
    if model.tag and form.whole:
        out["pipeline_tag"] = model.tag
    out["tags"] = list(dict.fromkeys(filter(None, ["glassformer", model.task])))
    if base := base_of(model.source):
        out["base_model"] = base
    if data.hub:
        out["datasets"] = [data.hub]
    own = [f for f in figures if f.whose == "this model" and f.where == figures[0].where]
    if own:
        ids = [METRICS.get(f.key.split(".")[-1], (f.key, ""))[0] for f in own]
        out["metrics"] = list(dict.fromkeys(ids))
        results = [{"type": i, "value": f.value, "name": f.name} for i, f in zip(ids, own, strict=True)]
        dataset = {"name": data.name or "not stated", "type": data.hub or data.name or "not-stated"}
        where = {"split": own[0].where} if own[0].where else {}
        task = {"type": model.tag or model.task or model.kind}
        index = {"task": task, "dataset": dataset | where, "metrics": results}
        out["model-index"] = [{"name": title, "results": [index]}]
    return yaml.safe_dump(_flat(out), sort_keys=False, allow_unicode=True, width=10_000)


def _flat(value: Any) -> Any:
    """Strings on one line and of printable characters, wherever they stand."""
    if isinstance(value, str):
        return printable(" ".join(value.split()))
    if isinstance(value, Mapping):
        return {key: _flat(v) for key, v in value.items()}
    return [_flat(v) for v in value] if isinstance(value, list) else value


# --- Markdown ---------------------------------------------------------------------------------------


def escaped(value: Any) -> Any:
    """Text as Markdown that shows it: one line, no markup, no link, no HTML; numbers as they are."""
    if isinstance(value, Ready) or not isinstance(value, str):
        return value
    text = re.sub(r"([\\`*_{}\[\]|~$@#])", r"\\\1", _flat(value))
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("://", ":\\//").replace("www.", "www\\.")


class Ready(str):
    """Markdown that is ours."""


def code(value: Any) -> Ready:
    """A name from data or settings in a code span, where nothing is markup; also in a table's cell."""
    text = _flat(str(value))
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    pad = " " if text.startswith("`") or text.endswith("`") or not text.strip() else ""
    return Ready(f"{fence}{pad}{text}{pad}{fence}".replace("|", "\\|"))


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=escaped,
        autoescape=False,  # of HTML; what stands here is Markdown, and ``finalize`` escapes it
    )
    made.filters |= {"code": code, "count": count, "duration": duration, "ready": Ready}
    made.globals["sep"] = Ready(", ")
    made.filters["number"] = lambda x: Ready(f"{x:.4f}" if isinstance(x, float) else f"{x:,}")
    return made
