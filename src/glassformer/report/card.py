"""Model cards: the ``README.md`` of saved models.

A card starts with the metadata that the Hugging Face Hub reads. It contains only measured values and
settings, and lists missing information under "Blanks". Names from data and settings are in code spans, where
they cannot act as markup or links. Only the last part of a path is written, because a card must not reveal
folders of the machine.
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
from glassformer.outputs import make_printable
from glassformer.report.wording import count, duration
from glassformer.targets.regression import Numbers

TEMPLATES = Path(__file__).parent / "templates"
EXCLUDED_KEYS = set(  # keys in metrics.json of counts, times and settings
    "n of contexts width step best_step words entities pairs length_penalty seconds sentences_per_second "
    "epoch kind is_best".split()
)
SHOWN_SETTINGS = (
    "epochs lr batch_size schedule warmup weight_decay max_length precision C alpha monitor keep_best "
    "class_weight label_smoothing lora_rank image_size"
).split()
METRICS = {  # key in metrics.json -> id on the Hub, and name for readers
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
MAX_LABELS = 50  # maximum number of listed labels
MAX_ROWS = 40  # maximum number of rows in the table of metrics
MAX_FINDINGS = 12  # maximum number of findings of the data doctor
_PATH = re.compile(r"(?<!\S)(?:[A-Za-z]:\\|~|\.{0,2}/)[^;:()]*[\\/]")  # for example "~/models/"
# A pretrained model: "package PACKAGE (OWNER/NAME, ..." or "OWNER/NAME at revision ..."
_PACKAGE = re.compile(r"package \S+ \(([\w.-]+/[\w.-]+),")
_HUB = re.compile(r"([\w.-]+/[\w.-]+) at (?:revision|its default revision)")
# The comparison with transformers, if the card has one, and the heading after it
_BEFORE_LIMITS = re.compile(r"(\n## Compared with transformers\n.*?)?\n## Limits\n", re.DOTALL)
_LANGUAGE = re.compile(r"[a-z]{2,3}")  # an ISO 639 code


@dataclass(frozen=True)
class Metric:
    """A measured value of a metric."""

    model: str  # "this model", or the name of a baseline
    split: str
    key: str  # key in metrics.json
    value: float
    interval: tuple[float, float] | None = None  # 95 %
    n: int | None = None  # number of examples

    @property
    def name(self) -> str:
        """The name of the metric in the card."""
        return METRICS.get(self.key, ("", self.key.replace("_", " ")))[1]


@dataclass(frozen=True)
class Model:
    """Facts about a model, from ``Estimator.card``."""

    kind: str  # name of the estimator class
    tag: str = ""  # the Hub's pipeline_tag; empty if there is none
    labels: tuple[str, ...] = ()
    parameters: int = 0
    source: str = ""  # description of the origin of the weights
    settings: Mapping[str, Any] = field(default_factory=dict)
    chosen: Mapping[str, Any] = field(default_factory=dict)  # settings that the fit selected
    seconds: float = 0.0  # training time
    versions: Mapping[str, str] = field(default_factory=dict)
    examples: Mapping[str, int] = field(default_factory=dict)  # split -> number of examples in fit
    validation: Mapping[str, float] = field(default_factory=dict)  # validation metrics of the best weights
    limits: tuple[str, ...] = ()
    use: str = ""  # lines of Python that use the model
    task: str = ""
    is_multilabel: bool = False


@dataclass(frozen=True)
class LoadingInfo:
    """How to load the saved folder."""

    library: str = "glassformer"
    opens_as: str = ""  # name of the class in transformers
    includes_head: bool = True  # whether this class includes the head; otherwise run.py adds it


def model_card(
    model: Model,
    config: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Any] | None = None,
    doctor: Mapping[str, Any] | None = None,
    loading: LoadingInfo | None = None,
) -> str:
    """The text of ``README.md``: YAML metadata between two lines of ``---``, then Markdown."""
    config, metrics, loading = config or {}, metrics or {}, loading or LoadingInfo()
    data = _data(config)
    title = str(config.get("name") or "") or model.kind
    measured = list(run_metrics(metrics)) or list(_validation_metrics(model))
    findings = [f for f in (doctor or {}).get("findings", []) if f.get("severity") == "warning"]
    settings = {**model.settings, **model.chosen}
    values = {
        "model": model,
        "loading": loading,
        "data": data,
        "title": title,
        "summary": str(config.get("summary") or ""),
        "metrics": measured[:MAX_ROWS],
        "num_hidden": max(len(measured) - MAX_ROWS, 0),
        "from_run": bool(metrics),
        "chose_weights": not metrics and bool(measured),
        "openings": metrics.get("openings") or {},
        "splits": _splits(metrics) or dict(model.examples),
        "findings": [str(f.get("message", "")) for f in findings[:MAX_FINDINGS]],
        "base": base_of(model.source),
        "source": without_paths(model.source),
        "date": str(metrics.get("date") or "")[:10],
        "machine": metrics.get("machine") or {},
        "truncated": {k: v for k, v in (metrics.get("truncated") or {}).items() if v and v[0]},
        "labels": model.labels[:MAX_LABELS],
        "more_labels": max(len(model.labels) - MAX_LABELS, 0),
        "seed": metrics.get("seed", model.settings.get("seed")),
        "settings": {k: v for k, v in settings.items() if v is not None and k in SHOWN_SETTINGS},
        "blanks": _blanks(model, data, measured, bool(metrics)),
    }
    body = _environment().get_template("card.md.j2").render(values)
    metadata = _metadata(model, loading, data, title, measured)
    body = re.sub(r"\n{3,}", "\n\n", body).strip()
    return f"---\n{metadata}---\n\n{body}\n"


def with_proof(card: str, sentences: Sequence[str]) -> str:
    """The text of a card with the result of ``glassformer prove`` (``sentences``) before its limits."""
    lines = [f"- {escaped(line)}" for line in sentences]
    end = "`proof.json` has the checksums of these weights, each output and the versions."
    section = "\n".join(["", "## Compared with transformers", "", *lines, "", end, ""]) if lines else ""
    return _BEFORE_LIMITS.sub(lambda _: f"{section}\n## Limits\n", card, count=1)


def base_of(source: str) -> str | None:
    """The Hub id of the pretrained weights; None for random weights, local folders and unknown weights."""
    match = _PACKAGE.match(source) or _HUB.match(source)
    return match[1] if match else None


def without_paths(text: str) -> str:
    """The text, with only the last part of each path."""
    return _PATH.sub("", text)


# --- metrics ----------------------------------------------------------------------------------------


def run_metrics(metrics: Mapping[str, Any]) -> Iterator[Metric]:
    """Yield the metrics of a run on held-out data, those of the evaluated split and its baselines first."""
    evaluated_split = str(metrics.get("judged") or "test")
    for split, name in (("test", evaluated_split), ("validation", "validation")):
        if isinstance(model_scores := metrics.get(split), Mapping):
            yield from _metrics_in(model_scores, "this model", name)
            if split == "test":
                for baseline, scores in (metrics.get("baselines") or {}).items():
                    yield from (m for m in _metrics_in(scores, str(baseline), name) if m.interval)
            if split == "test" and name == "validation":
                break
    for key, name in (("masked", "validation"), ("tests", "test"), ("scores", ""), ("similarity", "")):
        for path, scores in _score_groups(metrics.get(key), name):
            yield from _metrics_in(scores, "this model", path)
    for name, scores in (metrics.get("others") or {}).items():
        yield from (m for m in _metrics_in(scores, str(name), evaluated_split) if m.interval)


def _score_groups(value: Any, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the path and the content of each nested dictionary that contains numbers."""
    if not isinstance(value, Mapping):
        return
    if any(_is_number(v) for v in value.values()):
        yield path, value
        return
    for name, inner in value.items():
        yield from _score_groups(inner, f"{path}, {name}".removeprefix(", "))


