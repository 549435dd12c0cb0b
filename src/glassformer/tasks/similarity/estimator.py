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

from glassformer.checkpoints.files import check_is_model
from glassformer.checkpoints.sentences import write_sentences
from glassformer.checkpoints.settings import metadata_in
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.config import listed
from glassformer.data.batching import BatchSettings, pack_texts
from glassformer.data.checks import check_labels, check_texts, check_two, read_labels
from glassformer.data.copies import comparison_key
from glassformer.data.in_memory import as_targets, read_rows
from glassformer.data.label_sets import are_booleans
from glassformer.data.splits import random_split
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
from glassformer.explain.similarity import SimilarityExplanation, contributions
from glassformer.families.pretrained import load_pretrained, read_checkpoint
from glassformer.inputs.texts import TextsForVectors
from glassformer.models.sentences import COSINE, Dense, Normalize, Pool, Sentences, lowercased, token_limit
from glassformer.models.text import TextEncoder
from glassformer.runtime import choose_dtype, computes, computing, own_generator, use_own_generator
from glassformer.targets.multiclass import Classes
from glassformer.targets.similarity import spearman, validation_metrics
from glassformer.tasks.build import (
    build_model,
    build_tokenizer,
    check_table,
    fitting,
    is_from_scratch,
    save_tokenizer,
)
from glassformer.tasks.estimator import Estimator, Fit, digest, fitted, read_saved, with_settings
from glassformer.tasks.heads import Head, fit_head, head_of, unit
from glassformer.tasks.layers import SIZES, refuse_given, shared
from glassformer.tasks.named_columns import warn_of_order
from glassformer.tasks.similarity.index import TextIndex, load_index, save_index
from glassformer.tasks.similarity.pairs import (
    JUDGED,
    Labelled,
    LabelStream,
    PairLoss,
    Pairs,
    PairStream,
    check_classes,
    check_text_pairs,
    chosen_loss,
    encode_table,
    pairs_of_labels,
    range_of,
    scaled,
    split_of_labels,
)
from glassformer.tasks.similarity.recipe import (
    EmbedderFitConfig,
    EmbedderModelConfig,
    EmbedderTextConfig,
    SimilarityRecipe,
)
from glassformer.tasks.text_classification.recipe import ModelConfig, TextConfig
from glassformer.train.callbacks import Callback
from glassformer.train.distributed import require_single_process

LONGEST = 256  # default maximum number of tokens, if the checkpoint has none
ROUNDED = 1e-6  # maximum rounding error of a cosine in fp32
BLOCK, MOST_PAIRS = 1024, 1_000_000  # rows per matrix product; maximum number of pairs returned
CANDIDATES = 32  # additional nearest rows in bf16 whose cosines are computed in fp32
# Maximum error of a cosine in bf16: 2**-9 (half a unit in the last of 8 binary places) for each vector and
# for their product, and a little for sums in fp32.
APART = 3 * 2.0**-9 + 2.0**-11
CLASSES = "classes"  # file name of the classification head


