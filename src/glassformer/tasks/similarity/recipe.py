"""What a recipe of similarities can say. Keys of ``text``, ``model``, ``train`` are those of ``Embedder``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from glassformer.config import Section, by_place, section, setting
from glassformer.tasks.sections import DrawnData, EncoderSizes, EvaluateKeys, RecipeKeys, TextRows
from glassformer.train.config import FitConfig, TokenBatches


@section
class PairsConfig(TextRows, DrawnData):
    """Where the pairs of texts come from."""

    source: str = setting("", "a named source (stsb), or a table or a folder of tables")
    first: str | None = setting(None, "column of the first texts; None: found by itself")
    second: str | None = setting(None, "column of the second texts; None: found by itself")
    score: str = setting(
        "auto", "column of what says how alike they are; auto: found; none: all pairs belong together"
    )


@section
class EmbedderTextConfig(Section):
    """From text to token ids."""

    max_length: int | None = setting(None, "tokens, special ones included; None: the checkpoint's, else 256")
    tokenizer: Literal["auto", "word", "wordpiece"] = setting(
        "auto", "auto: the checkpoint's own; word, wordpiece: learned here, from scratch only"
    )
    clean: Literal["none", "html", "words", "syllables"] = setting("none", "as in recipes of classifiers")
    lowercase: bool = setting(True, "for tokenizers trained here")
    vocab_size: int = setting(30_000, "for tokenizers trained here")
    min_count: int = setting(2, "for tokenizers trained here")


@section
class EmbedderModelConfig(EncoderSizes):
    """Which encoder, and how its rows become one vector."""

    model: str = by_place(
        default="all-minilm-l6-v2",
        meaning="a checkpoint (name, folder, Hub id) or a from-scratch architecture",
    )
    pooling: Literal["auto", "mean", "cls", "max"] = setting(
        "auto", "auto: as the checkpoint's modules.json says, else the mean"
    )
    dropout: float = setting(0.0, "on embeddings and on each sub-layer's output")


@section
class EmbedderFitConfig(TokenBatches, FitConfig):
    """One fit of pairs."""

    epochs: int = setting(1, "passes over the pairs")
    loss: Literal["auto", "cosine", "cosent", "negatives"] = setting(
        "auto", "cosine: squared error; cosent: order of the pairs of a batch; negatives: its other pairs"
    )
    scale: float = setting(20.0, "what cosines are multiplied by in cosent and negatives")
    pairs_per_text: int = setting(
        20, "with labels: how often an epoch compares a text with the others of a batch"
    )
    head: Literal["linear", "knn"] = setting(
        "linear", "with labels: a logistic regression of the vectors, or the classes of the nearest texts"
    )
    neighbors: int = setting(5, "texts that knn looks at")
    batch_size: int = setting(32, "pairs")
    batch_tokens: int = setting(0, "real tokens at most; 0: batch_size decides")
    length_window: int = setting(0, "batches among which lengths are sorted; 0: lengths are not looked at")
    monitor: Literal["score", "loss"] = setting(
        "score", "what decides which weights are best; score: Spearman, or the share of partners found"
    )


@section
class SimilarityEvaluateConfig(EvaluateKeys):
    """What is judged after training."""

    split: Literal["test", "validation"] = setting("test", "looked at once, at the end")
    baselines: bool = setting(True, "cosines of TF-IDF and of the model before its training")
    maps: int = setting(6, "evaluated pairs whose similarity is explained in the report")


@dataclass(frozen=True)
class SimilarityRecipe(RecipeKeys):
    """One experiment, read from top to bottom."""

    # For the model card: the Hub's pipeline tag, and how such a model is asked.
    CARD = ("sentence-similarity", 'print(model.similarity("A text.", "Another one."))')

    task: Literal["similarity"] = setting("similarity", "which engine runs it")
    data: PairsConfig = field(default_factory=PairsConfig)
    text: EmbedderTextConfig = field(default_factory=EmbedderTextConfig)
    model: EmbedderModelConfig = field(default_factory=EmbedderModelConfig)
    train: EmbedderFitConfig = field(default_factory=EmbedderFitConfig)
    evaluate: SimilarityEvaluateConfig = field(default_factory=SimilarityEvaluateConfig)
