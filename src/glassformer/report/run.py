"""Reader of run folders for reports, with strict checks and limits."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from glassformer.config import UNKNOWN_RECIPE, KnownRecipe, read_toml
from glassformer.errors import DataError, NoSuchFileError, NoSuchSplitError, TooLargeError
from glassformer.evaluate.predictions import Prediction, read_predictions
from glassformer.targets import target_of

MAX_BYTES = 256 * 2**20  # maximum size of a JSON file; attention maps of long texts are the largest
SPLITS = ("test", "validation", "train")
REQUIRED_SCORES = {"n", "accuracy", "macro_f1", "log_loss", "roc_auc", "labels", "confusion", "per_class"}
BINS = 20  # number of bins of the predicted probability
# Replacements of unsafe characters. Each has one character, because offsets in texts must stay valid.
# Control characters (except tab and newline) and surrogates, which HTML cannot contain:
_UNSAFE = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160), *range(0xD800, 0xE000)], "\ufffd")
# Characters that change the direction of text, and the carriage return:
_UNSAFE |= dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)], "\ufffd") | {13: " "}


@dataclass
class CalibrationBins:
    """Numbers of all and of correct predictions, in bins of the predicted probability."""

    total: list[int] = field(default_factory=lambda: [0] * BINS)
    correct: list[int] = field(default_factory=lambda: [0] * BINS)

    def add(self, probability: float, is_correct: bool) -> None:
        index = min(int(min(max(probability, 0.0), 1.0) * BINS), BINS - 1)
        self.total[index] += 1
        self.correct[index] += is_correct


@dataclass(frozen=True)
class Run:
    """The contents of a run folder; strings are safe to show in HTML."""

    folder: Path
    metrics: dict[str, Any]
    split: str  # name of the evaluated split
    scores: dict[str, Any]  # metrics of this split; empty without a split, or for tasks with other metrics
    config: dict[str, Any]
    steps: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]
    doctor: dict[str, Any]
    calibration: dict[str, Any]  # content of calibration.json; empty if the run was not calibrated
    known: KnownRecipe = field(default=UNKNOWN_RECIPE, kw_only=True)  # facts about the recipe

    @property
    def noun(self) -> str:
        """Plural noun for the examples."""
        return self.known.noun

    @property
    def measure(self) -> str:
        """The main metric of the report: the metric that selected the weights, or accuracy."""
        train = self.config.get("train")
        monitor = self.metrics.get("measure") or (train.get("monitor") if isinstance(train, dict) else None)
        return str(monitor) if monitor in target_of(self.scores).main_metrics else "accuracy"

    def json(self, name: str) -> dict[str, Any]:
        """Another JSON file of the folder; empty if it does not exist."""
        return read_json(self.folder / name, dict)


@dataclass(frozen=True)
class LabeledRun(Run):
    """The contents of a classifier's run folder."""

    mistakes: list[Prediction]  # wrong predictions, the most confident first
    calibration_bins: CalibrationBins
    maps: list[dict[str, Any]]
    images: dict[str, Any]  # thumbnails of examples and mistakes


def read_folder(folder: str | Path) -> Run:
    """Read a run folder of any kind.

    Args:
        folder: contains metrics.json and, optionally, config.toml, history.jsonl, doctor.json and
            calibration.json.

    Raises:
        DataError: no metrics.json, or a file is damaged or too large.
        ConfigError: config.toml is not TOML.
    """
    folder = Path(folder)
    if not (folder / "metrics.json").is_file():
        raise NoSuchFileError("no metrics.json", where=str(folder), fix="Name the folder of a finished run")
    metrics = read_json(folder / "metrics.json", dict)
    key = "test" if metrics.get("test") else "validation"
    history = list(read_history(folder / "history.jsonl"))
    return Run(
        folder=folder,
        metrics=metrics,
        split=(metrics.get("judged") or key) if key == "test" else key,
        scores=metrics.get(key) or {},
        config=html_safe(read_toml(folder / "config.toml")) if (folder / "config.toml").is_file() else {},
        steps=[h for h in history if h.get("kind") == "step"],
        evaluations=[h for h in history if h.get("kind") == "evaluation"],
        doctor=read_json(folder / "doctor.json", dict),
        calibration=read_json(folder / "calibration.json", dict),
    )


