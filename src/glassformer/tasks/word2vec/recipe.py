"""What a recipe of word vectors can say. The keys of ``vectors`` are the constructor parameters of ``Word2Vec``."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

from glassformer.config import check_ranges
from glassformer.train.config import VectorsConfig

INF = float("inf")


@dataclass(frozen=True)
class CorpusConfig:
    """Where the sentences come from."""

    source: str = (
        ""  # a named source (imdb, europe), a table or folder of texts, or a .txt with a sentence a line
    )
    splits: tuple[str, ...] = ("train",)  # of a named source or a folder; labels are not looked at
    exclude: tuple[str, ...] = ()  # a text that also stands in these splits of the source is left out
    text_column: str | None = None  # found by itself when there is one candidate only
    limit: int | None = None  # at most this many texts of every split: a quick look
    clean: Literal["none", "html", "words", "syllables"] = "html"  # as in recipes of classifiers
    lowercase: bool = True  # words in lower case
    punctuation: bool = False  # marks are words of their own; else they are left out

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class JudgeConfig:
    """What the vectors are judged by."""

    tests: tuple[str, ...] = (
        "wordsim353",
        "simlex999",
        "google",
    )  # or countries, europe: analogies of those corpora
    neighbours: tuple[str, ...] = ()  # words whose nearest words the run states
    analogies: tuple[str, ...] = ()  # "king man woman": king - man + woman


@dataclass(frozen=True)
class VectorsRecipe:
    """Word vectors, read from top to bottom."""

    name: str = ""  # of the run folder; by default the file's
    task: Literal["word2vec"] = "word2vec"  # which engine runs it
    summary: str = ""  # one line for lists and reports
    expect: str = ""  # scores with their spread over seeds, and where they were measured
    data: CorpusConfig = field(default_factory=CorpusConfig)
    vectors: VectorsConfig = field(default_factory=VectorsConfig)
    judge: JudgeConfig = field(default_factory=JudgeConfig)


def vectors_parameters() -> dict[str, Any]:
    """Key -> default of everything that concerns one fit, in order."""
    return {f.name: f.default for f in fields(VectorsConfig)}
