"""What a recipe of word vectors can say. The keys of ``vectors`` are the parameters of ``Word2Vec``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from glassformer.config import TableKeys, section, setting
from glassformer.tasks.sections import RecipeKeys
from glassformer.train.config import VectorsConfig


@section
class CorpusConfig(TableKeys):
    """Where the sentences come from."""

    source: str = setting(
        "", "a named source (imdb, europe), a table or folder of texts, or a .txt with one sentence per line"
    )
    splits: tuple[str, ...] = setting(("train",), "of a named source or a folder; labels are not looked at")
    exclude: tuple[str, ...] = setting((), "a text that is also in these splits of the source is left out")
    text_column: str | None = setting(None, "found by itself when there is one candidate only")
    limit: int | None = setting(None, "at most this many texts of every split: a quick look")
    on_bad_row: Literal["refuse", "skip"] = setting("refuse", "skip: rows that cannot be used are left out")
    clean: Literal["none", "html", "words", "syllables", "trim"] = setting(
        "html", "as in recipes of classifiers"
    )
    lowercase: bool = setting(True, "words in lower case")
    punctuation: bool = setting(False, "marks are words of their own; else they are left out")


@section
class JudgeConfig:
    """What the vectors are judged by."""

    tests: tuple[str, ...] = setting(
        ("wordsim353", "simlex999", "google"),
        "or countries, countries-given, europe: analogies of those corpora",
    )
    neighbours: tuple[str, ...] = setting((), "words whose nearest words the run states")
    analogies: tuple[str, ...] = setting((), '"king man woman": king - man + woman')


@dataclass(frozen=True)
class VectorsRecipe(RecipeKeys):
    """Word vectors, read from top to bottom."""

    # For the model card: the Hub's pipeline tag, and how such a model is asked.
    CARD = ("feature-extraction", 'print(model.most_similar("word"))')

    task: Literal["word2vec"] = setting("word2vec", "which engine runs it")
    data: CorpusConfig = field(default_factory=CorpusConfig)
    vectors: VectorsConfig = field(default_factory=VectorsConfig)
    judge: JudgeConfig = field(default_factory=JudgeConfig)
