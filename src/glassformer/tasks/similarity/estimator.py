"""``Embedder``: sentence embeddings, semantic search and few-shot classification.

embedder = gf.Embedder("all-minilm-l6-v2")
embedder.similarity("A dog runs.", "A cat sleeps.")
embedder.fit(pairs, scores); embedder.search(queries, table, k=5); embedder.explain_similarity(a, b)

In addition to the files of every run, its runs write ``pairs.csv`` (each evaluated pair with its
cosine) and ``similarities.json`` (explanations of some cosines). This module is long because an embedder also
searches, classifies and finds duplicates.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from tokenizers import Tokenizer

from glassformer.checkpoints.files import check_is_model
from glassformer.checkpoints.sentences import write_sentences
from glassformer.checkpoints.settings import find_metadata
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.config import join_names
from glassformer.data.batching import pack_texts
from glassformer.data.checks import check_labels, check_saved_labels, check_texts, check_validation
from glassformer.data.duplicates import comparison_key
from glassformer.data.in_memory import as_targets, read_rows
from glassformer.data.label_sets import are_booleans
from glassformer.data.pair_doctor import examine_scored
from glassformer.data.pairs import ScoredSplit, load_scored_pairs
from glassformer.data.splits import Splits, evaluation_splits, make_splits
from glassformer.data.spreadsheet import csv_safe
from glassformer.data.text import TokenTable, clean_text, encode
from glassformer.data.tokenizer_file import load_tokenizer
from glassformer.errors import (
    ConfigError,
    DataError,
    InputError,
    NotForThisModelError,
    OneClassError,
    UnequalLengthsError,
    UnknownLabelError,
)
from glassformer.evaluate.predictions import table_file
from glassformer.explain.similarity import SimilarityExplanation, contributions
from glassformer.families.pretrained import load_pretrained, read_checkpoint
from glassformer.inputs.texts import TINY_TEXTS, TextsToEmbed
from glassformer.models.sentences import (
    COSINE,
    Dense,
    EmbeddingSettings,
    Normalize,
    Pool,
    token_limit,
    with_lowercasing,
)
from glassformer.models.text import TextEncoder
from glassformer.runtime import (
    choose_dtype,
    isolated_torch,
    own_generator,
    runs_isolated,
    torch_uses_own_generator,
)
from glassformer.targets.multiclass import Classes
from glassformer.targets.similarity import (
    Similarity,
    correlations,
    retrieval_metrics,
    spearman,
    tfidf_vectors,
    validation_metrics,
)
from glassformer.tasks.build import (
    SIZES,
    build_model,
    build_tokenizer,
    check_embedding_table,
    check_unset,
    cover_vocabulary,
    is_from_scratch,
    save_tokenizer,
    shared_settings,
)
from glassformer.tasks.estimator import (
    Estimator,
    FitState,
    digest,
    fitted_attribute,
    read_saved,
    warn_of_order,
    with_settings,
)
from glassformer.tasks.similarity.pairs import (
    VALIDATION_PAIRS,
    LabeledTexts,
    Pairs,
    check_text_pairs,
    encode_table,
    pairs_of_labels,
)
from glassformer.tasks.similarity.recipe import (
    EmbedderFitConfig,
    EmbedderModelConfig,
    EmbedderTextConfig,
    SimilarityRecipe,
)
from glassformer.tasks.similarity.search import (
    TextIndex,
    are_vectors,
    at_least,
    load_index,
    near_duplicate_pairs,
    nearest,
    save_index,
)
from glassformer.tasks.task import (
    OUT_OF_FOLD,
    TINY,
    DataPreview,
    OutOfFold,
    RunContext,
    Task,
    export,
    read_source,
)
from glassformer.tasks.text_classification.recipe import ModelConfig, TextConfig
from glassformer.train.callbacks import Callback
from glassformer.train.distributed import require_single_process
from glassformer.train.solved_head import Head, fit_head, restore_head, unit

DEFAULT_MAX_LENGTH = 256  # maximum number of tokens if the checkpoint sets none
HEAD_FILE = "classes"  # file name of the classification head


@with_settings
class Embedder(Estimator, EmbedderTextConfig, EmbedderModelConfig, EmbedderFitConfig):
    """A Transformer that embeds texts. You can train it on pairs or labels, or use it without training.

    ``recipe.py`` explains the parameters. After training on labels, ``classes_`` and ``head_`` are set.
    """

    RECIPE, INPUTS, MAX_COLUMNS = SimilarityRecipe, TextsToEmbed(), 2
    INNER = ("_sentences",)
    check = staticmethod(check_texts)
    boolean_labels_ = False  # whether the training labels were booleans; ``predict`` then returns booleans

    tokenizer_: Tokenizer = fitted_attribute()
    classes_: np.ndarray | None = fitted_attribute()
    head_: Head | None = fitted_attribute()
    index_: TextIndex | None = fitted_attribute()
    loss_: str = fitted_attribute()

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

        With labels, texts of the same class move closer together. A classification head is then fitted on
        the embeddings, for ``predict``. With ``train_layers=0``, only this head is trained.

        Args:
            X, y: pairs of texts and one score per pair, in any range; or positive pairs alone, with the other
                texts of the batch as negatives; or texts and labels.
            validation: ``(X, y)`` of the same kind, evaluated after each epoch.
            checkpoints, resume: see ``TextClassifier.fit``.

        Raises:
            DataError: a row cannot be used, or all scores are equal.
            ConfigError: an invalid setting, or a loss that cannot be used for these data.
            CheckpointError: the weights cannot be loaded, or the checkpoint is of another run.
        """
        return self._fit((X, y, validation), callbacks, checkpoints, resume)

    def _fit(self, data: Any, callbacks: Any, checkpoints: Any, resume: bool) -> Embedder:
        with self._rollback():
            warn_of_order(*data[:2])
            y = as_targets(data[1], "labels")
            rows = read_rows(self.training_examples(data[0], y), "fit", "pairs or texts", max_columns=2)
            if self.train_layers == 0 and not self.unfreeze_every and rows and isinstance(rows[0], str):
                return self._fit_head_only(rows, y)
            return super()._fit((rows, y, *data[2:]), callbacks, checkpoints, resume)

    def _fit_head_only(self, texts: list[str], y: Any) -> Embedder:
        started = time.perf_counter()
        with own_generator():
            if is_from_scratch(self.model):
                what = "only the head would be trained, on top of random weights"
                raise NotForThisModelError(
                    what, where="train_layers", fix="Name a checkpoint, or leave it out"
                )
            self.configs()
            labeled = self._check_labels(texts, y)
            vars(self).pop("model_", None)
            self._open_checkpoint()
            self._fit_head(labeled)
            self.train_seconds_ = time.perf_counter() - started
        return self

    def _examples(self, fit: FitState, *data: Any) -> tuple[Any, Any]:
        rows, y, validation = data
        train: EmbedderFitConfig = fit.train
        require_single_process("the pairs of a batch are compared in one process", "Run it without torchrun")
        if train.train_layers == 0 and not train.unfreeze_every:
            what = "no weight would be trained on pairs: without labels there is no head"
            raise NotForThisModelError(what, where="train_layers", fix="Use 1 or more")
        self.classes_ = self.head_ = None
        self.boolean_labels_, self.n_features_in_ = False, 2
        if rows and isinstance(rows[0], str):
            self.n_features_in_ = 1
            examples: Any = self._check_labels(rows, y)
            val: Any = None
            if validation is not None:
                val = self._check_validation_labels(*check_validation(validation, "texts, labels"))
        else:
            examples = check_text_pairs(rows, y)
            val = None
            if validation is not None:
                X, scores = check_validation(validation, "pairs, scores")
                val = check_text_pairs(self.prediction_examples(X, "validation", 2), scores, "validation")
        if val is None and train.validation_fraction:
            texts = examples.all_texts[: len(examples)]  # for pairs, only their first texts
            is_grouped = fit.group_duplicates
            groups = list(map(comparison_key, texts)) if is_grouped else [*map(str, range(len(texts)))]
            examples, val = examples.split(groups, train.validation_fraction, train.seed)
        if isinstance(examples, LabeledTexts):
            examples.check_classes()
            if val is not None:
                val = pairs_of_labels(val.texts, val.targets, VALIDATION_PAIRS, train.seed)
        elif val is not None and (val.scores is None) != (examples.scores is None):
            what = "only one of training and validation has scores"
            raise DataError(what, where="validation", fix="Give scores for both or for none")
        self.loss_ = examples.choose_loss(train.loss)
        return examples, val

    def _check_labels(self, texts: list[str], y: Any) -> LabeledTexts:
        """Check texts and labels, and set ``classes_``."""
        if y is None:
            raise DataError("texts without labels", where="fit", fix="Give labels, or pairs of texts")
        texts, labels, self.boolean_labels_ = check_texts(texts), check_labels(y), are_booleans(y)
        _check_lengths(texts, labels, "fit")
        self.classes_, targets = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            what = "all texts have one label"
            raise OneClassError(what, where="labels", fix="Give texts of two classes or more")
        return LabeledTexts(texts, targets)

    def _check_validation_labels(self, texts: Any, labels: Any) -> LabeledTexts:
        texts = check_texts(self.prediction_examples(texts, "validation"), "validation")
        labels = check_labels(labels, "validation labels")
        _check_lengths(texts, labels, "validation")
        assert self.classes_ is not None
        index = {label: i for i, label in enumerate(self.classes_.tolist())}
        if unknown := [label for label in labels if label not in index]:
            what = f"label {unknown[0]!r} was not seen in training"
            fix = f"Known: {join_names([str(label) for label in index])}"
            raise UnknownLabelError(what, where="validation", fix=fix)
        return LabeledTexts(texts, np.array([index[label] for label in labels]))

    def _prepare(self, fit: FitState) -> tuple[TokenTable, TokenTable | None]:
        texts = fit.examples.all_texts
        self.tokenizer_ = open_tokenizer(fit.configs["text"], fit.configs["model"], texts)
        sentences = sentences_for(fit.configs["model"], self.max_length)
        self._sentences = replace(sentences, similarity=COSINE)  # every loss uses the cosine
        val = None if fit.validation is None else self.table(fit.validation.all_texts)
        return self.table(texts), val

    def _build(self, fit: FitState) -> TextEncoder:
        return build_encoder(fit.configs["model"], self._sentences, self.tokenizer_, self.max_length)

    def _loop(self, fit: FitState) -> tuple[Any, Any, Callable[[], dict[str, float]] | None]:
        skip = self.num_prompt_tokens()
        stream, objective = fit.examples.training(fit.table, fit.train, fit.device, self.loss_, skip)
        if fit.validation is None:
            return stream, objective, None
        scores = fit.validation.scaled_scores(fit.examples.score_range)
        table, network = fit.validation_table, fit.network

        def evaluate() -> dict[str, float]:
            first, second = np.split(encode_table(network, table, fit.device, skip), 2)
            return validation_metrics(first, second, scores, fit.validation.second)

        return stream, objective, evaluate

    def _arrays(self, fit: FitState) -> list[np.ndarray | None]:
        tables = [fit.table] if fit.validation is None else [fit.table, fit.validation_table]
        targets = [split.fingerprint_data for split in (fit.examples, fit.validation) if split is not None]
        return [array for table in tables for array in (table.ids, table.starts)] + targets

    def _finish_fit(self, fit: FitState, training: Any) -> None:
        super()._finish_fit(fit, training)
        self.model_.sentences = self._sentences
        self.index_ = None
        if isinstance(fit.examples, LabeledTexts):
            self._fit_head(fit.examples)

    def _fit_head(self, labeled: LabeledTexts) -> None:
        vectors = self.encode(labeled.texts)
        self.head_ = fit_head(vectors, labeled.targets, self.head, self.neighbors)

    def _check_fitted(self) -> None:
        """Open the checkpoint if the embedder was not trained."""
        if not self.has_model and not is_from_scratch(self.model):
            self.open()
        super()._check_fitted()

    def open(self, *, in_bf16: bool | None = None) -> Embedder:
        """Open the checkpoint if the embedder was not trained, and return the embedder.

        Args:
            in_bf16: whether to read the encoder's weights in bf16 (``keep_bf16``). None: only if
                ``precision`` is "bf16".
        """
        if self.has_model or is_from_scratch(self.model):
            super()._check_fitted()
            return self
        self.classes_ = self.head_ = None
        self._open_checkpoint(self.precision == "bf16" if in_bf16 is None else in_bf16)
        return self.keep_bf16()

    def _open_checkpoint(self, in_bf16: bool = False) -> None:
        configs = self.configs()
        self.tokenizer_ = open_tokenizer(configs["text"], configs["model"], [])
        self._sentences = sentences_for(configs["model"], self.max_length)
        with own_generator(), isolated_torch(gradients=True), torch_uses_own_generator():
            settings = configs["model"], self._sentences, self.tokenizer_, self.max_length
            model = build_encoder(*settings, precision="bf16" if in_bf16 else "fp32").eval()
        self._with_parts(model, adapter=None, index=None)
        self._compute_model = None

    def table(self, texts: Sequence[str]) -> TokenTable:
        """Tokenize checked texts with the default prompt. Long texts are truncated."""
        sentences = self._sentences
        texts = [sentences.prompt(None, None) + clean_text(text, self.clean) for text in texts]
        return encode(self.text_tokenizer(), texts, max_length=sentences.max_length or DEFAULT_MAX_LENGTH)

    def text_tokenizer(self) -> Tokenizer:
        """The tokenizer; it lowercases texts if the checkpoint requires it."""
        return with_lowercasing(self.tokenizer_) if self._sentences.lowercase else self.tokenizer_

    def check_examples(self, X: Any) -> list[str]:
        """Check texts and return them as a list. From a table, read the column that ``fit`` used."""
        return check_texts(self.prediction_examples(X))

    def columns_per_example(self) -> int:
        """Number of columns per example in prediction: 1, even after training on pairs."""
        return 1

    @runs_isolated
    def encode(
        self, texts: Sequence[str], *, prompt_name: str | None = None, prompt: str | None = None
    ) -> np.ndarray:
        """Embed texts, ``[n, E]`` fp32, with the same result as ``SentenceTransformer.encode``.

        Raises:
            InputError: a text cannot be used, or there is no prompt of that name.
        """
        model, texts = self.predictor(), [clean_text(text, self.clean) for text in self.check_examples(texts)]
        options = {"prompt_name": prompt_name, "prompt": prompt, "tokenizer": self.tokenizer_}
        return model.sentences.embed(model, texts, **options)

    def unit_vectors(self, texts: Sequence[str]) -> np.ndarray:
        """Embeddings of length 1, ``[n, E]`` fp32. Their dot products are cosines.

        Raises:
            ConfigError: the checkpoint uses another similarity than the cosine.
        """
        self._check_fitted()
        self._sentences.check_cosine("similarity")
        return unit(self.encode(texts))

    def num_prompt_tokens(self) -> int:
        """The number of tokens of the default prompt, which pooling leaves out."""
        sentences = self._sentences
        prompt, length = sentences.prompt(None, None), sentences.max_length or DEFAULT_MAX_LENGTH
        return sentences.prompt_rows(prompt, self.text_tokenizer(), length)

    @runs_isolated
    def explain_similarity(self, a: str, b: str) -> SimilarityExplanation:
        """Explain the cosine of two texts by pairs of tokens. The contributions sum to the cosine.

        Raises:
            DataError: a text cannot be used.
            ConfigError: the embeddings are not sums over tokens, because of the pooling or a layer after it.
        """
        model, texts = self.predictor(), check_texts([a, b])
        self._sentences.check_cosine("explain_similarity")
        table = self.table(texts)
        token_vectors = []  # [T, D] of each text
        with isolated_torch():
            for row in range(2):
                batch = pack_texts(table, np.array([row]), next(model.parameters()).device)
                encoded = model.encode(batch.ids, batch.packing, segments=batch.segments)
                token_vectors.append(encoded.float().cpu())
        tokens = [[self.tokenizer_.id_to_token(int(i)) or "?" for i in table[row]] for row in range(2)]
        notes = [
            f"the {name} text is longer than {len(table[row])} tokens and was cut there"
            for row, name in enumerate(("first", "second"))
            if table.truncated[row]
        ]
        scores, cosine = contributions(self._sentences, *token_vectors)
        first, second = texts
        return SimilarityExplanation(first, second, tokens[0], tokens[1], scores, cosine, tuple(notes))

    def export_outputs(self) -> Any:
        from glassformer.export.outputs import TextVectors

        return TextVectors(self)

    def embed(self, texts: Sequence[str], **options: Any) -> np.ndarray:
        """Same as ``encode``, under the name that classifiers have."""
        return self.encode(texts, **options)

    def transform(self, X: Sequence[str]) -> np.ndarray:
        """Same as ``encode``, for use in scikit-learn's ``Pipeline``."""
        return self.encode(X)

    def fit_transform(self, X: Sequence[str], y: Any = None) -> np.ndarray:
        """Same as ``transform``: a ``Pipeline`` does not train the encoder. Call ``fit`` before."""
        return self.transform(X)

    def max_tokens(self) -> int:
        """Maximum number of tokens of a text, including special tokens."""
        self._check_fitted()
        return token_limit(self.any_model.config.embedding, self._sentences.max_length)

    def truncated(self, texts: Sequence[str]) -> np.ndarray:
        """Which texts are truncated, ``[n]`` bool."""
        self._check_fitted()
        return np.asarray(self.table(self.check_examples(texts)).truncated)

    def similarity(self, a: str | Sequence[str], b: str | Sequence[str]) -> Any:
        """Cosine of two texts. For lists, the cosines of all combinations, ``[n, m]``."""
        first, second = (self.unit_vectors([t] if isinstance(t, str) else t) for t in (a, b))
        cosines = first @ second.T
        return float(cosines[0, 0]) if isinstance(a, str) and isinstance(b, str) else cosines

    def index(
        self,
        texts: Sequence[str],
        rows: Sequence[int] | None = None,
        beside: Sequence[Mapping[str, Any]] | None = None,
    ) -> Any:
        """Embed texts and store them for ``similar``.

        Args:
            rows: the row number of each text in its file.
            beside: the other columns of the row of each text, as values for JSON.
        """
        texts = self.check_examples(texts)
        self.index_ = TextIndex(texts, self.unit_vectors(texts), self.weights_digest(), rows, beside)
        return self

    def save_index(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the index to a folder; ``load_index`` opens it.

        Raises:
            ConfigError: there is no index.
            CheckpointError: the folder exists and ``overwrite`` is False, or it is not an index.
        """
        return save_index(self._require_index(), path, overwrite=overwrite)

    def load_index(self, path: str | Path) -> Any:
        """Load a saved index for ``similar``.

        Raises:
            CheckpointError: the folder is missing or damaged, or the vectors are of another model.
        """
        self.index_ = load_index(path, self.weights_digest())
        return self

    def _require_index(self) -> TextIndex:
        index = getattr(self, "index_", None)
        if index is None:
            raise ConfigError("there is no index", where="similar", fix="Call index(texts) first")
        return index

    def weights_digest(self) -> str:
        """A digest of the weights and of all settings that affect embeddings."""
        self._check_fitted()
        tensors = self.model_.state_dict()
        sentences = self._sentences
        settings = [str(sentences.pool), str(sentences.max_length), str(sorted(tensors))]
        # Settings that are not set are left out, so that the digests of earlier versions stay the same.
        optional = {"prompt": sentences.prompt(None, None), "lowercase": sentences.lowercase}
        optional |= {"clean": self.clean, "truncate_dim": sentences.truncate_dim}
        settings += [f"{key}={v}" for key, v in optional.items() if v not in ("", False, "none", None)]
        dense = [step for step in sentences.after if isinstance(step, Dense)]
        settings += [step.activation for step in dense]
        weights = [x for d in dense for x in (d.weight, d.bias, d.residual_weight) if x is not None]
        weights += [tensors[name] for name in sorted(tensors)]
        arrays = [x.detach().cpu().float().numpy() for x in weights]
        return digest([np.frombuffer("|".join(settings).encode(), np.uint8), *arrays])

    def similar(self, text: str, k: int = 5, least: float = -1.0) -> list[tuple[str, float]]:
        """The ``k`` nearest texts of the index and their cosines, nearest first.

        Texts with a cosine below ``least`` are left out.
        """
        index = self._require_index()
        rows, cosines = self.search([text], index.vectors, k)
        pairs = zip(rows[0], cosines[0], strict=True)
        return [(index.texts[i], float(c)) for i, c in pairs if at_least(c, least)]

    def doubles(self, texts: Any, least: float = 0.8) -> list[tuple[int, int, float]]:
        """Find near-duplicates in a list of texts, the most similar pairs first.

        All pairs of texts are compared, in fp32.

        Args:
            texts: ``n`` texts, or their embeddings ``[n, E]``.
            least: minimum cosine of a pair, from -1 to 1.

        Returns:
            For each pair, the indices of its texts (the lower index first) and their cosine.

        Raises:
            DataError: a text cannot be used, or there are more than a million pairs.
        """
        return near_duplicate_pairs(unit(texts) if are_vectors(texts) else self.unit_vectors(texts), least)

    def search(self, queries: Sequence[str], table: Any, k: int = 5) -> tuple[np.ndarray, np.ndarray]:
        """Indices and cosines ``[n, k]`` of the ``k`` texts of a table that are nearest to each query.

        The search is exact; see ``nearest``.

        Args:
            table: texts, or their embeddings ``[m, E]``.

        Raises:
            ConfigError: ``k`` is below 1.
            DataError: a text cannot be used, or the embeddings have another width.
        """
        if k < 1:
            raise ConfigError(f"k = {k} is below 1", where="search", fix="Use 1 or more")
        query_vectors = self.unit_vectors(queries)
        vectors = table if are_vectors(table) else self.encode(table)
        if vectors.shape[1] != query_vectors.shape[1]:
            what = f"vectors of {vectors.shape[1]} numbers, the model's have {query_vectors.shape[1]}"
            raise DataError(what, where="search", fix="Give texts, or vectors of this model")
        return nearest(query_vectors, unit(vectors), k, choose_dtype(self.precision, torch.device("cpu")))

    # --- classification, after training on labels ----------------------------------------------------

    def predict_proba(self, X: Sequence[str]) -> np.ndarray:
        """Probabilities ``[n, C]``, after training on labels."""
        self._check_fitted()
        if self.head_ is None:
            fix = "transform(texts) returns embeddings; to predict labels, call fit(texts, labels) first"
            raise ConfigError("was not fitted with labels", where="predict", fix=fix)
        return self.head_.probabilities(self.encode(X))

    def predict(self, X: Sequence[str]) -> np.ndarray:
        """The most probable class of each text."""
        indices = self.predict_proba(X).argmax(1)
        assert self.classes_ is not None
        return Classes(booleans=self.boolean_labels_).to_input_type(self.classes_[indices])

    def score(self, X: Any, y: Any) -> float:
        """Spearman correlation of the cosines and scores of pairs, or accuracy after training on labels.

        Raises:
            DataError: rows cannot be used, or the number or type of the labels is wrong.
        """
        if getattr(self, "head_", None) is not None:
            assert self.classes_ is not None
            labels, predicted = check_labels(y), self.predict(X).tolist()
            _check_lengths(predicted, labels, "score")
            if labels and type(labels[0]) is not type(first_class := self.classes_.tolist()[0]):
                what = f"the label {labels[0]!r} has another type than the known label {first_class!r}"
                raise DataError(what, where="labels", fix="Use the same type of labels as in fit")
            return float(np.mean([a == b for a, b in zip(predicted, labels, strict=True)]))
        pairs = check_text_pairs(self.prediction_examples(X, "pairs", 2), y)
        if pairs.scores is None:
            raise DataError("pairs without scores", where="score", fix="Give a number for each pair")
        return spearman(self.cosines(pairs), pairs.scores)

    def cosines(self, pairs: Pairs) -> np.ndarray:
        """The cosine of each pair, ``[n]``."""
        return (self.unit_vectors(pairs.first) * self.unit_vectors(pairs.second)).sum(1)

    def write_encoder(self, folder: Path) -> None:
        """Save the tokenizer and the files that sentence-transformers needs to open the folder."""
        length = token_limit(self.model_.config.embedding, self._sentences.max_length)
        save_tokenizer(self.tokenizer_, folder, length, segments=self.model_.config.embedding.segments)
        write_sentences(self._sentences, folder, self.model_.config)

    def write_parts(self, folder: Path) -> dict[str, Any]:
        """Save the files of ``write_encoder``, and the classification head if there is one."""
        self.write_encoder(folder)
        if self.head_ is None or self.classes_ is None:
            return {"classes": None}
        tensors = {name: torch.from_numpy(array) for name, array in self.head_.tensors().items()}
        write_tensors(folder, tensors, name=HEAD_FILE)
        booleans = {"truth_values": True} if self.boolean_labels_ else {}
        return {"classes": self.classes_.tolist()} | booleans

    def read_parts(self, folder: Path, metadata: dict[str, Any]) -> None:
        self.tokenizer_, self._sentences = load_tokenizer(folder), self.model_.sentences
        if not isinstance(self._sentences, EmbeddingSettings):
            raise self._sentences or DataError("has no modules.json", where=str(folder))
        self.classes_ = self.head_ = self.index_ = None
        if names := metadata.get("classes"):
            self.classes_ = np.asarray(check_saved_labels(names, "classes", str(folder)))
            self.boolean_labels_ = metadata.get("truth_values") is True
            arrays = {name: tensor.numpy() for name, tensor in read_tensors(folder, HEAD_FILE).items()}
            width = self._sentences.width(self.model_.config.encoder.d_model)
            self.head_ = restore_head(arrays, width, len(self.classes_), str(folder))

    def saved_num_inputs(self, metadata: Mapping[str, Any]) -> int | None:
        return 1 if metadata.get("classes") else 2

    @classmethod
    def load(cls, path: str | Path) -> Embedder:
        """Load a saved embedder; every file is verified by its checksum.

        Raises:
            CheckpointError: the folder is missing or damaged, or has another kind of model.
        """
        folder, _ = find_metadata(path)
        check_is_model(folder)
        metadata = read_saved(cls, folder, "an Embedder")
        with isolated_torch(gradients=True):
            return cls.restore(folder, metadata)

    def check_parts(self, folder: Path) -> None:
        check_embedding_table(self.tokenizer_, self.model_.config, str(folder))


def _check_lengths(texts: Sequence[Any], labels: Sequence[Any], where: str) -> None:
    if len(texts) != len(labels):
        what = f"{len(texts)} texts, {len(labels)} labels"
        raise UnequalLengthsError(what, where=where, fix="Give one label per text")


# --- tokenizer and encoder ------------------------------------------------------------------------


def open_tokenizer(text: EmbedderTextConfig, model: EmbedderModelConfig, texts: Sequence[str]) -> Tokenizer:
    """Load the tokenizer of the checkpoint, or train one on the texts; see ``build_tokenizer``."""
    settings = {key: value for key, value in shared_settings(text, TextConfig).items() if key != "max_length"}
    return build_tokenizer(
        TextConfig(**settings), ModelConfig(model=model.model, revision=model.revision), texts
    )


def sentences_for(model: EmbedderModelConfig, max_length: int | None) -> EmbeddingSettings:
    """Pooling, normalization and maximum length, from the settings or the checkpoint's ``modules.json``.

    Raises:
        CheckpointError: this ``modules.json`` is not supported.
    """
    sentences = embedding = None
    if not is_from_scratch(model.model):
        checkpoint = read_checkpoint(model.model, model.revision)
        embedding = getattr(checkpoint.config, "embedding", None)
        loaded = checkpoint.sentences
        sentences = loaded if isinstance(loaded, EmbeddingSettings) else None
        if isinstance(loaded, InputError):
            raise loaded
    if sentences is None or model.pooling != "auto":
        pool = Pool(("mean" if model.pooling == "auto" else model.pooling,))
        sentences = EmbeddingSettings(
            pool, (Normalize(),), sentences.max_length if sentences else DEFAULT_MAX_LENGTH
        )
    length = sentences.max_length
    if embedding is not None and embedding.positions == "learned":
        length = token_limit(embedding, length)
    return replace(sentences, max_length=max_length or length or DEFAULT_MAX_LENGTH)


def build_encoder(
    model: EmbedderModelConfig,
    sentences: EmbeddingSettings,
    tokenizer: Tokenizer,
    max_length: int | None,
    *,
    precision: Literal["fp32", "bf16"] = "fp32",
) -> TextEncoder:
    """Build the encoder without a head, and set its ``sentences``; for ``precision`` see ``load_pretrained``.

    Raises:
        ConfigError: the model does not read texts, sizes are set for a checkpoint, or ``max_length`` is too
            large.
        CheckpointError: the weights cannot be loaded.
    """
    built: Any
    pooling = "mean"
    if is_from_scratch(model.model):
        sizes = {key: getattr(model, key) for key in SIZES}
        config = ModelConfig(model=model.model, dropout=model.dropout or None, **sizes)
        built = build_model(
            config, TextConfig(max_length=sentences.max_length or DEFAULT_MAX_LENGTH), tokenizer, 2
        )
    else:
        check_unset(model, SIZES)
        checkpoint = cover_vocabulary(read_checkpoint(model.model, model.revision), tokenizer, model.model)
        if checkpoint.family.hub is not None:
            pooling = None  # ``sentences`` has the pooling; transformers can open the folder as an encoder
        if precision == "bf16" and checkpoint.family.model is TextEncoder:
            checkpoint = checkpoint.without_head(pooling)
        built = load_pretrained(checkpoint, dropout=model.dropout, attention_dropout=0.0, precision=precision)
    if not isinstance(built, TextEncoder):
        what = f"{model.model!r} is not an encoder of texts"
        raise NotForThisModelError(what, where="model", fix="Use a Transformer")
    limit = token_limit(built.config.embedding, None)
    if max_length and max_length > limit:
        what = f"{max_length} is more than the model's {limit} positions"
        raise ConfigError(what, where="max_length", fix=f"Use {limit} or less")
    if precision == "fp32":
        built = built.with_head(head=None, pooling=pooling)
    built.sentences = sentences
    return built


# --- runs --------------------------------------------------------------------------------------------


RETRIEVAL_METRICS = ("found", "reciprocal_rank")  # metrics of pairs without scores
MAX_WORDS = 14  # maximum number of words per text in an explained pair
DIGITS = 5  # number of decimals of the scores in explanations


def load(recipe: SimilarityRecipe, source: str | None = None) -> Splits:
    """Load the pairs of a recipe and split them, or load another source without splitting it."""
    dataset = read_source(load_scored_pairs, recipe, source, "first", "second", "score")
    if source is not None:
        return evaluation_splits(dataset)
    return make_splits(dataset, recipe.data, recipe.evaluate.split)


def as_pairs(split: ScoredSplit) -> Pairs:
    """Convert a split to ``Pairs``."""
    scores = None if split.scores is None else np.asarray(split.scores, np.float32)
    return Pairs(split.first, split.second, scores)


def fit_arguments(split: ScoredSplit) -> tuple[list[tuple[str, str]], list[float] | None]:
    """X and y of a split, for ``fit``."""
    return list(zip(split.first, split.second, strict=True)), split.scores


def preview_data(context: RunContext) -> DataPreview:
    splits, dataset = context.data, context.data.dataset
    first, second, score = dataset.columns
    what = (
        f"how alike {first!r} and {second!r} are: {score!r}"
        if score
        else "no score column: all pairs are positive"
    )
    lines = [f"{dataset.name}: {splits.sizes()} pairs; {what}"]
    lines += context.held_out_warning("pairs", "model")
    parts = splits.parts()
    return DataPreview(lines, dataset.rejected, lambda: examine_scored(replace(dataset, splits=parts)))


def fit(context: RunContext, **options: Any) -> None:
    """Train on the training pairs and select the best epoch on the validation pairs."""
    split = context.data.validation
    validation = None if split is None else fit_arguments(split)
    context.estimator.fit(*fit_arguments(context.data.train), validation=validation, **options)
    context.estimator.name_columns(*context.data.dataset.columns[:2])


def evaluate_split(
    embedder: Embedder, split: ScoredSplit, resamples: int
) -> tuple[dict[str, Any], np.ndarray]:
    """Metrics of a split and the cosines ``[n]`` of its pairs.

    The metrics are correlations with the scores; without scores, those of retrieving each text's partner.
    """
    first, second = map(embedder.unit_vectors, (split.first, split.second))
    cosines = (first * second).sum(1)
    if split.scores is None:
        return retrieval_metrics(first @ second.T, split.second), cosines
    return correlations(cosines, np.asarray(split.scores, np.float64), resamples), cosines


def evaluate(context: RunContext) -> dict[str, Any]:
    """Metrics of the validation and test split and of the baselines; also write ``pairs.csv``."""
    context.log("evaluating")
    embedder, recipe, splits = context.estimator, context.recipe, context.data
    resamples = recipe.evaluate.bootstrap
    metrics: dict[str, Any] = {}
    out: dict[str, Any] = {
        "judged": splits.evaluated_split,
        "columns": list(splits.dataset.columns),
        "similarity": metrics,
        "others": {},  # metrics of the baselines
        "truncated": {"train": count_truncated(embedder, splits.train)},
        "loss": embedder.loss_,
        "seconds": {},
    }
    for name, split in {"validation": splits.validation, splits.evaluated_split: splits.evaluated}.items():
        if split is None:
            continue
        started = time.perf_counter()
        metrics[name], cosines = evaluate_split(embedder, split, resamples)
        out["truncated"][name] = count_truncated(embedder, split)
        if name == splits.evaluated_split:
            out["seconds"]["inference"] = time.perf_counter() - started
            context.predictions = cosines
            write_pairs(context.folder / "pairs.csv", split, cosines)
    if splits.evaluated is not None and recipe.evaluate.baselines:
        out["others"] = baselines(context)
    return out


def baselines(context: RunContext) -> dict[str, Any]:
    """Metrics of the model before training, and of TF-IDF, on the test split."""
    embedder, split, resamples = context.estimator, context.data.evaluated, context.recipe.evaluate.bootstrap
    out: dict[str, Any] = {}
    if not is_from_scratch(embedder.model):
        started = time.perf_counter()
        out["untouched model"] = evaluate_split(type(embedder)(**embedder.get_params()), split, resamples)[0]
        out["untouched model"]["seconds"] = time.perf_counter() - started
    started = time.perf_counter()
    try:
        first, second = tfidf_vectors(as_pairs(context.data.train), as_pairs(split))
    except DataError as error:  # the texts have no words: leave this baseline out
        context.log(f"left out: {error}")
        return out
    if split.scores is None:
        out["TF-IDF cosine"] = retrieval_metrics(np.asarray(first @ second.T.toarray()), split.second)
    else:
        cosines = np.asarray(first.multiply(second).sum(1)).ravel()
        out["TF-IDF cosine"] = correlations(cosines, np.asarray(split.scores), resamples)
    out["TF-IDF cosine"]["seconds"] = time.perf_counter() - started
    return out


def count_truncated(embedder: Embedder, split: ScoredSplit) -> list[int]:
    """The number of truncated texts and the number of all texts of a split."""
    return [int(embedder.truncated([*split.first, *split.second]).sum()), 2 * len(split)]


def write_pairs(path: Path, split: ScoredSplit, cosines: np.ndarray) -> None:
    """Write one row per pair; cells are safe to open in a spreadsheet."""
    scores = split.scores if split.scores is not None else [""] * len(split)
    with table_file(path) as writer:
        writer.writerow(["first", "second", "score", "cosine"])
        for a, b, score, cosine in zip(split.first, split.second, scores, cosines.tolist(), strict=True):
            writer.writerow([csv_safe(a), csv_safe(b), score, f"{cosine:.6f}"])


def collect_artifacts(context: RunContext) -> dict[str, Any]:
    """The contents of ``similarities.json``: explanations of some pairs, half of them with large errors."""
    split = context.data.evaluated
    num_explanations = context.recipe.evaluate.maps
    if split is None or not num_explanations or context.predictions is None:
        return {}
    examples = []
    for row in choose_pairs(split, context.predictions, num_explanations):
        try:
            explanation = context.estimator.explain_similarity(split.first[row], split.second[row])
        except ConfigError as error:  # the cosine of this model is not a sum over tokens
            context.log(f"no pairs are explained: {error.what}")
            return {}
        score = None if split.scores is None else split.scores[row]
        table = np.round(explanation.table, DIGITS).tolist()
        examples.append(explanation.as_dict() | {"table": table, "given": score})
    return {"similarities.json": {"examples": examples}}


def choose_pairs(split: ScoredSplit, cosines: np.ndarray, limit: int) -> list[int]:
    """Choose short pairs to explain: half with the largest errors, the others over the range of cosines."""
    from scipy.stats import rankdata

    words = np.array(
        [max(len(a.split()), len(b.split())) for a, b in zip(split.first, split.second, strict=True)]
    )
    short = np.flatnonzero(words <= max(MAX_WORDS, int(words.min())))
    if split.scores is None:
        return short[np.argsort(cosines[short], kind="stable")][:limit].tolist()
    errors = np.abs(rankdata(cosines) - rankdata(split.scores))[short]
    worst = short[np.argsort(-errors, kind="stable")][: (limit + 1) // 2]
    others = short[np.argsort(-cosines[short], kind="stable")]
    others = others[~np.isin(others, worst)]
    if not len(others):
        return worst.tolist()
    spread = np.linspace(0, len(others) - 1, limit - len(worst)).astype(int)
    return [*worst.tolist(), *dict.fromkeys(others[spread].tolist())]


class CosinesOutOfFold(OutOfFold):
    """Cross-validation of embedders. All pairs with the same first text share a fold.

    Without scores, partners are retrieved among the texts of a fold, and metrics are means over all pairs.
    """

    NOUN, PREDICTIONS_FILE = "pairs", "cosines.npy"
    EXAMPLE, GROUPS = "pair", "first texts"
    METRICS = ("spearman", "pearson", *RETRIEVAL_METRICS)

    def fit_arguments(self, split: ScoredSplit) -> tuple[Any, ...]:
        return fit_arguments(split)

    @property
    def validation(self) -> tuple[Any, ...] | None:
        split = self.splits.validation
        return None if split is None else fit_arguments(split)

    def evaluate(self, model: Embedder, split: ScoredSplit) -> tuple[int, dict[str, Any], np.ndarray]:
        scores, cosines = evaluate_split(model, split, 0)
        return len(split), {key: scores[key] for key in self.METRICS if key in scores}, cosines

    def summary(self, metrics: dict[str, Any]) -> str:
        measure = next(key for key in self.METRICS if key in metrics)
        return f"{measure} {metrics[measure]:.4f}"

    def pooled_metrics(
        self, folder: Path, predictions: list[Any], fold: np.ndarray, records: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        train, cosines = self.train, np.array(predictions, np.float64)
        if train.scores is not None:
            test = correlations(cosines, np.asarray(train.scores, np.float64), self.recipe.evaluate.bootstrap)
        else:
            sizes = [fold["n"] for fold in records]
            means = {
                key: np.average([fold[key] for fold in records], weights=sizes) for key in RETRIEVAL_METRICS
            }
            test = {"pairs": len(train), **{key: float(mean) for key, mean in means.items()}}
        write_pairs(folder / "pairs.csv", train, cosines)
        measure = next(key for key in self.METRICS if key in test)
        columns = list(self.splits.dataset.columns)
        out = {"task": self.recipe.task, "measure": measure, "columns": columns}
        return out | {"test": test, "similarity": {OUT_OF_FOLD: test}}


def evaluate_saved(context: RunContext, source: str | None) -> dict[str, Any]:
    """Metrics of a saved model on its own test split, or on other pairs."""
    split = context.split_to_evaluate(source, load, "pairs")
    return evaluate_split(context.estimator, split, context.recipe.evaluate.bootstrap)[0]


def example_fixture() -> tuple[Embedder, tuple]:
    pairs = list(zip(TINY_TEXTS, TINY_TEXTS[1:] + TINY_TEXTS[:1], strict=True))
    embedder = Embedder("encoder-mini", **TINY, max_length=16, min_count=1)
    return embedder, (pairs, [float(i % 3) for i in range(len(pairs))])


TASK = Task(
    estimator=Embedder,
    output_kind="vectors",
    target=Similarity(),
    load=load,
    preview_data=preview_data,
    fit=fit,
    evaluate=evaluate,
    evaluate_saved=evaluate_saved,
    report="similarity",
    example_fixture=example_fixture,
    collect_artifacts=collect_artifacts,
    export=export,
    folds=CosinesOutOfFold,
    verb="similar",
)