def _metrics_in(scores: Mapping[str, Any], model: str, split: str) -> Iterator[Metric]:
    n = scores.get("n", scores.get("known", scores.get("pairs")))
    for key, value in scores.items():
        if key not in EXCLUDED_KEYS and _is_number(value):
            bounds = scores.get(f"{key}_interval")
            # Older files have the interval (1, 1) if all predictions are correct.
            if bounds and n and key not in Numbers.compared:
                bounds = share_interval(value, scores.get("contexts", scores.get("entities", n)), bounds)
            yield Metric(model, split, key, float(value), (bounds[0], bounds[1]) if bounds else None, n)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _validation_metrics(model: Model) -> Iterator[Metric]:
    """Yield the validation metrics of the best weights; the accuracy has a Wilson interval."""
    n = model.examples.get("validation")
    for key, value in model.validation.items():
        bounds = share_interval(value, n) if n and key == "accuracy" else None
        yield Metric("this model", "validation", key, value, (bounds[0], bounds[1]) if bounds else None, n)


def _splits(metrics: Mapping[str, Any]) -> dict[str, int]:
    """The number of examples of each split: training, validation, then the other splits."""
    sizes: dict[str, int] = {}
    texts = metrics.get("texts")
    if isinstance(texts, Mapping):
        sizes |= {str(k): v for k, v in texts.items() if isinstance(v, int)}
    elif isinstance(texts, int):
        sizes["train"] = texts
    for split in ("train", "validation", "test"):
        if isinstance(scores := metrics.get(split), Mapping) and (n := scores.get("of", scores.get("n"))):
            sizes[str(metrics.get("judged") or split) if split == "test" else split] = n
    for split, searches in (metrics.get("scores") or {}).items():
        for scores in searches.values():
            sizes[str(split)] = scores.get("n", 0)
    if isinstance(truncated := (metrics.get("truncated") or {}).get("train"), list):
        sizes.setdefault("train", truncated[1])
    order = ("train", "validation")
    return {k: sizes[k] for k in sorted(sizes, key=lambda k: order.index(k) if k in order else 2)}


# --- data -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Data:
    """Facts about the data set."""

    name: str = ""  # name, or the last part of the path; "" if unknown
    description: str = ""
    license: str = ""
    notes: tuple[str, ...] = ()
    hub: str = ""
    languages: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


