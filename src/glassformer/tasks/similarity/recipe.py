"""Recipe of sentence embeddings. The keys of ``text``, ``model`` and ``train`` are parameters of
``Embedder``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from glassformer.config import Section, positional, section, setting
from glassformer.tasks.sections import EncoderSizes, EvaluateKeys, RecipeKeys, SampleSizes, UnusableRows
from glassformer.train.config import FitConfig, TokenBatches


@section
class PairsConfig(UnusableRows, SampleSizes):
    """Source of the pairs of texts, and how they are split."""

    source: str = setting("", "a named source (stsb), or a table or a folder of tables")
    first: str | None = setting(None, "column with the first texts; None: detected")
    second: str | None = setting(None, "column with the second texts; None: detected")
    score: str = setting(
        "auto", "column with the similarity scores; auto: detected; none: all pairs are positive"
    )


@section
class EmbedderTextConfig(Section):
    """Tokenization of the texts."""

    max_length: int | None = setting(
        None, "maximum number of tokens, special ones included; None: the maximum of the checkpoint, or 256"
    )
    tokenizer: Literal["auto", "word", "wordpiece"] = setting(
        "auto", "auto: the tokenizer of the checkpoint; word, wordpiece: newly trained, from scratch only"
    )
    clean: Literal["none", "html", "words", "syllables"] = setting(
        "none", "cleaning of the texts, with the choices of text classification"
    )
    lowercase: bool = setting(True, "lowercase texts; only for newly trained tokenizers")
    vocab_size: int = setting(30_000, "number of tokens in the vocabulary of a newly trained tokenizer")
    min_count: int = setting(
        2, "minimum number of occurrences for a word to enter the vocabulary of a newly trained tokenizer"
    )


@section
class EmbedderModelConfig(EncoderSizes):
    """Encoder and pooling."""

    model: str = positional(
        default="all-minilm-l6-v2",
        meaning="a checkpoint (name, folder, Hub id) or a from-scratch architecture",
    )
    pooling: Literal["auto", "mean", "cls", "max"] = setting(
        "auto", "how token vectors become one vector; auto: that of the checkpoint's modules.json, or mean"
    )
    dropout: float = setting(0.0, "dropout on the embeddings and on each sub-layer's output")


@section
class EmbedderFitConfig(TokenBatches, FitConfig):
    """One fit of pairs."""

    epochs: int = setting(1, "passes over the pairs")
    loss: Literal["auto", "cosine", "cosent", "negatives"] = setting(
        "auto",
        "cosine: squared error of the cosines; cosent: ranking of the pairs in a batch (CoSENT); "
        "negatives: in-batch negatives",
    )
    scale: float = setting(20.0, "factor on the cosines in cosent and negatives (inverse temperature)")
    pairs_per_text: int = setting(20, "for labeled texts: number of pairs per text and epoch")
    head: Literal["linear", "knn"] = setting(
        "linear",
        "for labeled texts. linear: logistic regression on the vectors; knn: classes of the nearest texts",
    )
    neighbors: int = setting(5, "number of nearest texts for knn")
    batch_size: int = setting(32, "pairs per batch")
    batch_tokens: int = setting(
        0, "maximum number of tokens per batch (there is no padding); 0: limited by batch_size only"
    )
    length_window: int = setting(
        0, "number of batches whose examples are sorted by length together; 0: no sorting"
    )
    monitor: Literal["score", "loss"] = setting(
        "score",
        "metric that selects the best weights; score: Spearman correlation, or for positive pairs the "
        "share of partners found",
    )


@section
class SimilarityEvaluateConfig(EvaluateKeys):
    """Evaluation and report after training."""

    split: Literal["test", "validation"] = setting("test", "split that is evaluated once, at the end")
    baselines: bool = setting(True, "also evaluate the cosines of TF-IDF and of the model before training")
    maps: int = setting(6, "number of evaluated pairs whose similarity is explained in the report")


@dataclass(frozen=True)
class SimilarityRecipe(RecipeKeys):
    """Recipe of sentence embeddings."""

    CARD = ("sentence-similarity", 'print(model.similarity("A text.", "Another one."))')

    task: Literal["similarity"] = setting("similarity", "task that the recipe trains for")
    data: PairsConfig = field(default_factory=PairsConfig)
    text: EmbedderTextConfig = field(default_factory=EmbedderTextConfig)
    model: EmbedderModelConfig = field(default_factory=EmbedderModelConfig)
    train: EmbedderFitConfig = field(default_factory=EmbedderFitConfig)
    evaluate: SimilarityEvaluateConfig = field(default_factory=SimilarityEvaluateConfig)