@with_settings
class Embedder(Estimator, EmbedderTextConfig, EmbedderModelConfig, EmbedderFitConfig):
    """A Transformer that embeds texts, trained on pairs or labels; a checkpoint can be used without ``fit``.

    ``recipe.py`` explains the parameters. After a fit with labels there are ``classes_`` and ``head_``.
    """

    RECIPE, INPUTS, MOST = SimilarityRecipe, TextsForVectors(), 2
    INNER = ("_how",)
    check = staticmethod(check_texts)
    truth_ = False  # whether the training labels were booleans, so that ``predict`` returns booleans

    tokenizer_: Tokenizer = fitted()
    classes_: np.ndarray | None = fitted()
    head_: Head | None = fitted()
    index_: TextIndex | None = fitted()
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
        with own_generator():
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
        require_single_process("the pairs of a batch are compared in one process", "Run it without torchrun")
        if train.train_layers == 0 and not train.unfreeze_every:
            what = "no weight would be trained on pairs: without labels there is no head"
            raise NotForThisModelError(what, where="train_layers", fix="Use 1 or more")
        self.classes_ = self.head_ = None
        self.truth_, self.n_features_in_ = False, 2
        if rows and isinstance(rows[0], str):
            self.n_features_in_ = 1
            examples: Any = self._labels(rows, y)
            val: Any = None if validation is None else self._others(*check_two(validation, "texts, labels"))
        else:
            examples = check_text_pairs(rows, y)
            val = None
            if validation is not None:
                X, scores = check_two(validation, "pairs, scores")
                val = check_text_pairs(self.rows_of(X, "validation", 2), scores, "validation")
        if val is None and train.validation_fraction:
            train_rows, validation_rows = self._parts(examples, fit)
            examples, val = examples.take(train_rows), examples.take(validation_rows)
        if isinstance(examples, Labelled):
            check_classes(examples.targets)
            if val is not None:
                val = pairs_of_labels(val.texts, val.targets, JUDGED, train.seed)
        elif val is not None and (val.scores is None) != (examples.scores is None):
            what = "only one of training and validation has scores"
            raise DataError(what, where="validation", fix="Give scores for both or for none")
        self.loss_ = chosen_loss(train.loss, None if isinstance(examples, Labelled) else examples)
        return examples, val

    def _parts(self, examples: Labelled | Pairs, fit: Fit) -> tuple[Any, Any]:
        """Indices of training and of validation examples; each class has training examples."""
        texts = examples.texts if isinstance(examples, Labelled) else examples.first
        groups = list(map(comparison_key, texts)) if fit.group_duplicates else [*map(str, range(len(texts)))]
        share, seed = fit.train.validation_fraction, fit.train.seed
        if isinstance(examples, Labelled):
            return split_of_labels(examples.targets, groups, share, seed)
        (train_rows,), (validation_rows,) = random_split([list(range(len(texts)))], share, seed, groups)
        return train_rows, validation_rows

    def _labels(self, texts: list[str], y: Any) -> Labelled:
        """Texts with class indices; also sets ``classes_``."""
        if y is None:
            raise DataError("texts without labels", where="fit", fix="Give labels, or pairs of texts")
        texts, labels, self.truth_ = check_texts(texts), check_labels(y), are_booleans(y)
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
        texts = check_texts(self.rows_of(texts, "validation"), "validation")
        labels = check_labels(labels, "validation labels")
        if len(labels) != len(texts):
            what = f"{len(texts)} texts, {len(labels)} labels"
            raise UnequalLengthsError(what, where="validation", fix="Give one a text")
        assert self.classes_ is not None
        numbers = {label: i for i, label in enumerate(self.classes_.tolist())}
        if unknown := [label for label in labels if label not in numbers]:
            known_labels = listed([str(label) for label in numbers])
            what = f"the label {unknown[0]!r} is not among those learned"
            raise UnknownLabelError(what, where="validation", fix=f"Known: {known_labels}")
        return Labelled(texts, np.array([numbers[label] for label in labels]))

    def _prepare(self, fit: Fit) -> tuple[TokenTable, TokenTable | None]:
        texts = _texts(fit.examples)
        self.tokenizer_ = open_tokenizer(fit.configs["text"], fit.configs["model"], texts)
        sentences = sentences_for(fit.configs["model"], self.max_length)
        self._how = replace(sentences, similarity=COSINE)  # all losses here use the cosine
        val = None if fit.validation is None else self.table(_texts(fit.validation))
        return self.table(texts), val

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
        if fit.validation is None:
            return stream, objective, None
        val, table, network = scaled(fit.validation.scores, span), fit.validation_table, fit.network

        def evaluate() -> dict[str, float]:
            first, second = np.split(encode_table(network, table, fit.device, skip), 2)
            return validation_metrics(first, second, val, fit.validation.second)

        return stream, objective, evaluate

    def _arrays(self, fit: Fit) -> list[np.ndarray | None]:
        tables = [fit.table] if fit.validation is None else [fit.table, fit.validation_table]
        targets = [
            part.targets if isinstance(part, Labelled) else part.scores
            for part in (fit.examples, fit.validation)
            if part is not None
        ]
        return [array for table in tables for array in (table.ids, table.starts)] + targets

    def _finish_fit(self, fit: Fit, training: Any) -> None:
        super()._finish_fit(fit, training)
        self.model_.sentences = self._how
        self.index_ = None
        if isinstance(fit.examples, Labelled):
            self._fit_head(fit.examples)

    def _fit_head(self, labelled: Labelled) -> None:
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
        configs = self.configs()
        self.tokenizer_ = open_tokenizer(configs["text"], configs["model"], [])
        self._how = sentences_for(configs["model"], self.max_length)
        with own_generator(), computing(gradients=True), use_own_generator():
            model = build_encoder(configs["model"], self._how, self.tokenizer_, self.max_length).eval()
        self._with_parts(model, adapter=None, index=None)
        self._compute_model = None

    def table(self, texts: Sequence[str]) -> TokenTable:
        """Tokenize checked texts with the default prompt, truncated to the maximum length."""
        sentences = self._how
        texts = [sentences.prompt(None, None) + clean_text(text, self.clean) for text in texts]
        return encode(self.reader(), texts, max_length=sentences.max_length or LONGEST)

    def reader(self) -> Tokenizer:
        """The tokenizer, with lowercasing if the checkpoint asks for it."""
        return lowercased(self.tokenizer_) if self._how.lowercase else self.tokenizer_

    def texts_of(self, X: Any) -> list[str]:
        """Checked texts; from a table, the column that ``fit`` used, if any."""
        return check_texts(self.rows_of(X))

    def columns_per_example(self) -> int:
        """Number of columns per example in prediction: 1, also after training on pairs."""
        return 1

    @computes
    def encode(
        self, texts: Sequence[str], *, prompt_name: str | None = None, prompt: str | None = None
    ) -> np.ndarray:
        """Embed each text, ``[n, E]`` fp32; the same as ``SentenceTransformer.encode``.

        Raises:
            InputError: an unusable text, or no prompt of that name.
        """
        model, texts = self.predictor(), [clean_text(text, self.clean) for text in self.texts_of(texts)]
        options = {"prompt_name": prompt_name, "prompt": prompt, "tokenizer": self.tokenizer_}
        return model.sentences.embed(model, texts, **options)

    def directions(self, texts: Sequence[str]) -> np.ndarray:
        """Normalized embeddings ``[n, E]`` fp32: the dot product of two is their cosine.

        Raises:
            ConfigError: the checkpoint uses another similarity than the cosine.
        """
        self._check_fitted()
        self._how.check_cosine("similarity")
        return unit(self.encode(texts))

    def skipped(self) -> int:
        """Number of tokens of the default prompt, which are left out in pooling."""
        sentences = self._how
        prompt, length = sentences.prompt(None, None), sentences.max_length or LONGEST
        return sentences.prompt_rows(prompt, self.reader(), length)

    @computes
    def explain_similarity(self, a: str, b: str) -> SimilarityExplanation:
        """Explain the cosine of two texts: the contribution of each pair of tokens; these sum to the cosine.

        Raises:
            DataError: an unusable text.
            ConfigError: a pooling or later layer that makes embeddings no sum over tokens.
        """
        model, texts = self.predictor(), check_texts([a, b])
        self._how.check_cosine("explain_similarity")
        table = self.table(texts)
        parts = []
        with computing():
            for row in range(2):
                batch = pack_texts(table, np.array([row]), next(model.parameters()).device)
                states = model.encode(batch.ids, batch.packing, segments=batch.segments).float()
                parts.append(states.cpu())
        tokens = [[self.tokenizer_.id_to_token(int(i)) or "?" for i in table[row]] for row in range(2)]
        cut = [
            f"the {name} text is longer than {len(table[row])} tokens and was cut there"
            for row, name in enumerate(("first", "second"))
            if table.truncated[row]
        ]
        added, score = contributions(self._how, parts[0], parts[1])
        return SimilarityExplanation(texts[0], texts[1], tokens[0], tokens[1], added, score, tuple(cut))

    def export_outputs(self) -> Any:
        """The ``export.outputs.Outputs`` that writes and checks these predictions in an export."""
        from glassformer.export.outputs import TextVectors

        return TextVectors(self)

    def embed(self, texts: Sequence[str], **options: Any) -> np.ndarray:
        """Same as ``encode``, with the name of the method in classifiers."""
        return self.encode(texts, **options)

    def transform(self, X: Sequence[str]) -> np.ndarray:
        """Same as ``encode``, for use in scikit-learn's ``Pipeline``."""
        return self.encode(X)

    def fit_transform(self, X: Sequence[str], y: Any = None) -> np.ndarray:
        """Same as ``transform``: in a ``Pipeline`` the encoder is not trained. To train it, call ``fit``
        before."""
        return self.transform(X)

    def longest(self) -> int:
        """Maximum number of tokens of a text, special ones included."""
        self._check_fitted()
        return token_limit(self.model_.config.embedding, self._how.max_length)

    def truncated(self, texts: Sequence[str]) -> np.ndarray:
        """Which texts are truncated, ``[n]`` bool."""
        self._check_fitted()
        return np.asarray(self.table(self.texts_of(texts)).truncated)

    def similarity(self, a: str | Sequence[str], b: str | Sequence[str]) -> Any:
        """Cosine of two texts; for lists, of each text of one with each of the other, ``[n, m]``."""
        one = isinstance(a, str) and isinstance(b, str)
        first, second = (self.directions([t] if isinstance(t, str) else t) for t in (a, b))
        cosines = first @ second.T
        return float(cosines[0, 0]) if one else cosines

    def index(
        self,
        texts: Sequence[str],
        rows: Sequence[int] | None = None,
        beside: Sequence[Mapping[str, Any]] | None = None,
    ) -> Any:
        """Embed and store texts for ``similar``.

        Args:
            rows: row number of each text in its file.
            beside: the other columns of each text's row, with values that JSON can represent.
        """
        texts = self.texts_of(texts)
        self.index_ = TextIndex(texts, self.directions(texts), self.weights_digest(), rows, beside)
        return self

    def save_index(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the index to a folder; ``load_index`` opens it.

        Raises:
            ConfigError: there is no index.
            CheckpointError: the folder exists and ``overwrite`` is False, or is not one of ours.
        """
        return save_index(self._indexed(), path, overwrite=overwrite)

    def load_index(self, path: str | Path) -> Any:
        """Load a saved index for ``similar``.

        Raises:
            CheckpointError: no such folder, a damaged one, or the vectors of another model.
        """
        self.index_ = load_index(path, self.weights_digest())
        return self

    def _indexed(self) -> TextIndex:
        index = getattr(self, "index_", None)
        if index is None:
            raise ConfigError("no texts to look among", where="similar", fix="Call index(texts) first")
        return index

    def weights_digest(self) -> str:
        """A digest of everything that affects embeddings: weights, pooling, prompt, cleaning."""
        self._check_fitted()
        tensors = self.model_.state_dict()
        sentences = self._how
        settings = [str(sentences.pool), str(sentences.max_length), str(sorted(tensors))]
        # Only added if set, so that indexes of earlier versions keep their digest.
        optional = {"prompt": sentences.prompt(None, None), "lowercase": sentences.lowercase}
        optional |= {"clean": self.clean, "truncate_dim": sentences.truncate_dim}
        settings += [f"{key}={v}" for key, v in optional.items() if v not in ("", False, "none", None)]
        dense = [step for step in sentences.after if isinstance(step, Dense)]
        settings += [step.activation for step in dense]
        arrays = [np.frombuffer("|".join(settings).encode(), np.uint8)]
        parts = [x for d in dense for x in (d.weight, d.bias, d.residual_weight) if x is not None]
        arrays += [x.detach().cpu().float().numpy() for x in parts]
        arrays += [tensors[name].detach().cpu().float().numpy() for name in sorted(tensors)]
        return digest(arrays)

    def similar(self, text: str, k: int = 5, least: float = -1.0) -> list[tuple[str, float]]:
        """The ``k`` nearest texts of the index with their cosines, nearest first, without those below
        ``least``."""
        index = self._indexed()
        rows, cosines = self.search([text], index.vectors, k)
        pairs = zip(rows[0], cosines[0], strict=True)
        return [(index.texts[i], float(c)) for i, c in pairs if at_least(c, least)]

    def doubles(self, texts: Any, least: float = 0.8) -> list[tuple[int, int, float]]:
        """Find near-duplicates in a list of texts, the most similar pairs first.

        Every text is compared with every other, in fp32.

        Args:
            texts: ``n`` texts, or their embeddings ``[n, E]``.
            least: minimum cosine of a pair, from -1 to 1.

        Returns:
            For each pair the indices of its texts, the lower first, and their cosine.

        Raises:
            DataError: an unusable text, or more than a million pairs.
        """
        return pairs_within(unit(texts) if _are_vectors(texts) else self.directions(texts), least)

    def search(self, queries: Sequence[str], table: Any, k: int = 5) -> tuple[np.ndarray, np.ndarray]:
        """For each query the indices of the ``k`` nearest rows of a table and their cosines, ``[n, k]`` each.

        The search is exact. If the CPU multiplies in bf16, candidates are found in bf16 and their cosines
        computed in fp32; if the candidates do not settle which rows are nearest, all rows are compared in
        fp32.

        Args:
            table: texts, or their embeddings ``[m, E]``.

        Raises:
            ConfigError: ``k`` below 1.
            DataError: an unusable text, or embeddings of another width.
        """
        if k < 1:
            raise ConfigError(f"k {k} asks for nothing", where="search", fix="Use 1 or more")
        query_vectors = self.directions(queries)
        if not _are_vectors(table):
            table = self.encode(table)
        vectors = table
        if vectors.shape[1] != query_vectors.shape[1]:
            what = f"vectors of {vectors.shape[1]} numbers, the model's have {query_vectors.shape[1]}"
            raise DataError(what, where="search", fix="Give texts, or vectors of this model")
        return nearest(query_vectors, unit(vectors), k, choose_dtype(self.precision, torch.device("cpu")))

    # --- classification, after a fit with labels -----------------------------------------------------

    def predict_proba(self, X: Sequence[str]) -> np.ndarray:
        """Probabilities ``[n, C]``, after a fit with labels."""
        self._check_fitted()
        if self.head_ is None:
            raise ConfigError("was not fitted with labels", where="predict", fix="Use fit(texts, labels)")
        return self.head_.probabilities(self.encode(X))

    def predict(self, X: Sequence[str]) -> np.ndarray:
        """The most probable class of each text."""
        best = self.predict_proba(X).argmax(1)
        assert self.classes_ is not None
        return Classes(booleans=self.truth_).to_input_type(self.classes_[best])

    def score(self, X: Any, y: Any) -> float:
        """Spearman correlation of cosines and scores of pairs; after a fit with labels, accuracy.

        Raises:
            DataError: unusable rows, a wrong number of labels, or labels of another type than in training.
        """
        if getattr(self, "head_", None) is not None:
            assert self.classes_ is not None
            labels, predicted = check_labels(y), self.predict(X).tolist()
            if len(labels) != len(predicted):
                what = f"{len(predicted)} texts, {len(labels)} labels"
                raise UnequalLengthsError(what, where="score", fix="Give one a text")
            if labels and type(labels[0]) is not type(first_class := self.classes_.tolist()[0]):
                what = f"the label {labels[0]!r} is of another kind than those learned, as {first_class!r}"
                raise DataError(what, where="labels", fix="Give them as they were given to fit")
            return float(np.mean([a == b for a, b in zip(predicted, labels, strict=True)]))
        pairs = check_text_pairs(self.rows_of(X, "pairs", 2), y)
        if pairs.scores is None:
            raise DataError("pairs without scores", where="score", fix="Give a number for each pair")
        return spearman(self.cosines(pairs), pairs.scores)

    def cosines(self, pairs: Pairs) -> np.ndarray:
        """The cosine of each pair, ``[n]``."""
        return (self.directions(pairs.first) * self.directions(pairs.second)).sum(1)

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
        folder, _ = metadata_in(path)
        check_is_model(folder)
        about = read_saved(cls, folder, "an Embedder")
        with computing(gradients=True):
            return cls.restore(folder, about)

    def check_parts(self, folder: Path) -> None:
        check_table(self.tokenizer_, self.model_.config, str(folder))


def _texts(examples: Labelled | Pairs) -> list[str]:
    """All texts; for pairs the first texts, then the second texts."""
    return examples.texts if isinstance(examples, Labelled) else [*examples.first, *examples.second]


# --- tokenizer and encoder ------------------------------------------------------------------------


def open_tokenizer(text: EmbedderTextConfig, model: EmbedderModelConfig, texts: Sequence[str]) -> Tokenizer:
    """The checkpoint's tokenizer, or one trained on the texts; errors as in ``build_tokenizer``."""
    settings = {key: value for key, value in shared(text, TextConfig).items() if key != "max_length"}
    return build_tokenizer(
        TextConfig(**settings), ModelConfig(model=model.model, revision=model.revision), texts
    )


def sentences_for(model: EmbedderModelConfig, max_length: int | None) -> Sentences:
    """Pooling, normalization and maximum length, from the settings or else the checkpoint's modules.json.

    Raises:
        CheckpointError: the checkpoint's modules.json is not supported.
    """
    sentences = embedding = None
    if not is_from_scratch(model.model):
        opened = load_pretrained(model.model, revision=model.revision)
        embedding = getattr(getattr(opened, "config", None), "embedding", None)
        loaded = getattr(opened, "sentences", None)
        sentences = loaded if isinstance(loaded, Sentences) else None
        if isinstance(loaded, InputError):
            raise loaded
    if sentences is None or model.pooling != "auto":
        pool = Pool(("mean" if model.pooling == "auto" else model.pooling,))
        sentences = Sentences(pool, (Normalize(),), sentences.max_length if sentences else LONGEST)
    length = sentences.max_length
    if embedding is not None and embedding.positions == "learned":  # at most as many as there are positions
        length = token_limit(embedding, length)
    return replace(sentences, max_length=max_length or length or LONGEST)


def build_encoder(
    model: EmbedderModelConfig, sentences: Sentences, tokenizer: Tokenizer, max_length: int | None
) -> TextEncoder:
    """The encoder without a head, with ``sentences`` as its ``sentences``.

    Raises:
        ConfigError: not a text model, sizes for a checkpoint, or too many tokens.
        CheckpointError: weights that cannot be loaded.
    """
    built: Any
    pooling = "mean"
    if is_from_scratch(model.model):
        shape = {key: getattr(model, key) for key in SIZES}
        wide = ModelConfig(model=model.model, dropout=model.dropout or None, **shape)
        built = build_model(wide, TextConfig(max_length=sentences.max_length or LONGEST), tokenizer, 2)
    else:
        refuse_given(model, SIZES)
        checkpoint = fitting(read_checkpoint(model.model, model.revision), tokenizer, model.model)
        built = load_pretrained(checkpoint, dropout=model.dropout, attention_dropout=0.0)
        if checkpoint.family.hub is not None:
            pooling = None  # ``how`` pools, so that a saved folder is a plain encoder for transformers
    if not isinstance(built, TextEncoder):
        raise NotForThisModelError(
            f"{model.model!r} is not an encoder of texts", where="model", fix="Use a Transformer"
        )
    limit = token_limit(built.config.embedding, None)
    if max_length and max_length > limit:
        what = f"max_length {max_length} is more than the model's {limit} positions"
        raise ConfigError(what, where="max_length", fix=f"Use {limit} or less")
    built = built.with_head(head=None, pooling=pooling)
    built.sentences = sentences
    return built


# --- search ---------------------------------------------------------------------------------------


def _are_vectors(table: Any) -> bool:
    return isinstance(table, np.ndarray) and table.ndim == 2 and table.dtype.kind not in "OUST"


def pairs_within(table: np.ndarray, least: float) -> list[tuple[int, int, float]]:
    """Pairs of rows with a cosine of at least ``least``, highest first; all vectors are normalized.

    Raises:
        DataError: more than ``MOST_PAIRS``.
    """
    t = torch.from_numpy(np.ascontiguousarray(table, np.float32))
    first, second, cosines = [], [], []
    for start in range(0, len(t), BLOCK):
        block = t[start : start + BLOCK] @ t[start:].T  # [B, n - start]; earlier rows are done
        i, j = torch.triu(block >= least - ROUNDED, diagonal=1).nonzero(as_tuple=True)
        first.append(i + start)
        second.append(j + start)
        cosines.append(block[i, j])
        if (count := sum(map(len, first))) > MOST_PAIRS:
            what = f"{count:,} pairs and more have a cosine of {least:g} or above"
            raise DataError(what, where="doubles", fix="Ask for a higher one")
    if not first:
        return []
    best = torch.sort(torch.cat(cosines), descending=True, stable=True)
    places = torch.cat(first)[best.indices].tolist(), torch.cat(second)[best.indices].tolist()
    return list(zip(*places, best.values.clamp(-1, 1).tolist(), strict=True))


def nearest(
    queries: np.ndarray, table: np.ndarray, k: int, dtype: torch.dtype = torch.float32
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of ``table`` nearest to each query and their cosines, ``[n, k]``; all vectors are normalized.

    Args:
        dtype: of the first pass. In bf16 it finds candidates, whose cosines are computed in fp32. If another
            row could still be nearer than these, the query is compared with all rows in fp32.
    """
    k = min(k, len(table))
    wide = k if dtype == torch.float32 else min(k + CANDIDATES, len(table))
    q, t = torch.from_numpy(queries), torch.from_numpy(np.ascontiguousarray(table))
    rows, cosines, low = [], [], t.to(dtype)
    for part in q.split(256):
        candidates = (part.to(dtype) @ low.T).float().topk(wide, 1)  # [Q, wide]
        exact = torch.einsum("qe,qwe->qw", part, t[candidates.indices])
        best = torch.sort(exact, dim=1, descending=True, stable=True)
        indices, values = candidates.indices.gather(1, best.indices[:, :k]), best.values[:, :k]
        if dtype != torch.float32 and wide < len(table):
            # Another row may have a cosine of up to APART above that of the last candidate.
            unsure = values[:, -1] < candidates.values[:, -1] + APART
            if unsure.any():
                values[unsure], indices[unsure] = (part[unsure] @ t.T).topk(k, 1)
        rows.append(indices)
        cosines.append(values)
    return torch.cat(rows).numpy(), torch.cat(cosines).clamp(-1, 1).numpy()


def at_least(cosine: float, least: float | None) -> bool:
    """Whether a cosine is at least ``least``, up to rounding in fp32."""
    return least is None or least <= -1 or cosine >= least - ROUNDED
