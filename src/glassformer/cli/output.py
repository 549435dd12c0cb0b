"""Output of the commands.

Results go to stdout, notes and errors to stderr.
"""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from glassformer.checkpoints.files import read_json
from glassformer.data.findings import num_warnings
from glassformer.errors import GlassformerWarning, counted
from glassformer.finite import json_text
from glassformer.outputs import make_printable
from glassformer.report.wording import count, digits_for, model_name, percent, share_interval, verdict_of
from glassformer.tasks.catalog import TASKS

if TYPE_CHECKING:
    from glassformer.report.metrics import Table as Metrics
    from glassformer.tasks.run import Run


NO_ANSWER = "(no answer)"
EXCERPT_LENGTH = 100  # maximum number of characters of a text in a table
# Style of a cell in the first column, by its text
STATE_STYLES = {"missing": "bold red", "warning": "yellow", "note": "cyan", "ok": "green"}


_json_output = False  # whether the command prints JSON, and everything else goes to stderr


def stdout_for_json(enabled: bool) -> bool:
    """Send messages and tables to stderr if ``enabled``, so stdout has only JSON; returns ``enabled``."""
    global _json_output
    _json_output = enabled
    return enabled


def output_stream() -> TextIO:
    """The stream for messages and tables."""
    return sys.stderr if _json_output else sys.stdout


AS_JSON: Any = typer.Option(
    False, "--json", callback=stdout_for_json, is_eager=True, help="Print JSON instead of text."
)


def one_line(text: Any) -> str:
    """A text as one line, without control characters."""
    return make_printable(" ".join(str(text).split()))


def excerpt(text: str, size: int = EXCERPT_LENGTH) -> str:
    """The first ``size`` characters of a text, as one line."""
    line = one_line(text[: 4 * size])
    return line if len(line) <= size else line[: size - 1].rstrip() + "…"


def print_text(text: str, err: bool = False) -> None:
    """Print text to stdout, or to stderr if ``err``; escapes control characters except tab and newline."""
    typer.echo(make_printable(text, allowed="\t\n"), err=err)


def print_message(*lines: str) -> None:
    """Print lines to stdout; with ``--json``, to stderr."""
    for line in lines:
        print_text(one_line(line), err=_json_output)


def print_note(*lines: str) -> None:
    """Print notes to stderr; they are not part of the result."""
    for line in lines:
        print_text(f"note: {one_line(line)}", err=True)


def print_json(value: Any) -> None:
    """Print a value as JSON; control characters are escaped."""
    text = json_text(value, indent=2, default=_to_plain)
    if not text.replace("\n", "").isprintable():
        text = "".join(c if c.isprintable() or c == "\n" else json_text(c, ascii=True)[1:-1] for c in text)
    print_text(text)


def _to_plain(value: Any) -> Any:
    """Convert paths to text, and NumPy values to numbers and lists."""
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


