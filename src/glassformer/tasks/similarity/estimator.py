"""``Embedder``: texts to vectors whose cosine says how much two texts mean the same.

embedder = gf.Embedder("all-minilm-l6-v2")
embedder.similarity("A dog runs.", "A cat sleeps.")
embedder.fit(pairs, scores); embedder.search(queries, table, k=5); embedder.explain_similarity(a, b)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from glassformer.checkpoints.files import verify_folder
from glassformer.checkpoints.sentences import write_sentences
from glassformer.checkpoints.settings import read_about
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.data.batching import BatchSettings, pack_texts
from glassformer.data.checks import check_labels, check_texts, read_labels
from glassformer.data.copies import alike
from glassformer.data.splits import random_split
from glassformer.data.text import TokenTable, clean_text, encode
from glassformer.data.tokenizer_file import load_tokenizer
from glassformer.errors import CheckpointError, ConfigError, DataError, InputError
from glassformer.families.pretrained import load_pretrained, read_checkpoint
from glassformer.models.sentences import Normalize, Pool, Sentences, lowercased, token_limit
from glassformer.models.text import TextEncoder
from glassformer.tasks.build import (
    build_model,
    build_tokenizer,
    check_table,
    fitting,
    is_from_scratch,
    save_tokenizer,
)
from glassformer.tasks.estimator import FORMAT, Estimator, Fit
from glassformer.tasks.similarity.answers import Answers
from glassformer.tasks.similarity.explain import SimilarityExplanation, contributions
from glassformer.tasks.similarity.pairs import (
    PairLoss,
    Pairs,
    PairStream,
    check_text_pairs,
    chosen_loss,
    encode_table,
    pairs_of_labels,
    spearman,
)
from glassformer.tasks.similarity.recipe import (
    EmbedderFitConfig,
    EmbedderModelConfig,
    EmbedderTextConfig,
    SimilarityRecipe,
)
from glassformer.tasks.text_classification.recipe import ModelConfig, TextConfig
from glassformer.train.callbacks import Callback
from glassformer.train.distributed import refuse_several

LONGEST = 256  # tokens, where neither settings nor checkpoint say how many


class Embedder(Answers, Estimator):
    """Texts to vectors, trained on pairs or labels, or as a checkpoint has them.

    Its ``recipe.py`` says what each parameter means; ``classes_`` and ``head_`` are of a fit with labels.
    A checkpoint answers without a fit.
    """

    RECIPE = SimilarityRecipe
    SECTIONS = {"text": EmbedderTextConfig, "model": EmbedderModelConfig, "train": EmbedderFitConfig}  # noqa: RUF012

    model: str
    max_length: int | None
    clean: Any
    tokenizer_: Tokenizer
    classes_: np.ndarray | None
    head_: tuple[np.ndarray, np.ndarray] | None

    def __init__(
        self,
        model: str = "all-minilm-l6-v2",
        *,
        max_length: int | None = None,
        tokenizer: str = "auto",
        clean: str = "none",
        lowercase: bool = True,
        vocab_size: int = 30_000,
        min_count: int = 2,
        revision: str | None = None,
        pooling: str = "auto",
        dropout: float = 0.0,
        d_model: int | None = None,
        num_layers: int | None = None,
        num_heads: int | None = None,
        d_ff: int | None = None,
        epochs: int = 1,
        lr: float = 5e-5,
        optimizer: str = "adamw",
        weight_decay: float = 0.01,
        betas: tuple[float, ...] = (0.9, 0.999),
        adam_eps: float = 1e-8,
        schedule: str = "linear",
        warmup: float = 0.06,
        layer_decay: float = 1.0,
        embedding_lr: float = 1.0,
        batch_size: int = 32,
        accumulate: int = 1,
        clip: float = 1.0,
        train_layers: int | None = None,
        unfreeze_every: int = 0,
        lora_rank: int = 0,
        lora_alpha: float = 16.0,
        lora_targets: str | tuple[str, ...] = ("q", "v"),
        average: float = 0.0,
        validation_fraction: float = 0.0,
        early_stopping: int = 0,
        monitor: str = "score",
        keep_best: bool = True,
        evaluate_every: int = 0,
        checkpoint_every: int = 0,
        seed: int = 0,
        precision: str = "auto",
        device: str = "auto",
        threads: int = 0,
        strategy: str = "auto",
        verbose: int = 0,
        batch_tokens: int = 0,
        length_window: int = 0,
        loss: str = "auto",
        scale: float = 20.0,
        pairs_per_text: int = 20,
    ):
        self._store(locals())

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        validation: tuple[Any, Any] | None = None,
        callbacks: Sequence[Callback] = (),
        checkpoints: str | Path | None = None,
        resume: bool = False,
    ) -> Embedder:
        """Learn from pairs with scores, from pairs that belong together, or from texts with labels.

        Args:
            X, y: rows of two texts and a number each (any range); such rows alone, whose partners are told
                from the others of their batch; or texts and their labels, from which pairs are drawn, and
                behind which a logistic regression of the vectors answers ``predict``.
            validation: ``(X, y)`` of the same kind, judged after each epoch.
            checkpoints, resume: as in every estimator.

        Raises:
            DataError: a row that cannot be used (its place is named), or scores that are all equal.
            ConfigError: a setting that cannot be, or a loss that does not suit the data.
            CheckpointError: weights that cannot be loaded, or a checkpoint of another run.
        """
        return self._fit((X, y, validation), callbacks, checkpoints, resume)

    def _examples(self, fit: Fit, *data: Any) -> tuple[Pairs, Pairs | None]:
        X, y, validation = data
        train: EmbedderFitConfig = fit.train
        refuse_several("the pairs of a batch are compared in one process", "Run it without torchrun")
        if train.train_layers == 0 and not train.unfreeze_every:
            what = "an embedder has no head, and no weight would learn"
            raise ConfigError(what, where="train_layers", fix="Use 1 or more")
        if train.pairs_per_text < 1:
            raise ConfigError(f"{train.pairs_per_text} pairs a text", where="pairs_per_text", fix="Use 20")
        rows = X.to_numpy().tolist() if hasattr(X, "columns") else list(X)
        self.classes_ = self.head_ = self._labelled = None
        if rows and isinstance(rows[0], str):
            pairs, held = self._of_labels(rows, y, validation, train)
        else:
            pairs = check_text_pairs(rows, y)
            held = None if validation is None else check_text_pairs(*validation, "validation")
        if held is None and train.validation_fraction:
            groups = list(map(alike, pairs.first)) if fit.together else None
            numbers = list(range(len(pairs)))
            (rest,), (taken,) = random_split([numbers], train.validation_fraction, train.seed, groups)
            pairs, held = pairs.take(rest), pairs.take(taken)
        if held is not None and (held.scores is None) != (pairs.scores is None):
            raise DataError("scores stand on one side only", where="validation", fix="Give both or none")
        self._loss = chosen_loss(train.loss, pairs)
        return pairs, held

    def _of_labels(self, texts: list, y: Any, validation: Any, train: Any) -> tuple[Pairs, Pairs | None]:
        """Pairs drawn from labels; the texts are kept until the head is fitted."""
        if y is None:
            raise DataError("texts without labels", where="fit", fix="Give labels, or pairs of texts")
        texts = check_texts(texts)
        labels = check_labels(y)
        if len(labels) != len(texts):
            raise DataError(f"{len(texts)} texts, {len(labels)} labels", where="fit", fix="Give one a text")
        classes, targets = np.unique(labels, return_inverse=True)
        self.classes_, self._labelled = classes, (texts, targets)
        pairs, held = pairs_of_labels(texts, targets, train.pairs_per_text, train.seed), None
        if validation is not None:
            others, labels = check_texts(validation[0], "validation"), list(validation[1])
            numbers = {label: i for i, label in enumerate(np.asarray(classes).tolist())}
            if unknown := [label for label in labels if label not in numbers]:
                raise DataError(f"the label {unknown[0]!r} is not among those learned", where="validation")
            at = np.array([numbers[label] for label in labels])
            held = pairs_of_labels(others, at, train.pairs_per_text, train.seed)
        return pairs, held

    def _prepare(self, fit: Fit) -> tuple[TokenTable, TokenTable | None]:
        pairs: Pairs = fit.examples
        self._open_tokenizer(fit.configs, [*pairs.first, *pairs.second])
        self._how = self._sentences(fit.configs["model"])
        held = None if fit.held is None else self._table([*fit.held.first, *fit.held.second])
        return self._table([*pairs.first, *pairs.second]), held

    def _open_tokenizer(self, configs: dict[str, Any], texts: Sequence[str]) -> None:
        text, model = configs["text"], configs["model"]
        settings = {
            key: getattr(text, key) for key in ("tokenizer", "clean", "lowercase", "vocab_size", "min_count")
        }
        wide = ModelConfig(model=model.model, revision=model.revision)
        self.tokenizer_ = build_tokenizer(TextConfig(**settings), wide, texts)

    def _sentences(self, model: EmbedderModelConfig) -> Sentences:
        """How rows become one vector: as the checkpoint says, or as the settings do."""
        known = None
        if not is_from_scratch(model.model):
            found = getattr(load_pretrained(model.model, revision=model.revision), "sentences", None)
            known = found if isinstance(found, Sentences) else None
            if isinstance(found, InputError):
                raise found
        if known is None or model.pooling != "auto":
            pool = Pool(("mean" if model.pooling == "auto" else model.pooling,))
            known = Sentences(pool, (Normalize(),), known.max_length if known else LONGEST)
        return replace(known, max_length=self.max_length or known.max_length)

    def _build(self, fit: Fit) -> TextEncoder:
        return self._model(fit.configs["model"])

    def _model(self, model: EmbedderModelConfig) -> TextEncoder:
        shape = {key: getattr(model, key) for key in ("d_model", "num_layers", "num_heads", "d_ff")}
        if is_from_scratch(model.model):
            wide = ModelConfig(model=model.model, dropout=model.dropout or None, **shape)
            text = TextConfig(max_length=self._how.max_length or LONGEST)
            built = build_model(wide, text, self.tokenizer_, 2)
        else:
            if given := [key for key, value in shape.items() if value is not None]:
                what = f"{given[0]} belongs to from-scratch models; {model.model!r} has its own"
                raise ConfigError(what, where="model")
            checkpoint = fitting(read_checkpoint(model.model, model.revision), self.tokenizer_, model.model)
            built = load_pretrained(checkpoint, dropout=model.dropout, attention_dropout=0.0)
        if not isinstance(built, TextEncoder):
            raise ConfigError(
                f"{model.model!r} is no encoder of texts", where="model", fix="Use a Transformer"
            )
        limit = token_limit(built.config.embedding, None)
        if self.max_length and self.max_length > limit:
            what = f"max_length {self.max_length} is more than the model's {limit} positions"
            raise ConfigError(what, where="max_length", fix=f"Use {limit} or less")
        built = built.with_head(head=None, pooling="mean")
        built.sentences = self._how
        return built

    def _loop(self, fit: Fit) -> tuple[PairStream, PairLoss, Callable[[], dict[str, float]] | None]:
        train: EmbedderFitConfig = fit.train
        settings = BatchSettings(train.batch_size, train.batch_tokens, train.length_window)
        stream = PairStream(fit.table, settings, train.accumulate, train.seed, fit.device)
        scores, judge = fit.examples.scores, None
        low, span = (0.0, 1.0) if scores is None else (float(scores.min()), float(np.ptp(scores)))

        def scaled(values: np.ndarray | None) -> np.ndarray | None:
            return None if values is None else ((values - low) / span).astype(np.float32)

        if fit.held is not None:
            held, table, network = scaled(fit.held.scores), fit.held_table, fit.network

            def judge() -> dict[str, float]:
                first, second = np.split(encode_table(network, table, fit.device), 2)
                cosines = (first * second).sum(1)
                if held is None:
                    found = (first @ second.T).argmax(1) == np.arange(len(first))
                    return {"loss": float(1 - cosines.mean()), "score": float(found.mean())}
                return {"loss": float(np.square(cosines - held).mean()), "score": spearman(cosines, held)}

        return stream, PairLoss(self._loss, scaled(scores), train.scale), judge

    def _arrays(self, fit: Fit) -> list[np.ndarray | None]:
        tables = [fit.table] if fit.held is None else [fit.table, fit.held_table]
        scores = [pairs.scores for pairs in (fit.examples, fit.held) if pairs is not None]
        return [array for table in tables for array in (table.ids, table.starts)] + scores

    def _keep(self, fit: Fit, training: Any) -> None:
        super()._keep(fit, training)
        self.model_.sentences = self._how
        self.index_ = None
        if self._labelled is not None:
            self._fit_head(*self._labelled)
        self._labelled = None

    def _fit_head(self, texts: list[str], targets: np.ndarray) -> None:
        """A logistic regression of the vectors."""
        from sklearn.linear_model import LogisticRegression

        fitted = LogisticRegression(max_iter=1000).fit(self.encode(texts), targets)
        weight, bias = fitted.coef_.astype(np.float32), fitted.intercept_.astype(np.float32)
        if len(weight) == 1:  # of two classes: one row, of the second
            weight, bias = np.concatenate([0 * weight, weight]), np.concatenate([0 * bias, bias])
        self.head_ = weight, bias

    def _check_fitted(self) -> None:
        """A checkpoint is opened as it is where there was no fit."""
        if not hasattr(self, "model_") and not is_from_scratch(self.model):
            configs = self.configs()
            self._open_tokenizer(configs, [])
            self._how = self._sentences(configs["model"])
            model = self._model(configs["model"]).eval()
            self.classes_ = self.head_ = self.index_ = None
            self.weights_source_, self.best_step_, self.train_seconds_ = model.weights_source, 0, 0.0
            self.history_, self.chosen_, self.model_ = [], {}, model
        super()._check_fitted()

    def _table(self, texts: Sequence[str]) -> TokenTable:
        how = self._how
        tokenizer = lowercased(self.tokenizer_) if how.lowercase else self.tokenizer_
        texts = [how.prompt(None, None) + clean_text(text, self.clean) for text in texts]
        return encode(tokenizer, texts, max_length=how.max_length or LONGEST)

    def encode(
        self, texts: Sequence[str], *, prompt_name: str | None = None, prompt: str | None = None
    ) -> np.ndarray:
        """One vector a text, ``[n, E]`` fp32; what ``SentenceTransformer.encode`` gives.

        Raises:
            InputError: a text that cannot be used; no prompt of that name.
        """
        model, texts = self.predictor(), [clean_text(text, self.clean) for text in check_texts(texts)]
        options = {"prompt_name": prompt_name, "prompt": prompt, "tokenizer": self.tokenizer_}
        return model.sentences.embed(model, texts, **options)

    def explain_similarity(self, a: str, b: str) -> SimilarityExplanation:
        """What each pair of tokens adds to the cosine of two texts; the table sums up to it.

        Raises:
            DataError: a text that cannot be used.
            ConfigError: a pooling or layer behind it through which a vector is no sum over tokens.
        """
        model, texts = self.predictor(), check_texts([a, b])
        table = self._table(texts)
        parts = []
        with torch.inference_mode():
            for row in range(2):
                batch = pack_texts(table, np.array([row]), next(model.parameters()).device)
                states = model.encode(batch.ids, batch.packing, segments=batch.segments).float()
                parts.append(states.cpu())
        tokens = [[self.tokenizer_.id_to_token(int(i)) or "?" for i in table[row]] for row in range(2)]
        return SimilarityExplanation(*texts, *tokens, *contributions(self._how, *parts))

    def write_parts(self, folder: Path) -> dict[str, Any]:
        """The tokenizer and the files of sentence-transformers, which opens the folder."""
        length = token_limit(self.model_.config.embedding, self._how.max_length)
        save_tokenizer(self.tokenizer_, folder, length, segments=self.model_.config.embedding.segments)
        write_sentences(self._how, folder, self.model_.config)
        if self.head_ is None or self.classes_ is None:
            return {"classes": None}
        weight, bias = map(torch.from_numpy, self.head_)
        write_tensors(folder, {"weight": weight, "bias": bias}, name="classes")
        return {"classes": self.classes_.tolist()}

    def read_parts(self, folder: Path, about: dict[str, Any]) -> None:
        self.tokenizer_, self._how = load_tokenizer(folder), self.model_.sentences
        if not isinstance(self._how, Sentences):
            raise self._how or DataError("has no modules.json", where=str(folder))
        self.classes_ = self.head_ = self.index_ = None
        if names := about.get("classes"):
            tensors = read_tensors(folder, "classes")
            self.classes_ = np.asarray(read_labels(names, "classes", str(folder)))
            self.head_ = tensors["weight"].numpy(), tensors["bias"].numpy()

    @classmethod
    def load(cls, path: str | Path) -> Embedder:
        """What ``save`` wrote, every byte checked against its manifest.

        Raises:
            CheckpointError: no such folder, a damaged one, or one of another kind.
        """
        folder = Path(path)
        verify_folder(folder)
        about = read_about(folder, FORMAT)
        if about["kind"] != cls.__name__:
            raise CheckpointError("holds no Embedder", where=str(folder), fix="Open it with glassformer.load")
        return cls.restore(folder, about)

    def check_parts(self, folder: Path) -> None:
        check_table(self.tokenizer_, self.model_.config, str(folder))
