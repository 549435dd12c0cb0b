"""Recipe of word vectors. The keys of ``vectors`` are the parameters of ``Word2Vec``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from glassformer.config import TableKeys, section, setting
from glassformer.tasks.sections import RecipeKeys
from glassformer.train.config import VectorsConfig


@section
class CorpusConfig(TableKeys):
    """Source of the texts."""

    source: str = setting(
        "", "a named source (imdb, europe), a table or folder of texts, or a .txt with one sentence per line"
    )
    splits: tuple[str, ...] = setting(
        ("train",), "splits of a named source or a folder that are read; labels are ignored"
    )
    exclude: tuple[str, ...] = setting((), "splits of the source whose texts are left out")
    text_column: str | None = setting(
        None, "column with the texts; None: detected if only one column qualifies"
    )
    limit: int | None = setting(None, "maximum number of texts of each split, for a quick trial")
    on_bad_row: Literal["refuse", "skip"] = setting(
        "refuse", "refuse: an unusable row is an error; skip: unusable rows are left out"
    )
    clean: Literal["none", "html", "words", "syllables", "trim"] = setting(
        "html", "cleaning of the texts, with the choices of text classification"
    )
    lowercase: bool = setting(True, "lowercase all words")
    punctuation: bool = setting(False, "keep punctuation marks as separate words; False: they are removed")


@section
class JudgeConfig:
    """Evaluation of the vectors."""

    tests: tuple[str, ...] = setting(
        ("wordsim353", "simlex999", "google"),
        "tests of the vectors; also: countries, countries-given, europe (analogies for those corpora)",
    )
    neighbours: tuple[str, ...] = setting((), "words whose nearest words the run reports")
    analogies: tuple[str, ...] = setting((), 'analogies to compute; "king man woman" is king - man + woman')


@dataclass(frozen=True)
class VectorsRecipe(RecipeKeys):
    """Recipe of word vectors."""

    CARD = ("feature-extraction", 'print(model.most_similar("word"))')

    task: Literal["word2vec"] = setting("word2vec", "task that the recipe trains for")
    data: CorpusConfig = field(default_factory=CorpusConfig)
    vectors: VectorsConfig = field(default_factory=VectorsConfig)
    judge: JudgeConfig = field(default_factory=JudgeConfig)
