"""``Embedder``: sentence embeddings for similarity, semantic search and few-shot classification.

embedder = gf.Embedder("all-minilm-l6-v2")
embedder.similarity("A dog runs.", "A cat sleeps.")
embedder.fit(pairs, scores); embedder.search(queries, table, k=5); embedder.explain_similarity(a, b)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from glassformer.checkpoints.files import check_is_model, verify_folder
from glassformer.checkpoints.sentences import write_sentences
from glassformer.checkpoints.settings import about_in, read_about, shown
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.config import listed
from glassformer.data.batching import BatchSettings
from glassformer.data.checks import check_labels, check_texts, check_two, read_labels
from glassformer.data.copies import alike
from glassformer.data.in_memory import as_targets, read_rows
from glassformer.data.label_sets import are_truths
from glassformer.data.splits import random_split
from glassformer.data.text import TokenTable, clean_text, encode
from glassformer.data.tokenizer_file import load_tokenizer
from glassformer.errors import (
    CheckpointError,
    DataError,
    NotForThisModelError,
    OneClassError,
    UnequalLengthsError,
    UnknownLabelError,
    with_article,
)
from glassformer.models.sentences import COSINE, Sentences, lowercased, token_limit
from glassformer.models.text import TextEncoder
from glassformer.runtime import computing, drawing_own, own_generators
from glassformer.targets.similarity import judged
from glassformer.tasks.build import check_table, is_from_scratch, save_tokenizer
from glassformer.tasks.estimator import FORMAT, Estimator, Fit, fitted, with_settings
from glassformer.tasks.heads import Head, fit_head, head_of
from glassformer.tasks.named_columns import warn_of_order
from glassformer.tasks.similarity.answers import Answers
from glassformer.tasks.similarity.build import LONGEST, build_encoder, open_tokenizer, sentences_for
from glassformer.tasks.similarity.labels import (
    JUDGED,
    Labelled,
    LabelStream,
    check_classes,
    pairs_of_labels,
    split_of_labels,
)
from glassformer.tasks.similarity.pairs import (
    PairLoss,
    Pairs,
    PairStream,
    check_text_pairs,
    chosen_loss,
    encode_table,
    range_of,
    scaled,
)
from glassformer.tasks.similarity.recipe import (
    EmbedderFitConfig,
    EmbedderModelConfig,
    EmbedderTextConfig,
    SimilarityRecipe,
)
from glassformer.train.callbacks import Callback
from glassformer.train.distributed import refuse_several

CLASSES = "classes"  # file name of the classification head


@with_settings
class Embedder(Answers, Estimator, EmbedderTextConfig, EmbedderModelConfig, EmbedderFitConfig):
    """A Transformer that embeds texts, trained on pairs or labels; a checkpoint can be used without ``fit``.

    ``recipe.py`` explains the parameters. After a fit with labels there are ``classes_`` and ``head_``.
    """

    RECIPE, MOST = SimilarityRecipe, 2
    INNER = ("_how",)

    tokenizer_: Tokenizer = fitted()
    classes_: np.ndarray | None = fitted()
    head_: Head | None = fitted()
    loss_: str = fitted()

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
        """Train on pairs with scores, on positive pairs, or on texts with labels.

        Args:
            X, y: pairs of texts and one score for each (any range); or only positive pairs, for which the
                other texts of a batch are negatives; or texts and labels: texts of one class move closer
                together, and a classification head is fitted on the embeddings, for ``predict``. With
                ``train_layers=0``, texts with labels train only that head.
            validation: ``(X, y)`` of the same kind, evaluated after each epoch.
            checkpoints, resume: as in every estimator.

        Raises:
            DataError: an unusable row, or scores that are all equal.
            ConfigError: an invalid setting, or a loss that does not fit the data.
            CheckpointError: weights that cannot be loaded, or a checkpoint of another run.
        """
        return self._fit((X, y, validation), callbacks, checkpoints, resume)

    def _fit(self, data: Any, callbacks: Any, checkpoints: Any, resume: bool) -> Embedder:
        with self._rollback():
            warn_of_order(*data[:2])
            y = as_targets(data[1], "labels")
            rows = read_rows(self.fit_rows(data[0], y), "fit", "pairs or texts", most=2)
            if self.train_layers == 0 and not self.unfreeze_every and rows and isinstance(rows[0], str):
                return self._probe(rows, y)
            return super()._fit((rows, y, *data[2:]), callbacks, checkpoints, resume)

    def _probe(self, texts: list[str], y: Any) -> Embedder:
        """Fit only a classification head, on the embeddings of a frozen checkpoint."""
        started = time.perf_counter()
        with own_generators():
            if is_from_scratch(self.model):
                what = "only the head would be trained, on top of random weights"
                raise NotForThisModelError(
                    what, where="train_layers", fix="Name a checkpoint, or leave it out"
                )
            self.configs()
            labelled = self._labels(texts, y)
            vars(self).pop("model_", None)
            self._open()
            self._fit_head(labelled)
            self.train_seconds_ = time.perf_counter() - started
        return self

    def _examples(self, fit: Fit, *data: Any) -> tuple[Any, Any]:
        rows, y, validation = data
        train: EmbedderFitConfig = fit.train
        refuse_several("the pairs of a batch are compared in one process", "Run it without torchrun")
        if train.train_layers == 0 and not train.unfreeze_every:
            what = "no weight would be trained on pairs: without labels there is no head"
            raise NotForThisModelError(what, where="train_layers", fix="Use 1 or more")
        self.classes_ = self.head_ = None
        self.truth_, self.n_features_in_ = False, 2
        if rows and isinstance(rows[0], str):
            self.n_features_in_ = 1
            examples: Any = self._labels(rows, y)
            held: Any = None if validation is None else self._others(*check_two(validation, "texts, labels"))
        else:
            examples = check_text_pairs(rows, y)
            held = None
            if validation is not None:
                X, scores = check_two(validation, "pairs, scores")
                held = check_text_pairs(self.rows_of(X, "validation", 2), scores, "validation")
        if held is None and train.validation_fraction:
            rest, taken = self._parts(examples, fit)
            examples, held = examples.take(rest), examples.take(taken)
        if isinstance(examples, Labelled):
            check_classes(examples.targets)
            if held is not None:
                held = pairs_of_labels(held.texts, held.targets, JUDGED, train.seed)
        elif held is not None and (held.scores is None) != (examples.scores is None):
            what = "only one of training and validation has scores"
            raise DataError(what, where="validation", fix="Give scores for both or for none")
        self.loss_ = chosen_loss(train.loss, None if isinstance(examples, Labelled) else examples)
        return examples, held

    def _parts(self, examples: Labelled | Pairs, fit: Fit) -> tuple[Any, Any]:
        """Indices of training and of validation examples; each class has training examples."""
        texts = examples.texts if isinstance(examples, Labelled) else examples.first
        groups = list(map(alike, texts)) if fit.together else [*map(str, range(len(texts)))]
        share, seed = fit.train.validation_fraction, fit.train.seed
        if isinstance(examples, Labelled):
            return split_of_labels(examples.targets, groups, share, seed)
        (rest,), (taken,) = random_split([list(range(len(texts)))], share, seed, groups)
        return rest, taken

    def _labels(self, texts: list[str], y: Any) -> Labelled:
        """Texts with class indices; also sets ``classes_``."""
        if y is None:
            raise DataError("texts without labels", where="fit", fix="Give labels, or pairs of texts")
        texts, labels, self.truth_ = check_texts(texts), check_labels(y), are_truths(y)
        if len(labels) != len(texts):
            raise UnequalLengthsError(
                f"{len(texts)} texts, {len(labels)} labels", where="fit", fix="Give one a text"
            )
        self.classes_, targets = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            what = "all texts have one label"
            raise OneClassError(what, where="labels", fix="Give texts of two classes or more")
        return Labelled(texts, targets)

    def _others(self, texts: Any, labels: Any) -> Labelled:
        """Validation texts with class indices.

        Raises:
            DataError: a label that was not seen in training.
        """
        texts = check_texts(self.rows_of(texts, "validation"), "validation")
        labels = check_labels(labels, "validation labels")
        if len(labels) != len(texts):
            what = f"{len(texts)} texts, {len(labels)} labels"
            raise UnequalLengthsError(what, where="validation", fix="Give one a text")
        assert self.classes_ is not None
        numbers = {label: i for i, label in enumerate(self.classes_.tolist())}
        if unknown := [label for label in labels if label not in numbers]:
            known = listed([str(label) for label in numbers])
            what = f"the label {unknown[0]!r} is not among those learned"
            raise UnknownLabelError(what, where="validation", fix=f"Known: {known}")
        return Labelled(texts, np.array([numbers[label] for label in labels]))

    def _prepare(self, fit: Fit) -> tuple[TokenTable, TokenTable | None]:
        texts = _texts(fit.examples)
        self.tokenizer_ = open_tokenizer(fit.configs["text"], fit.configs["model"], texts)
        how = sentences_for(fit.configs["model"], self.max_length)
        self._how = replace(how, similarity=COSINE)  # all losses here use the cosine
        held = None if fit.held is None else self.table(_texts(fit.held))
        return self.table(texts), held

    def _build(self, fit: Fit) -> TextEncoder:
        return build_encoder(fit.configs["model"], self._how, self.tokenizer_, self.max_length)

    def _loop(self, fit: Fit) -> tuple[Any, Any, Callable[[], dict[str, float]] | None]:
        train, examples = fit.train, fit.examples
        skip = self.skipped()
        objective = PairLoss(self.loss_, train.scale, skip=skip)
        if isinstance(examples, Labelled):
            plan = train.batch_size or len(examples), train.pairs_per_text, train.accumulate, train.seed
            stream: Any = LabelStream(fit.table, examples.targets, *plan, fit.device)
            objective.targets, span = examples.targets, (0.0, 1.0)
        else:
            settings = BatchSettings(train.batch_size, train.batch_tokens, train.length_window)
            stream = PairStream(fit.table, settings, train.accumulate, train.seed, fit.device)
            span = range_of(examples.scores)
            objective.scores = scaled(examples.scores, span)
        if fit.held is None:
            return stream, objective, None
        held, table, network = scaled(fit.held.scores, span), fit.held_table, fit.network

        def evaluate() -> dict[str, float]:
            first, second = np.split(encode_table(network, table, fit.device, skip), 2)
            return judged(first, second, held, fit.held.second)

        return stream, objective, evaluate

    def _arrays(self, fit: Fit) -> list[np.ndarray | None]:
        tables = [fit.table] if fit.held is None else [fit.table, fit.held_table]
        targets = [
            part.targets if isinstance(part, Labelled) else part.scores
            for part in (fit.examples, fit.held)
            if part is not None
        ]
        return [array for table in tables for array in (table.ids, table.starts)] + targets

    def _keep(self, fit: Fit, training: Any) -> None:
        super()._keep(fit, training)
        self.model_.sentences = self._how
        self.index_ = None
        if isinstance(fit.examples, Labelled):
            self._fit_head(fit.examples)

    def _fit_head(self, labelled: Labelled) -> None:
        """Fit the classification head on the embeddings."""
        vectors = self.encode(labelled.texts)
        self.head_ = fit_head(vectors, labelled.targets, self.head, self.neighbors)

    def _check_fitted(self) -> None:
        """Open the checkpoint if there was no fit."""
        if not hasattr(self, "model_") and not is_from_scratch(self.model):
            self.classes_ = self.head_ = None
            self._open()
        super()._check_fitted()

    def opened(self) -> Embedder:
        """This embedder, with its checkpoint opened if there was no fit."""
        self._check_fitted()
        return self

    def _open(self) -> None:
        """Open the checkpoint without training."""
        configs = self.configs()
        self.tokenizer_ = open_tokenizer(configs["text"], configs["model"], [])
        self._how = sentences_for(configs["model"], self.max_length)
        with own_generators(), computing(gradients=True), drawing_own():
            model = build_encoder(configs["model"], self._how, self.tokenizer_, self.max_length).eval()
        self._with_parts(model, adapter=None, index=None)
        self._compute_model = None

    def table(self, texts: Sequence[str]) -> TokenTable:
        """Tokenize checked texts with the default prompt, truncated to the maximum length."""
        how = self._how
        texts = [how.prompt(None, None) + clean_text(text, self.clean) for text in texts]
        return encode(self.reader(), texts, max_length=how.max_length or LONGEST)

    def reader(self) -> Tokenizer:
        """The tokenizer, with lowercasing if the checkpoint asks for it."""
        return lowercased(self.tokenizer_) if self._how.lowercase else self.tokenizer_

    def write_encoder(self, folder: Path) -> None:
        """Save the tokenizer and the files that sentence-transformers needs to open the folder."""
        length = token_limit(self.model_.config.embedding, self._how.max_length)
        save_tokenizer(self.tokenizer_, folder, length, segments=self.model_.config.embedding.segments)
        write_sentences(self._how, folder, self.model_.config)

    def write_parts(self, folder: Path) -> dict[str, Any]:
        """Save what ``write_encoder`` writes, and the classification head if there is one."""
        self.write_encoder(folder)
        if self.head_ is None or self.classes_ is None:
            return {"classes": None}
        tensors = {name: torch.from_numpy(array) for name, array in self.head_.tensors().items()}
        write_tensors(folder, tensors, name=CLASSES)
        truth = {"truth_values": True} if self.truth_ else {}
        return {"classes": self.classes_.tolist()} | truth

    def read_parts(self, folder: Path, about: dict[str, Any]) -> None:
        self.tokenizer_, self._how = load_tokenizer(folder), self.model_.sentences
        if not isinstance(self._how, Sentences):
            raise self._how or DataError("has no modules.json", where=str(folder))
        self.classes_ = self.head_ = self.index_ = None
        if names := about.get("classes"):
            self.classes_ = np.asarray(read_labels(names, "classes", str(folder)))
            self.truth_ = about.get("truth_values") is True
            arrays = {name: tensor.numpy() for name, tensor in read_tensors(folder, CLASSES).items()}
            width = self._how.width(self.model_.config.encoder.d_model)
            self.head_ = head_of(arrays, width, len(self.classes_), str(folder))

    def saved_width(self, about: Mapping[str, Any]) -> int | None:
        return 1 if about.get("classes") else 2

    @classmethod
    def load(cls, path: str | Path) -> Embedder:
        """Load a saved embedder; every file is verified by its checksum.

        Raises:
            CheckpointError: no such folder, a damaged one, or one of another kind.
        """
        folder, _ = about_in(path)
        check_is_model(folder)
        verify_folder(folder)
        about = read_about(folder, FORMAT)
        if about["kind"] != cls.__name__:
            other = with_article(shown(about["kind"]).strip("'"))
            what = f"holds {other}, not an Embedder"
            raise CheckpointError(what, where=str(path), fix="Open it with glassformer.load")
        with computing(gradients=True):
            return cls.restore(folder, about)

    def check_parts(self, folder: Path) -> None:
        check_table(self.tokenizer_, self.model_.config, str(folder))


def _texts(examples: Labelled | Pairs) -> list[str]:
    """All texts; for pairs the first texts, then the second texts."""
    return examples.texts if isinstance(examples, Labelled) else [*examples.first, *examples.second]