def read_run(folder: str | Path, *, mistakes: int = 10) -> LabeledRun:
    """Read the run folder of a classifier.

    Args:
        folder: as in ``read_folder``; it may also contain predictions.csv, maps.json and pictures.json.
        mistakes: maximum number of wrong predictions.

    Raises:
        DataError: as in ``read_folder``, or no split was evaluated, or a split does not have all metrics.
        ConfigError: config.toml is not TOML.
    """
    run = read_folder(folder)
    where = str(run.folder / "metrics.json")
    if not run.scores and run.metrics.get("train"):
        run = replace(run, split="train", scores=run.metrics["train"])
    if not run.scores:
        raise NoSuchSplitError(f"none of {', '.join(SPLITS)} was evaluated", where=where)
    for split in SPLITS:
        if missing := REQUIRED_SCORES - (run.metrics.get(split) or dict.fromkeys(REQUIRED_SCORES)).keys():
            raise DataError(f"{split} has no {', '.join(sorted(missing))}", where=where)
    most_confident, calibration_bins = _read_mistakes(run.folder / "predictions.csv", run.split, mistakes)
    return LabeledRun(
        **vars(run),
        mistakes=most_confident,
        calibration_bins=calibration_bins,
        maps=run.json("maps.json").get("examples", []),
        images=run.json("pictures.json"),
    )


def html_safe(value: Any) -> Any:
    """``value``, with unsafe characters replaced in every string and key."""
    if isinstance(value, str):
        return value.translate(_UNSAFE)
    if isinstance(value, dict):
        return {html_safe(k): html_safe(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [html_safe(v) for v in value]
    return value


def read_json(path: Path, kind: type) -> Any:
    """The content of a JSON file, which must have the type ``kind`` (dict or list); empty without a file.

    NaN and infinity become None.
    """
    if not path.is_file():
        return kind()
    if path.stat().st_size > MAX_BYTES:
        raise TooLargeError(f"larger than {MAX_BYTES >> 20} MiB", where=str(path))
    value = _parse(path.read_bytes(), str(path))
    if not isinstance(value, kind):
        raise DataError(f"does not contain a {kind.__name__}", where=str(path))
    return value


def _parse(content: bytes, where: str) -> Any:
    try:
        return html_safe(json.loads(content.decode("utf-8"), parse_constant=lambda _: None))
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, or nested too deeply
        raise DataError(f"not valid JSON ({error})", where=where) from None


def read_history(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of history.jsonl, except an incomplete last line of a killed run."""
    if not path.is_file():
        return
    with open(path, "rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(2**20), b""), start=1):
            if not line.endswith(b"\n"):
                return
            record = _parse(line, f"{path}: line {number}")
            if not isinstance(record, dict) or not isinstance(record.get("step"), int):
                raise DataError("not an object with a step", where=f"{path}: line {number}")
            yield record


def _read_mistakes(path: Path, split: str, limit: int) -> tuple[list[Prediction], CalibrationBins]:
    """The ``limit`` most confident wrong predictions, and the bins for the calibration chart."""
    calibration_bins = CalibrationBins()

    def wrong_predictions() -> Iterator[Prediction]:
        for prediction in read_predictions(path):
            if prediction.label and prediction.split in ("", split):
                calibration_bins.add(prediction.probability, not prediction.is_wrong)
                if prediction.is_wrong:
                    yield prediction

    predictions = wrong_predictions() if path.is_file() else ()
    mistakes = heapq.nlargest(limit, predictions, key=lambda prediction: prediction.probability)
    return [Prediction(**html_safe(asdict(mistake))) for mistake in mistakes], calibration_bins