@contextmanager
def progress_bar(title: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """Show a progress bar if stderr is a terminal and ``total`` is not 1; yields the update function."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = "{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    is_hidden = total == 1 or not sys.stderr.isatty()
    with Progress(*columns, transient=True, disable=is_hidden, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done, total=total: bar.update(task, advance=done, total=total)


def show_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], right: Sequence[str] = ()
) -> None:
    """Print a table; the columns named in ``right`` are right-aligned. Markup in cells is not interpreted."""
    table = Table(title=Text(one_line(title)), title_justify="left", title_style="bold", header_style="bold")
    for column in columns:
        justify = "right" if column in right else "left"
        table.add_column(Text(one_line(column)), justify=justify, no_wrap=column in right, overflow="fold")
    for row in rows:
        cells = [one_line(cell) for cell in row]
        styles = [STATE_STYLES.get(cell, "") if i == 0 else "" for i, cell in enumerate(cells)]
        table.add_row(*map(Text, cells, styles))
    Console(file=output_stream()).print(table)


def show_metric_table(title: str, table: Metrics) -> None:
    """Print a table of metrics."""
    right = [head for head in table.columns[1:] if head not in table.text_columns]
    show_table(title, table.columns, table.rows, right)


def show_metrics(title: str, scores: dict[str, Any], measure: str = "accuracy") -> None:
    """Print all metrics of a classifier, ``measure`` first, and precision, recall and F1 per class."""
    from glassformer.report.metrics import leading_metrics, value_table
    from glassformer.targets import target_of

    digits = digits_for(scores["n"])
    keys = dict.fromkeys([*dict(leading_metrics(measure, scores)), *target_of(scores).metrics])
    show_metric_table(title, value_table(scores, [*keys], digits))
    columns = ("class", "precision", "recall", "F1", "examples")
    rows = [
        [c["label"], *(percent(c[key], digits) for key in ("precision", "recall", "f1")), count(c["support"])]
        for c in scores["per_class"]
    ]
    show_table("per class", columns, rows, right=columns[1:])


def abstention_line(abstention: dict[str, Any]) -> str:
    """A sentence: the number of examples with a label despite abstention, and the accuracy on them."""
    accuracy, n = abstention["accuracy"], abstention["answered"]
    sentence = f"with abstention below {abstention['below']:g}, {n:,} of {abstention['n']:,} get a label"
    if not n:
        return sentence
    digits = digits_for(n)
    bounds = f"95 % interval: {share_interval(accuracy, abstention['accuracy_interval'], n, digits)}"
    return f"{sentence}, {percent(accuracy, digits)} of them the right one ({bounds})"


def show_translation_scores(title: str, splits: dict[str, dict[str, Any]]) -> None:
    """Print the metrics of each split and search method, and how they were computed."""
    from glassformer.report.metrics import metric_table

    entries = [(split, name, scores) for split, methods in splits.items() for name, scores in methods.items()]
    columns = ("bleu", "chrf", "bleu_tokenised", "sentences_per_second")
    table = metric_table([(split, scores) for split, _, scores in entries], columns, 2, first_column="")
    rows = [
        [row[0], f"{name} ({scores['width']})", *row[1:]]
        for (_, name, scores), row in zip(entries, table.rows, strict=True)
    ]
    show_table(title, ("", "search", *table.columns[1:]), rows, right=table.columns[1:])
    for name, signature in entries[0][2]["signatures"].items():
        print_message(f"{name.replace('_', ' ')}: {signature}")


@contextmanager
def print_warnings(reword: Callable[[str], str] = str) -> Iterator[None]:
    """Print each warning of glassformer once, as a note; ``reword`` changes its text."""
    printed: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *location: Any) -> None:
        if not issubclass(category, GlassformerWarning):
            show_default(message, category, *location)
        elif str(message) not in printed:
            printed.add(str(message))
            print_note(f"{reword(str(message))} [{category.code}]")

    with warnings.catch_warnings():
        show_default, warnings.showwarning = warnings.showwarning, show
        yield


# --- finished runs ----------------------------------------------------------------------------------

FEW_EXAMPLES = 30  # with fewer validation examples, accuracy is printed as a count
MIN_GAP = 0.05  # a larger difference between mean confidence and accuracy is reported
MIN_CALIBRATION = 50  # number of validation examples needed to fit a temperature


def show_run(run: Run, recipe: Any) -> None:
    """Print a finished run: its metrics and the paths of model and report."""
    metrics = run.metrics
    if trials := metrics.get("tried"):
        show_trials(trials)
    printers = {"similarity": show_similarity_run, "baselines": show_evaluated_run, "tests": show_vectors_run}
    show = next((printers[key] for key in printers if key in metrics), show_sequence_run)
    show(run, recipe)
    print_message(f"model: {run.folder / 'model'}")
    print_message(f"report: {run.report}")


def run_as_dict(run: Run) -> dict[str, Any]:
    """A finished run for JSON: its paths and its metrics."""
    out = {"folder": run.folder, "model": run.folder / "model", "report": run.report, "metrics": run.metrics}
    return out | ({"verdict": verdict} if (verdict := _verdict(run)) else {})


def _verdict(run: Run) -> str:
    """A sentence about a classifier's metrics; empty for other models."""
    from glassformer.tasks.run import read_run_recipe

    if "baselines" not in run.metrics or {"scheme", "answers", "numbers", "similarity"} & run.metrics.keys():
        return ""
    return verdict_of(run.metrics, TASKS[read_run_recipe(run.folder).task].estimator.NOUN)


def next_step(run: Run, recipe: Any) -> str:
    """A line with the command to run after training."""
    from glassformer.tasks.load import describe

    task = TASKS[recipe.task]
    if task.verb == "evaluate":
        return f"next: glassformer evaluate {shlex.quote(str(run.folder))}"
    if task.verb == "similar":
        return f'next: glassformer similar "ONE TEXT" "ANOTHER" --model {shlex.quote(str(run.folder))}'
    inputs = describe(run.folder).inputs or task.estimator.INPUTS
    argument = {"vectors": "WORD", "fill": example_text(recipe) or '"A TEXT WITH A MASK"'}.get(task.verb)
    argument = argument or (inputs.example_is_one_text and example_text(recipe)) or inputs.placeholder
    if task.verb == "predict" and inputs.in_tables:
        argument += ", or a table: FILE.csv --out PREDICTIONS.csv"
    return f"next: glassformer {task.verb} {shlex.quote(str(run.folder))} {argument}"


def example_text(recipe: Any) -> str:
    """The first example sentence of a recipe, quoted for a shell; empty if there is none."""
    sentences = getattr(getattr(recipe, "evaluate", None), "sentences", ())
    return shlex.quote(one_line(sentences[0])) if sentences else ""


def show_evaluated_run(run: Run, recipe: Any) -> None:
    """Print a finished run of a classifier, tagger, question answerer or regressor, with its baselines."""
    from glassformer.report.metrics import metric_table
    from glassformer.targets import target_of

    metrics, noun = run.metrics, TASKS[recipe.task].estimator.NOUN
    scores, measure = metrics["test"] or metrics["validation"], metrics.get("measure", "accuracy")
    split_name = metrics["judged"] if metrics["test"] else "validation"
    if scores is not None:
        target = target_of(scores)
        name = model_name(metrics, recipe.model.model)
        model_scores = scores | {"seconds": metrics["seconds"].get("train")}
        groups = [(f"of these {scores[g]['n']:,} {g}", scores[g]) for g in QUESTION_GROUPS if g in scores]
        rows = [(name, model_scores), *groups, *metrics["baselines"].items()]
        digits, columns = target.digits(scores["n"]), terminal_columns(scores, measure)
        print_message("")
        examples = f"{scores['n']:,} {split_name} {noun}{target.size_note(scores)}"
        title = f"{recipe.name}: {examples}, {metrics['seconds']['total']:.0f} s in all"
        first_column = "" if target.predicts_labels else "model"
        show_metric_table(title, metric_table(rows, columns, digits, first_column, short=True))
        print_message(*LINES_BY_LAYOUT[target.terminal_layout](scores, metrics, name, noun))
    print_message(*interval_lines(metrics.get("intervals") or []))
    if metrics["test"] and split_name != "validation" and metrics["validation"]:
        print_message(validation_line(metrics["validation"], measure))
    if hint := calibration_hint(run.folder, metrics):
        print_message(hint)
    if (threshold := metrics.get("threshold")) is not None:
        print_message(
            f"'no answer' is predicted if its score exceeds the best answer's by more than {threshold:.3f}"
        )
    if outliers := (metrics.get("numbers") or {}).get("far"):
        print_note(outlier_note(outliers))
    for split, (n_cut, total) in metrics.get("truncated", {}).items():
        if n_cut:
            length = metrics.get("max_length", recipe.text.max_length)
            print_message(
                f"{n_cut:,} of {total:,} {split} texts are longer than {length} tokens and were cut there"
            )
    for kind, by_severity in metrics.get("robustness", {}).items():
        size = f" ({by_severity[0]['n']:,} images)" if by_severity and "n" in by_severity[0] else ""
        accuracies = ", ".join(f"{row['accuracy']:.1%}" for row in by_severity)
        print_message(f"{kind}: accuracy {accuracies} at severity 1 to 5{size}")
    doctor = run.folder / "doctor.json"
    if doctor.is_file() and (num := num_warnings(read_json(doctor)["findings"])):
        print_note(f"{counted(num, 'warning')} about the data: above, and in the report")
    show_examples(metrics)


def terminal_columns(scores: dict[str, Any], measure: str) -> Sequence[str]:
    """The metrics for a table that fits a terminal."""
    from glassformer.targets import target_of

    target = target_of(scores)
    return target.terminal_columns or [*target.narrow_columns(measure, scores), "seconds"]


# The next functions yield the lines below the table of metrics.


def label_lines(scores: dict[str, Any], metrics: dict[str, Any], name: str, noun: str) -> Iterator[str]:
    from glassformer.targets.multiclass import no_better_than_majority

    if comparison := no_better_than_majority(scores):
        print_note(f"{name} is {comparison}")
    yield verdict_of(metrics, noun)
    if any(b.get("class_weight") is not None for b in metrics["baselines"].values()):
        yield "the simple models were trained with the same class weights"


def tag_lines(scores: dict[str, Any], *_unused: Any) -> Iterator[str]:
    """Print a table of the entity types with their errors; yields no lines."""
    from glassformer.targets.token_tags import ERRORS

    errors = scores["errors_by_kind"]
    rows = [
        [kind, f"{s['support']:,}", percent(s["f1"], 2), *(f"{errors[kind][error]:,}" for error in ERRORS)]
        for kind, s in scores["by_kind"].items()
    ]
    columns = ("kind", "spans", "F1", *(error.replace("_", " ") for error in ERRORS))
    show_table("per entity type, with errors", columns, rows, right=columns[1:])
    yield from ()


def answer_lines(scores: dict[str, Any], *_unused: Any) -> Iterator[str]:
    errors = scores["errors"].items()
    yield "errors: " + (", ".join(f"{n:,} {e.replace('_', ' ')}" for e, n in errors if n) or "none")


def number_lines(scores: dict[str, Any], *_unused: Any) -> Iterator[str]:
    from glassformer.report.metrics import cells
    from glassformer.targets.regression import Numbers

    if scores["r2_interval"]:
        yield f"95 % interval of R²: {cells(scores, ['r2_interval'], Numbers(), 2)[0]}"
    if line := ratio_line(scores):
        yield line


QUESTION_GROUPS = ("unanswerable", "answerable")
LINES_BY_LAYOUT = {"labels": label_lines, "tags": tag_lines, "answers": answer_lines, "numbers": number_lines}


def show_examples(metrics: dict[str, Any]) -> None:
    """Print predictions for the example sentences and questions of the recipe."""
    sentences = metrics.get("sentences") or []
    for sentence in sentences:
        if "spans" in sentence:
            spans = [f"{s['text']} ({s['kind']} {percent(s['probability'])})" for s in sentence["spans"]]
            print_message(f"{excerpt(sentence['text'])}: {', '.join(spans) or 'no span'}")
    labeled = [s for s in sentences if "label" in s]
    if rows := [[excerpt(s["text"]), s["label"], percent(s["probability"])] for s in labeled]:
        show_table("example sentences", ("text", "label", "probability"), rows, right=["probability"])
    for question in metrics.get("questions") or []:
        answer = question["answer"] or NO_ANSWER
        print_message(f"{excerpt(question['question'])}: {answer} {percent(question['probability'])}")


def show_trials(trials: Sequence[dict[str, Any]]) -> None:
    """Print the models that ``model = auto`` has tried."""
    first = next(trial for trial in trials if "score" in trial)
    rows = []
    for trial in trials:
        cells = [f"{trial['score']:.4f}", f"{trial['seconds']:.0f}"] if "score" in trial else ["", ""]
        outcome = f"left out: {trial['left out']}" if "left out" in trial else ""
        rows.append([trial["model"], *cells, "chosen" if trial.get("chosen") else outcome])
    title = f"tried: {first['metric']} on {first['examples']:,} examples ({first['by']})"
    show_table(title, ("model", first["metric"], "seconds", ""), rows, right=["seconds"])


def validation_line(scores: dict[str, Any], measure: str) -> str:
    """A line with the validation metric; for few examples, the number of correct predictions."""
    from glassformer.targets import target_of

    n, target = scores["n"], target_of(scores)
    metric = target.metrics[measure]
    num_right = scores["accuracy"] * n if measure == "accuracy" else 0.0
    if n < FEW_EXAMPLES and measure == "accuracy" and abs(num_right - round(num_right)) < 1e-6:
        return f"validation {metric.name}: {round(num_right)} of {n}"
    size = f" (of {n} examples)" if n < FEW_EXAMPLES and target.predicts_labels else ""
    return f"validation {metric.name}: {metric.value(scores[measure], target.digits(n))}{size}"


def calibration_hint(folder: Path, metrics: dict[str, Any]) -> str:
    """A sentence on how to calibrate a significantly over- or underconfident classifier; empty for others.

    It is also empty if the confidence on the validation examples is not wrong in the same direction.
    """
    scores, validation = metrics.get("test"), metrics.get("validation")
    if not scores or scores.get("confidence") is None or scores.get("accuracy") is None:
        return ""
    gap, accuracy = scores["confidence"] - scores["accuracy"], scores["accuracy"]
    if abs(gap) < max(MIN_GAP, 2 * (accuracy * (1 - accuracy) / scores["n"]) ** 0.5):
        return ""
    direction, name = "low" if gap < 0 else "high", shlex.quote(str(folder))
    message = (
        f"the model's probabilities are too {direction}: {scores['confidence']:.2f} on average, "
        f"and {accuracy:.2f} of the predictions are right"
    )
    n = validation["n"] if validation else 0
    if validation is None or n < MIN_CALIBRATION:
        reason = f"the {n:,} validation examples are too few" if n else "there are no validation examples"
        alternative = f"glassformer calibrate {name} --data MORE.csv uses other labeled examples"
        return f"{message}; {reason} to calibrate them: {alternative}"
    confidence = validation.get("confidence")
    validation_gap = 0.0 if confidence is None else confidence - validation["accuracy"]
    is_consistent = validation_gap * gap > 0 and abs(validation_gap) >= MIN_GAP / 2
    return f"{message}. To calibrate: glassformer calibrate {name}" if is_consistent else ""


def show_sequence_run(run: Run, recipe: Any) -> None:
    """Print a finished run of a translator or a masked language model."""
    metrics = run.metrics
    title = f"{recipe.name}: {metrics['seconds']['total']:.0f} s in all"
    if metrics.get("scores"):
        show_translation_scores(title, metrics["scores"])
    if metrics.get("masked"):
        rows = [[name.replace("_", " "), f"{value:.4f}"] for name, value in metrics["masked"].items()]
        show_table(title, ("masked words", "value"), rows, right=("value",))
    for sentence in metrics.get("sentences") or []:
        translated = sentence.get("translation")
        print_message(sentence["text"] if translated is None else f"{sentence['text']} → {translated}")
        for words in sentence.get("fills") or []:
            print_message("  " + ", ".join(f"{w['token']} {percent(w['probability'])}" for w in words))


def show_similarity_run(run: Run, recipe: Any) -> None:
    """Print a finished run of an embedder, with its baselines."""
    metrics = run.metrics
    split_name = metrics["judged"]
    results = {f"{recipe.model.model}, {split}": values for split, values in metrics["similarity"].items()}
    results |= {f"{name}, {split_name}": values for name, values in metrics["others"].items()}
    if results:
        show_similarity(f"{recipe.name}: {metrics['seconds']['total']:.0f} s in all", results)


def show_similarity(title: str, results: dict[str, dict[str, Any]]) -> None:
    """Print the metrics of embedders, by model: correlations, or how often the paired text is retrieved."""
    from glassformer.report.metrics import metric_table
    from glassformer.targets.similarity import Similarity

    first, *others = [key for key in Similarity.metrics if any(key in values for values in results.values())]
    columns = ["n", first, f"{first}_interval", *others]
    show_metric_table(title, metric_table([*results.items()], columns, 2, short=True))


def show_vectors_run(run: Run, recipe: Any) -> None:
    """Print a finished run of word vectors."""
    metrics = run.metrics
    show_tests(f"{recipe.name}: {metrics['words_per_second']:,.0f} words/s", metrics["tests"])
    for key in ("neighbours", "analogies"):
        rows = [[query, ", ".join(word for word, _ in nearest)] for query, nearest in metrics[key].items()]
        if rows:
            show_table(key, ("query", "nearest"), rows)
    keys = ("mean", "min", "max")
    norms = [[stage, *(f"{n[key]:.3f}" for key in keys)] for stage, n in metrics["norms"].items()]
    columns = ("", "mean", "smallest", "largest")
    show_table("length of the vectors", columns, norms, right=columns[1:])


def show_tests(title: str, tests: dict[str, Any]) -> None:
    """Print the results of tests of word vectors."""
    from glassformer.report.vectors import test_rows

    show_table(title, ("test", "result", "basis"), test_rows(tests))


# --- regression -------------------------------------------------------------------------------------


def outlier_note(outliers: dict[str, Any]) -> str:
    """A note that outliers among the validation numbers determine the choice of the best epoch."""
    values, is_single = ", ".join(f"{value:.10g}" for value in outliers["first"]), outliers["count"] == 1
    epoch = "the epoch" if outliers["best_epoch"] is None else f"epoch {outliers['best_epoch']}"
    numbers = "a validation number" if is_single else f"{outliers['count']:,} validation numbers"
    verb = "causes" if is_single else "cause"
    loss_share = f"which {verb} {outliers['share_of_loss']:.0%} of the validation loss"
    fix = f"correct {'it' if is_single else 'them'}, or train again with --set far_numbers=skip"
    if outliers.get("wide"):
        fix = "the numbers span orders of magnitude: --set number_scale=log learns their logarithms"
    return f"the choice of {epoch} depends on {numbers} far from all others ({values}), {loss_share}: {fix}"


def interval_lines(levels: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield a line per coverage: share of true values in their intervals, and width of the intervals."""
    for level in levels:
        title = f"{level['asked']:.0%} intervals"
        if level["covered"] is None:
            yield f"{title} need at least {level['needed']} validation examples"
        else:
            width = f"width {level['width']:.4g}"
            if "factor" in level:
                width = f"from 1/{level['factor']:.3g} to {level['factor']:.3g} times the prediction"
            yield f"{title}: {level['covered']:.1%} of the true numbers inside, {width}"


def ratio_line(scores: dict[str, Any]) -> str:
    """A line with the median error as a factor, for regression on a log scale; empty for other models."""
    ratios = scores.get("ratios") or {}
    if (factor := ratios.get("median_factor")) is None:
        return ""
    line = f"half of the predictions are within a factor of {factor:.3g}"
    return f"{line}; R² of the logarithms: {ratios['r2']:.4g}" if ratios["r2"] is not None else line


def show_regression_metrics(title: str, scores: dict[str, Any]) -> None:
    """Print all metrics of a regressor, and the coverage of its prediction intervals."""
    from glassformer.report.metrics import value_table
    from glassformer.targets.regression import Numbers

    show_metric_table(title, value_table(scores, [*Numbers.metrics], 2))
    if line := ratio_line(scores):
        print_message(line)
    print_message(*interval_lines(scores.get("intervals") or []))
