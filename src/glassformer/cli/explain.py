"""``glassformer explain``.

It shows which words or image patches a prediction depends on, as a table, an HTML page or JSON.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glassformer.cli import options as cli
from glassformer.cli.options import argument, flag, option
from glassformer.cli.output import (
    AS_JSON,
    excerpt,
    one_line,
    print_json,
    print_message,
    print_note,
    progress_bar,
    show_table,
)
from glassformer.cli.predict import build_request, select_inputs
from glassformer.cli.predictions import usage_hint
from glassformer.cli.vectors import check_html_or_json, explain_pair, is_embedder, show_explained
from glassformer.data.text_pairs import SIDES
from glassformer.errors import ConfigError, NotForThisModelError, with_article
from glassformer.finite import json_text
from glassformer.outputs import write_text
from glassformer.tasks.catalog import TASKS

MAX_INPUTS = 20  # per command
MAX_WORDS = 10  # maximum number of rows in a table
MIN_SCORE = 0.001  # if all scores are smaller, they are printed in scientific notation
ATTENTION_METHODS = ("rollout", "attention")  # methods that show what the model attended to
BETTER_METHOD = "for the words that the prediction depends on: --method integrated_gradients --trust"


def explain(
    folder: str | Path,
    arguments: Sequence[str],
    *,
    text_column: str | None = None,
    pair_column: str | None = None,
    rows: Sequence[int] = (),
    **settings: Any,
) -> list[Any]:
    """Explain predictions for texts, texts in files, or images.

    Args:
        rows: for files: numbers of the rows to explain; empty: all rows.
        settings: arguments of ``explain_many``, such as ``method``.
    """
    from glassformer.tasks.load import describe

    if (saved_inputs := describe(folder).inputs) is not None:
        saved_inputs.check_arguments(arguments)  # report wrong arguments before the model is loaded
    clf = _load_classifier(folder)
    # With ``rows``, an unusable row that is not selected must not raise an error.
    request = build_request(Path(folder), arguments, text_column, pair_column, bool(rows))
    inputs = select_inputs(clf, pair_column)
    examples = inputs.examples_of_arguments(request, rows)
    if len(examples) > MAX_INPUTS:
        is_file = len(arguments) == 1 and Path(arguments[0]).is_file()
        what = f"{len(examples)} inputs are too many: explain accepts {MAX_INPUTS} at most"
        fix = "Select rows: --row 2 --row 3" if is_file else "Give fewer inputs"
        raise ConfigError(what, where=arguments[0] if is_file else None, fix=fix)
    with progress_bar("explained", len(examples)) as progress:
        explanations = clf.explain_many(examples, progress=progress, **settings)
    for example, explanation in zip(examples, explanations, strict=True):
        explanation.name = inputs.title(example)
    return explanations


def _load_classifier(folder: str | Path) -> Any:
    """Load the classifier in a folder; raises ConfigError for models that cannot be explained."""
    from glassformer.tasks.load import load

    cli.check_folder(folder)
    clf = load(folder)
    task = TASKS[clf.RECIPE.task]
    if task.answer is None and not hasattr(clf, "explain_many"):
        kind, fix = type(clf).__name__, usage_hint(task)
        what = f"contains {with_article(kind)}, which does not predict labels"
        raise NotForThisModelError(what, where=str(folder), fix=fix)
    return clf


def parse_options(pairs: Sequence[str]) -> dict[str, Any]:
    """Convert ``KEY=VALUE`` pairs to keyword arguments; a value that is not JSON is a text."""
    options = {}
    for pair in pairs:
        key, equals_sign, value = pair.partition("=")
        if not equals_sign or not key.isidentifier():
            raise ConfigError(f"{pair!r} is not KEY=VALUE", where="--set", fix="For example --set unit=word")
        try:
            options[key] = json.loads(value)
        except ValueError:
            options[key] = value
    return options


def explain_command(
    run: Path = cli.RUN,
    given: list[str] | None = argument(
        "TEXT|IMAGE",
        "Texts, files of texts, images, or - for standard input; at most 20. For embedders: two texts.",
    ),
    data: str | None = cli.DATA_FILE,
    method: str | None = option(
        None,
        "attention, rollout, gradient_x_input, integrated_gradients, attention_gradient, gim, decomposition, "
        "occlusion, shapley; for linear models: weights, occlusion.",
        show_default="decomposition; occlusion for models without attention; weights for linear models",
    ),
    target: str | None = option("LABEL", "Label to explain (default: the predicted one)."),
    set_: list[str] | None = option(
        "KEY=VALUE", "Option of the method, e.g. unit=word; may be repeated.", "--set"
    ),
    trust: bool = flag(
        "--trust", "Test faithfulness: mask the top-ranked parts and, for comparison, random ones."
    ),
    cross: bool = flag("--cross", "For pairs: effect of the words of one text on those of the other."),
    row: list[int] | None = option("N", "For files: number of the row to explain; may be repeated."),
    out: Path | None = option("FILE", "Output file: an HTML page (.html) or the scores (.json)."),
    text_column: str | None = cli.TEXT_COLUMN,
    pair_column: str | None = cli.PAIR_COLUMN,
    word: str | None = option("WORD|NUMBER", "For taggers: word to explain, or its number from 0."),
    as_json: bool = AS_JSON,
) -> None:
    """Explain a prediction: the words or image regions it depends on, and a test of the explanation."""
    inputs = cli.collect_inputs(given, data, "explain")
    if out is not None:
        check_html_or_json(out)
    cli.check_folder(run)
    if is_embedder(run):
        if set_ or target or trust or row or cross or word is not None or method or len(inputs) != 2:
            fix = "Give two texts, and no --method, --set, --target, --trust, --row, --cross or --word"
            what = "this model is an Embedder, which can only explain the similarity of two texts"
            raise NotForThisModelError(what, where=str(run), fix=fix)
        explanation = explain_pair(str(run), inputs[0], inputs[1], out)
        if as_json:
            print_json([explanation.as_dict()] if out is None else {"explained": 1, "out": out})
        else:
            show_explained(explanation, out)
        return
    options = parse_options(set_ or [])
    _check_options(method, target, options)
    settings: dict[str, Any] = {"method": method, "target": target, "trust": trust, **options}
    settings["maps"] = out is not None and out.suffix.lower() == ".html"
    settings |= ({"cross": True} if cross else {}) | ({} if word is None else {"word": word})
    columns: dict[str, Any] = {"text_column": text_column, "pair_column": pair_column}
    explanations = explain(run, inputs, rows=row or (), **columns, **settings)
    _output(explanations, out, as_json)


def _output(explanations: Sequence[Any], out: Path | None, as_json: bool) -> None:
    """Print explanations or write them to a file; prints a note about each inaccurate one."""
    if out is not None:
        _write(out, explanations)
        for e in explanations[:MAX_WORDS]:
            print_message(f"{excerpt(e.name or e.text)}: {_prediction(e)}")
        print_message(f"{len(explanations)} explained by {explanations[0].method}: {out}")
    if as_json:
        summary = {"explained": len(explanations), "method": explanations[0].method, "out": out}
        print_json([e.to_dict() for e in explanations] if out is None else summary)
    for i, e in enumerate(explanations if out is None and not as_json else [], 1):
        if len(explanations) > 1:
            print_message(f"{i} of {len(explanations)}: {excerpt(e.name or e.text)}")
        _show(e)
    for e in explanations:
        if e.settings.get("converged") is False:
            what = f"the scores sum to the logit difference only within {e.error:.1e}"
            print_note(f"{what}; for more precision: --set max_steps=4096")


def _check_options(method: str | None, target: str | None, options: dict[str, Any]) -> None:
    """Raise ConfigError for options that the method does not have."""
    from glassformer.explain.methods import METHODS, check_method

    if method is not None and method in METHODS:
        check_method(method, target, {name: value for name, value in options.items() if name != "maps"})
    if "maps" in options:
        what = "'maps' is only an option in Python"
        raise ConfigError(what, where="--set", fix="For attention maps, use --out page.html")


def _prediction(e: Any) -> str:
    """The predicted label and its probability, or the predicted number."""
    return str(e.label) if e.number else f"{e.label} {e.probability:.4f}"


def _show(e: Any) -> None:
    """Print the words or patches with the highest scores, and the scores of special tokens."""
    target = f" for {e.target}" if e.target is not None else ""
    target += f" {e.of_target:.4f}" if e.of_target is not None else ""
    print_message(f"{_prediction(e)} · {e.method}{target}")
    if e.method in ATTENTION_METHODS and e.sides is None and e.cross is None:
        print_message(
            f"{e.method} shows what the model attended to, not why it predicts this: {BETTER_METHOD}"
        )
    ranked = sorted(e.words() or e.top(e.scores.size), key=lambda pair: -abs(pair[1]))
    are_small = not ranked or abs(ranked[0][1]) < MIN_SCORE
    if e.sides is None:
        rows = [[one_line(word), _format_score(score, are_small)] for word, score in ranked[:MAX_WORDS]]
        first_column = "word" if e.image is None else "patch (row, column)"
        show_table("", (first_column, "score"), rows, right=("score",))
    for position, name in enumerate(SIDES) if e.sides is not None else ():  # "first" and "second" text
        strongest = sorted(e.words_of(position), key=lambda pair: -abs(pair[1]))[:MAX_WORDS]
        rows = [[one_line(word), _format_score(score, are_small)] for word, score in strongest]
        show_table(f"{name} text", ("word", "score"), rows, right=("score",))
    if e.cross is not None:
        rows = [[one_line(a), one_line(b), f"{value:+.4f}"] for a, b, value in e.cross["strongest"]]
        title = f"effect on the logit of {e.cross['target']}"
        title += ": words of the second text given words of the first"
        show_table(title, ("first", "second", "logit"), rows, right=("logit",))
    if e.image is None and ranked:
        special = [
            f"{token} {_format_score(float(score), are_small)}"
            for token, score, word_index in zip(e.tokens, e.scores, e.numbers, strict=True)
            if word_index < 0 and score
        ]
        if special:
            print_message(f"special tokens: {', '.join(special)}")
    print_message(*e.notes)


def _format_score(score: float, are_small: bool) -> str:
    """A score with four decimals, or in scientific notation if all scores are small."""
    return f"{score:.1e}" if are_small and score else f"{score:.4f}"


def _write(out: Path, explanations: Sequence[Any]) -> None:
    from glassformer.explain.render import page

    if out.suffix.lower() == ".html":
        title = f"{len(explanations)} inputs, explained by {explanations[0].method.replace('_', ' ')}"
        write_text(out, page(explanations, title if len(explanations) > 1 else ""))
    else:
        text = json_text([e.to_dict() for e in explanations], indent=2)
        write_text(out, text + "\n")