def _data(config: Mapping[str, Any]) -> _Data:
    section = config.get("data")
    section = section if isinstance(section, Mapping) else {}
    source = str(section.get("source") or "")
    keys = ("limit", "hold_out", "drop_duplicates", "validation_size", "test_size", "copies")
    settings = {k: section[k] for k in keys if section.get(k)}
    settings |= {k: section[k] for k in ("split_seed",) if k in section}
    named_source: Any = NAMED_SOURCES.get(source) or NAMED_IMAGES.get(source) or PAIR_SOURCES.get(source)
    if named_source is None:
        return _Data(name=re.split(r"[\\/]", source.rstrip("\\/"))[-1], settings=settings)
    languages = tuple(filter(None, (getattr(named_source, "language", ""),)))
    if source in PAIR_SOURCES:
        columns = section.get("source_column"), section.get("target_column")
        languages = tuple(c for c in columns if isinstance(c, str) and _LANGUAGE.fullmatch(c))
    about = named_source.description, named_source.licence, tuple(getattr(named_source, "notes", ()))
    return _Data(source, *about, getattr(named_source, "hub", ""), languages, settings)


def _blanks(model: Model, data: _Data, metrics: list[Metric], from_run: bool) -> list[str]:
    """Lines about missing information that readers of a card expect."""
    out = ["license: under which terms these weights may be used"]
    if not data.languages and "image" not in model.tag:
        out.append("language: which languages the texts are in")
    if not data.name:
        out.append("datasets: what it was trained on")
    elif not data.license:
        out.append(f"the terms of the data ({data.name}), how they were collected, and whom they concern")
    if not metrics:
        out.append("model-index: nothing was measured; use `glassformer evaluate`")
    elif not from_run:
        out.append("metrics on test data: the validation data above were used to choose the weights")
    if not base_of(model.source) and not model.source.startswith(("random", "solved")):
        out.append("base_model: the pretrained weights have no name on the Hub")
    return [*out, "intended use, and uses that it is not meant for"]


# --- metadata ---------------------------------------------------------------------------------------


def _metadata(model: Model, loading: LoadingInfo, data: _Data, title: str, metrics: list[Metric]) -> str:
    """The YAML metadata, in which every string is on one line."""
    import yaml

    out: dict[str, Any] = {}
    if data.languages:
        out["language"] = list(data.languages)
    out["library_name"] = loading.library
    if model.tag and loading.includes_head:
        out["pipeline_tag"] = model.tag
    out["tags"] = list(dict.fromkeys(filter(None, ["glassformer", model.task])))
    if base := base_of(model.source):
        out["base_model"] = base
    if data.hub:
        out["datasets"] = [data.hub]
    model_metrics = [m for m in metrics if m.model == "this model" and m.split == metrics[0].split]
    if model_metrics:
        ids = [METRICS.get(m.key, (m.key, ""))[0] for m in model_metrics]
        out["metrics"] = list(dict.fromkeys(ids))
        pairs = zip(ids, model_metrics, strict=True)
        results = [{"type": hub_id, "value": m.value, "name": m.name} for hub_id, m in pairs]
        dataset = {"name": data.name or "not stated", "type": data.hub or data.name or "not-stated"}
        split = {"split": model_metrics[0].split} if model_metrics[0].split else {}
        task = {"type": model.tag or model.task or model.kind}
        index = {"task": task, "dataset": dataset | split, "metrics": results}
        out["model-index"] = [{"name": title, "results": [index]}]
    return yaml.safe_dump(_one_line(out), sort_keys=False, allow_unicode=True, width=10_000)


def _one_line(value: Any) -> Any:
    """The value, with each string in it printable and on one line."""
    if isinstance(value, str):
        return make_printable(" ".join(value.split()))
    if isinstance(value, Mapping):
        return {key: _one_line(v) for key, v in value.items()}
    return [_one_line(v) for v in value] if isinstance(value, list) else value


# --- Markdown ---------------------------------------------------------------------------------------


def escaped(value: Any) -> Any:
    """Text escaped for Markdown, as one line without markup, links and HTML; other values unchanged."""
    if isinstance(value, Safe) or not isinstance(value, str):
        return value
    text = re.sub(r"([\\`*_{}\[\]|~$@#])", r"\\\1", _one_line(value))
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("://", ":\\//").replace("www.", "www\\.")


class Safe(str):
    """Markdown that needs no escaping."""


def code(value: Any) -> Safe:
    """A name from data or settings as a code span, which is also safe in tables."""
    text = _one_line(str(value))
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    pad = " " if text.startswith("`") or text.endswith("`") or not text.strip() else ""
    return Safe(f"{fence}{pad}{text}{pad}{fence}".replace("|", "\\|"))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=escaped,
        autoescape=False,  # autoescape is for HTML; ``finalize`` escapes Markdown
    )
    environment.filters |= {"code": code, "count": count, "duration": duration, "raw": Safe}
    environment.globals["comma"] = Safe(", ")
    environment.filters["number"] = lambda x: Safe(f"{x:.4f}" if isinstance(x, float) else f"{x:,}")
    return environment
