"""``glassformer fill``: the words that a masked language model puts where a text says [MASK]."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from glassformer.cli.options import a_run, argument, option, with_stdin
from glassformer.cli.output import AsJson, emit, one_line, say_json
from glassformer.cli.places import check_folder
from glassformer.cli.translate import load_kind
from glassformer.data.vocabulary import MASK


def fill(folder: str | Path, texts: list[str], top: int = 5) -> list[list[list[tuple[str, float]]]]:
    """For each text and each [MASK] in it the best words with their probabilities.

    Raises:
        InputError: no such model, one of another kind, or a text without [MASK].
    """
    check_folder(folder)
    learner = load_kind(folder, "fill")
    return [learner.fill_each(text, top) for text in texts]


def fill_command(
    run: Annotated[Path, a_run("Run folder or masked language model (glassformer's or the Hub's).")],
    given: Annotated[
        list[str], argument("TEXT", f"Texts with {MASK} for each missing word; - is standard input.")
    ],
    top: Annotated[int, option("N", f"Words per {MASK}.")] = 5,
    json: AsJson = False,
) -> None:
    """Fill in masked words: one line for each [MASK] with words and probabilities."""
    texts = with_stdin(given)
    found = fill(run, texts, top)
    if json:
        asked = zip(texts, found, strict=True)
        say_json([{"text": text, "masks": [_words(words) for words in masks]} for text, masks in asked])
        return
    for text, masks in zip(texts, found, strict=True):
        emit(one_line(text))
        for words in masks:
            emit("  " + "  ".join(f"{one_line(word)} {p:.4f}" for word, p in words))


def _words(words: list[tuple[str, float]]) -> list[dict[str, Any]]:
    return [{"word": word, "probability": p} for word, p in words]
