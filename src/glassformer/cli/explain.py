"""``glassformer explain``: which words (or patches) an answer rests on, as a table, a page or JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from glassformer.cli.output import note, one_line, say, show_table
from glassformer.errors import ConfigError

MOST = 20  # inputs of one page
SHOWN = 10  # words of one table
ENDS = (".html", ".json")


def explain(
    folder: str | Path,
    given: Sequence[str],
    *,
    method: str = "rollout",
    target: str | None = None,
    trust: bool = False,
    maps: bool = False,
    **options: Any,
) -> list[Any]:
    """Explanations of texts, files of texts, or pictures.

    Args:
        folder: of a run or of a saved model.
        target: the label to explain; None: the predicted one.
        trust: judge each explanation against random orders, which takes about 120 variants of the input.
        maps: keep the attention maps for a page.
        options: of the method.

    Raises:
        InputError: no such model, method, option or label, or an input that cannot be used.
    """
    from glassformer.cli.predict import OTHER_VERBS, gather, pictures
    from glassformer.saving import load

    if not Path(folder).is_dir():
        raise ConfigError(
            "no such run folder", where=str(folder), fix="Name the --out of 'glassformer train'"
        )
    clf = load(folder)
    if not hasattr(clf, "explain"):
        kind = type(clf).__name__
        fix = f"Use glassformer {OTHER_VERBS[kind]}" if kind in OTHER_VERBS else None
        raise ConfigError(f"holds a {kind}, whose answers are no labels", where=str(folder), fix=fix)
    inputs = gather(given).texts if hasattr(clf, "tokenizer_") else pictures(given).texts
    if len(inputs) > MOST:
        raise ConfigError(f"{len(inputs)} inputs, at most {MOST} go into one page", fix="Give fewer")
    made = [clf.explain(x, method=method, target=target, maps=maps, **options) for x in inputs]
    for x, e in zip(inputs, made, strict=True):
        e.text = e.text or x  # of a picture its file, so that several can be told apart
    if trust:
        for x, e in zip(inputs, made, strict=True):
            e.notes.append(_trust(clf, x, e))
    return made


def _trust(clf: Any, x: Any, e: Any) -> str:
    from glassformer.explain.faithfulness import judge, verdict_on_one
    from glassformer.explain.methods import target_number
    from glassformer.explain.subject import subject_of

    subject = subject_of(clf, x)
    figures = judge(subject, {e.method: e.scores}, target=target_number(subject, e.target), draws=10)
    return verdict_on_one(figures[e.method], figures["random"])


def parse_options(pairs: Sequence[str]) -> dict[str, Any]:
    """``KEY=VALUE`` as keyword arguments; a value that is no number, true, false or null is text."""
    options = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not key.isidentifier():
            raise ConfigError(f"{pair!r} is not KEY=VALUE", where="--set", fix="For example --set unit=word")
        try:
            options[key] = json.loads(value)
        except ValueError:
            options[key] = value
    return options


def explain_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or the folder of a saved model.")],
    given: Annotated[
        list[str],
        typer.Argument(metavar="TEXT|IMAGE...", help="Texts, files of texts, or pictures; at most 20."),
    ],
    method: Annotated[
        str,
        typer.Option(
            help="attention, rollout, gradient_x_input, integrated_gradients, attention_gradient or occlusion."
        ),
    ] = "rollout",
    target: Annotated[
        str | None, typer.Option(metavar="LABEL", help="The label to explain; by default the predicted one.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="An option of the method: unit=word."),
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Test each picture: hide what it marks, and random parts.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page (.html) or figures (.json) there.")
    ] = None,
) -> None:
    """Which words an answer rests on, and how far that can be trusted."""
    if out is not None:
        _check_out(out)
    options = parse_options(set_ or [])
    page = out is not None and out.suffix.lower() == ".html"
    made = explain(run, given, method=method, target=target, trust=trust, maps=page, **options)
    if out is not None:
        _write(out, made)
        say(f"{len(made)} explained by {method}: {out}")
    for e in made if out is None else []:
        about = f" for {e.target}" if e.target is not None else ""
        found = e.top(e.scores.size) if e.image is not None else e.words() or e.top(SHOWN)
        parts = sorted(found, key=lambda pair: -abs(pair[1]))[:SHOWN]
        rows = [[one_line(part), f"{score:.4f}"] for part, score in parts]
        file = "" if e.image is None else f" · {e.text}"
        say(f"{e.label} {e.probability:.4f} · {e.method}{about}{file}")
        show_table(
            "", ("word" if e.image is None else "patch (row, column)", "score"), rows, right=("score",)
        )
        for line in e.notes:
            say(line)
    for e in made:
        if e.settings.get("converged") is False:
            note(f"the scores are complete up to {e.error:.1e} only; more with --set max_steps=4096")


def _check_out(out: Path) -> None:
    if out.suffix.lower() not in ENDS:
        raise ConfigError("not .html or .json", where=str(out), fix="End the name with one of them")
    if out.exists():
        raise ConfigError("the output file exists", where=str(out), fix="Choose another --out")
    if not out.parent.is_dir():
        raise ConfigError("no such folder", where=str(out.parent), fix="Make it first")


def _write(out: Path, made: Sequence[Any]) -> None:
    from glassformer.explain.render import page

    if out.suffix.lower() == ".html":
        title = (
            "" if len(made) == 1 else f"{len(made)} inputs, explained by {made[0].method.replace('_', ' ')}"
        )
        out.write_text(page(made, title), encoding="utf-8")
    else:
        text = json.dumps([e.to_dict() for e in made], indent=2, ensure_ascii=False)
        out.write_text(text + "\n", encoding="utf-8")
