"""``glassformer vectors``: nearest words and analogies, from a run or a file of word vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from glassformer.checkpoints.files import missing_run_hint
from glassformer.cli.options import a_run, argument, option
from glassformer.cli.output import AS_JSON, emit, say, say_json
from glassformer.errors import (
    ConflictError,
    NoSuchModelError,
    NothingGivenError,
)
from glassformer.outputs import check_new_file


def look_up(source: str | Path, words: Sequence[str], count: int = 10) -> list[tuple[str, float]]:
    """Nearest words of one word; for two words their cosine; for three the nearest words of ``a - b + c``."""
    if len(words) not in (1, 2, 3):
        fix = "Give one word, two for their cosine, or three: king man woman is king - man + woman"
        raise NothingGivenError(f"{len(words)} words" if words else "no word", where="vectors", fix=fix)
    _check_source(source)
    from glassformer.tasks.word2vec.estimator import Word2Vec

    vectors = Word2Vec.load(source)
    if len(words) == 2:
        return [(words[1], vectors.similarity(words[0], words[1]))]
    return (
        vectors.most_similar(words[0], count)
        if len(words) == 1
        else vectors.analogy(words[0], words[1], words[2], count)
    )


def convert(source: str | Path, out: Path) -> None:
    """Write the vectors of a run or file in word2vec's format; binary if ``out`` ends with ``.bin``."""
    check_new_file(out)
    _check_source(source)
    from glassformer.tasks.word2vec.estimator import Word2Vec

    Word2Vec.load(source).save_word2vec_format(out)


def _check_source(source: str | Path) -> None:
    """Raise CheckpointError if there is neither a file nor a folder, before anything slow is imported."""
    if not Path(source).exists():
        raise NoSuchModelError("no such file", where=str(source), fix=missing_run_hint(Path(source)))


def vectors_command(
    source: Path = a_run("Run folder or word2vec file, text or binary.", "RUN|FILE", default=...),
    words: list[str] | None = argument(
        "WORD",
        "One word (its neighbors), two (their cosine), or three: king man woman asks for king - man + woman.",
    ),
    count: int = option("N", "Number of words to show.", min=1, default=10),
    out: Path | None = option("FILE", "Write all vectors to this file; .bin is binary."),
    json: bool = AS_JSON,
) -> None:
    """Word vectors: nearest words, cosines, analogies, and conversion of word2vec files."""
    if out is not None and words:
        raise ConflictError("words and --out at once", where="vectors", fix="Give one of them")
    if out is not None:
        convert(source, out)
        say(f"vectors: {out}")
        if json:
            say_json({"out": out})
        return
    found = look_up(source, words or [], count)
    if json:
        say_json([{"word": word, "cosine": cosine} for word, cosine in found])
        return
    for word, cosine in found:
        emit(f"{word}\t{cosine:.4f}")
