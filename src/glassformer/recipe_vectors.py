"""What a recipe of word vectors can say. The keys of ``vectors`` are the constructor parameters of ``Word2Vec``."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

from glassformer.errors import ConfigError
from glassformer.recipe import MOST, check_ranges

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
class VectorsConfig:
    """One fit."""

    dim: int = 100  # numbers a word
    window: int = 5  # words on either side at most; the half-width is drawn from 1 ... window for each centre
    negative: int = 5  # words drawn at random for each pair (sgd) or each centre (adam)
    min_count: int = 5  # a word seen less often has no vector
    max_words: int = 0  # words at most, the most frequent ones; 0: no limit
    subsample: float = 1e-3  # frequent words above this share are thinned out; 0: none are
    exponent: float = 0.75  # negatives are drawn in proportion to count ** exponent
    optimizer: Literal["sgd", "adam"] = "sgd"  # sgd: compiled, for work; adam: the readable model, in batches
    positives: int = 2  # of each centre, with adam; sgd takes the whole window
    batch_size: int = 256  # centres, with adam
    lr: float | None = None  # at the start; None: 0.025 falling to 0.0001 (sgd), 0.001 (adam)
    add_contexts: bool = False  # a word's vector is the sum of its two: what stands together is alike too
    epochs: int = 5  # passes over the corpus
    checkpoint_every: int = (
        0  # rounds of about half a million words (sgd) or steps (adam); 0: after each epoch
    )
    seed: int = 0  # of the first vectors, the windows and the negatives
    threads: int = 0  # 0: all; 1 gives the same vectors each time

    def __post_init__(self) -> None:
        for f in fields(self):
            value, (low, high) = getattr(self, f.name), RANGES.get(f.name, (-INF, INF))
            if isinstance(value, int | float) and not (low <= value <= high and abs(value) <= MOST):
                bound = f"of at least {low:g}" if high == INF else f"from {low:g} to {high:g}"
                what = f"{f.name} = {value} is out of range"
                raise ConfigError(what, where=f.name, fix=f"Use a value {bound}")


RANGES: dict[str, tuple[float, float]] = {
    "dim": (1, 10_000), "window": (1, 1_000), "negative": (1, 1_000), "min_count": (1, INF), "max_words": (0, INF),
    "subsample": (0, 1), "exponent": (-2, 2), "positives": (1, 1_000), "batch_size": (1, INF), "lr": (0, 10),
    "epochs": (1, INF), "checkpoint_every": (0, INF), "seed": (0, INF), "threads": (0, 1_024),
}  # fmt: skip


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
