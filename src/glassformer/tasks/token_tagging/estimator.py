"""``TokenTagger``: token classification.

tagger = gf.TokenTagger().fit([["Ann", "sees", "Rome"]], [["B-person", "O", "B-place"]])
tagger.predict([["Bob", "left"]]); tagger.spans(["Ann left Rome"]); tagger.explain("Ann left", word="Ann")

In addition to the files of every run, its runs write ``predictions.conll`` (word, true tag, predicted
tag) and ``spans.json``.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer

from glassformer.checkpoints.files import replace_text
from glassformer.checkpoints.settings import METADATA_FILE
from glassformer.data.batching import BatchSettings
from glassformer.data.checks import check_saved_labels, check_validation, location
from glassformer.data.duplicates import comparison_key, copy_keys
from glassformer.data.in_memory import read_rows
from glassformer.data.label_kinds import respelled_message
from glassformer.data.splits import Splits, evaluation_splits, make_splits, random_split, stratified_folds
from glassformer.data.tag_doctor import examine_tagged
from glassformer.data.tagged import TaggedDataset, TaggedSplit, format_conll, load_tagged
from glassformer.data.tags import (
    OUTSIDE,
    Scheme,
    Span,
    check_tags,
    check_words,
    is_sentence,
    malformed_positions,
    read_model_labels,
    read_tags,
    read_tags_like_model,
    repair_tags,
    tag_classes,
    tag_kind,
    tagged_positions,
    tags_to_spans,
    word_positions,
    words_with_punctuation,
)
from glassformer.data.tokenizer_file import load_tokenizer
from glassformer.data.windows import WordWindows, encode_words
from glassformer.errors import CheckpointError, MalformedTagsWarning, OneClassError, TooFewExamplesError
from glassformer.evaluate.predict import predict_tokens, softmax
from glassformer.explain.mixin import ExplainMixin
from glassformer.explain.token_subjects import word_subject
from glassformer.families.pretrained import Checkpoint, load_pretrained, save_pretrained
from glassformer.finite import finite
from glassformer.inputs.sentences import Sentences
from glassformer.inputs.texts import TINY_TEXTS
from glassformer.runtime import runs_isolated
from glassformer.sklearn_base import check_is_fitted
from glassformer.targets.multiclass import warn_spelling_message
from glassformer.targets.token_tags import (
    BASELINE,
    MAIN_METRIC,
    TokenTags,
    frequent_tags,
    span_errors,
    tag_metrics,
    word_log_loss,
)
from glassformer.tasks.build import (
    as_classifier_sections,
    build_model,
    build_tokenizer,
    check_embedding_table,
    cover_vocabulary,
    hub_labels,
    is_from_scratch,
    save_tokenizer,
)
from glassformer.tasks.estimator import Estimator, FitState, fitted_attribute, with_settings
from glassformer.tasks.task import TINY, DataPreview, OutOfFold, RunContext, Task, export, read_source
from glassformer.tasks.token_tagging.recipe import (
    TaggerFitConfig,
    TaggerModelConfig,
    TaggerTextConfig,
    TaggingRecipe,
)
from glassformer.train.callbacks import Callback
from glassformer.train.config import auto_values_for
from glassformer.train.loop import WordStream
from glassformer.train.objectives import IGNORED, TaggedWords, input_masking

CHUNK = 4096  # number of sentences that are encoded at a time, to limit memory


@dataclass(frozen=True)
class TaggedSpan:
    """A tagged span: words ``first`` to ``last`` (exclusive), characters ``start`` to ``end`` (exclusive).

    ``probability`` is the minimum over its words. That of a word is the sum over all tags of this ``kind``
    (B-, I- and so on).
    """

    text: str
    kind: str
    start: int
    end: int
    first: int
    last: int
    probability: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def word_offsets(sentence: Any, whole_words: Collection[str] | None = None) -> list[tuple[int, int]]:
    """First character and last + 1 of each word, in a text or in a list of words joined with spaces.

    Args:
        whole_words: how a text is split into words, see ``word_positions``.
    """
    if isinstance(sentence, str):
        return word_positions(sentence, whole_words)
    ends = np.cumsum([len(word) + 1 for word in sentence]) - 1
    return [(int(end) - len(word), int(end)) for word, end in zip(sentence, ends, strict=True)]


def tagged_spans(
    sentence: Any,
    tags: Sequence[str],
    probabilities: np.ndarray,
    classes: Sequence[str],
    scheme: Scheme,
    whole_words: Collection[str] | None = None,
) -> list[TaggedSpan]:
    """The spans of one sentence.

    Args:
        sentence: a text, or a list of words.
        tags: predicted tags ``[W]``.
        probabilities: ``[W, C]``, columns in the order of ``classes``.
        whole_words: how a text is split into words, see ``word_positions``.
    """
    text = sentence if isinstance(sentence, str) else " ".join(sentence)
    offsets = word_offsets(sentence, whole_words)
    kinds = np.array([tag_kind(tag, scheme) for tag in classes])
    out = []
    for kind, first, last in tags_to_spans(tags, scheme):
        start, end = offsets[first][0], offsets[last - 1][1]
        probability = float(probabilities[first:last, kinds == kind].sum(1).min())
        out.append(TaggedSpan(text[start:end], kind, start, end, first, last, min(probability, 1.0)))
    return out


DEFAULT_MAX_LENGTH = 256  # number of tokens per window, if the model has enough positions


class TaggedSentences(NamedTuple):
    """Sentences and the tags of their words."""

    words: list[list[str]]
    tags: list[list[str]]


@with_settings
class TokenTagger(ExplainMixin, Estimator, TaggerTextConfig, TaggerModelConfig, TaggerFitConfig):
    """A Transformer that tags words.

    The parameters are the keys of a recipe's sections ``text``, ``model`` and ``train``; ``recipe.py``
    explains them. Fitted attributes in addition to ``Estimator``'s: ``classes_`` (the tags, in the order of
    the logits), ``scheme_`` ("BIO", "BIOES" or "plain"), ``repaired_`` (number of malformed training tags),
    ``tokenizer_``, ``length_`` (tokens per window), ``temperature_`` (1 before calibration) and
    ``whole_words_`` (words that keep their punctuation when a text is split; None: texts are split at white
    space only).
    """

    RECIPE, INPUTS, TARGETS, is_example = TaggingRecipe, Sentences(), "tags", staticmethod(is_sentence)
    EXPLAIN_TARGET_OPTIONS = ("word",)
    SAVED_STATE = (*Estimator.SAVED_STATE, "scheme", "repaired", "length", "temperature", "whole_words")

    tokenizer_: Tokenizer = fitted_attribute()
    classes_: np.ndarray = fitted_attribute()
    scheme_: Scheme = fitted_attribute()
    repaired_: int = fitted_attribute()
    length_: int = fitted_attribute()
    temperature_: float = fitted_attribute()
    whole_words_: list[str] | None = fitted_attribute()

    # --- training --------------------------------------------------------------------------------

    def fit(
        self,
        X: Sequence[Any],
        y: Sequence[Any],
        *,
        validation: tuple[Sequence[Any], Sequence[Any]] | None = None,
        callbacks: Sequence[Callback] = (),
        checkpoints: str | Path | None = None,
        resume: bool = False,
    ) -> TokenTagger:
        """Train on sentences and the tags of their words.

        Args:
            X: lists of words, or texts, which are split at white space.
            y: a list of tags for each sentence: BIO, BIOES (or BILOU) or plain; ``scheme`` is needed for
                numbers and for other spellings. Malformed tags are repaired, with a warning. Words with the
                tag -100 do not count in loss and metrics.
            validation: ``(X, y)``, evaluated after each epoch to select the best weights.
            checkpoints, resume: see ``TextClassifier.fit``.

        Raises:
            DataError: a sentence, word or tag cannot be used, there is only one tag, or the tags look like a
                scheme in another spelling.
            ConfigError, CheckpointError: see ``TextClassifier.fit``.
        """
        return self._fit((X, y, validation), callbacks, checkpoints, resume)

    def _examples(self, fit: FitState, *data: Any) -> tuple[TaggedSentences, TaggedSentences | None]:
        X, y, validation = data
        words, self.temperature_ = check_words(self.training_examples(X, y)), 1.0
        tags, self.scheme_, _ = read_tags(check_tags(y, words), self.scheme)
        validation_set, self.whole_words_ = None, words_with_punctuation(words)
        well_formed = [repair_tags(row_tags, self.scheme_) for row_tags in tags]
        self.repaired_ = sum(len(malformed_positions(row_tags, self.scheme_)) for row_tags in tags)
        if self.repaired_:
            what = f"{self.repaired_:,} of {sum(map(len, tags)):,} tags are malformed {self.scheme_}"
            warnings.warn(
                f"{what} and were read as the spans that they mean", MalformedTagsWarning, stacklevel=4
            )
        classes = tag_classes(well_formed, self.scheme_)
        if len(classes) < 2:
            what = f"every word has the tag {classes[0]!r}"
            raise OneClassError(what, where="tags", fix="Give sentences with at least two tags")
        self.classes_ = np.asarray(classes)
        if validation is not None:
            X, y = check_validation(validation, "sentences, tags")
            validation_words = check_words(self.prediction_examples(X), "validation sentences")
            validation_tags = self.true_tags(y, validation_words, "validation tags")
            validation_set = TaggedSentences(validation_words, validation_tags)
        elif fit.train.validation_fraction:
            groups = [comparison_key(" ".join(row)) for row in words] if fit.group_duplicates else None
            splits = random_split([words, well_formed], fit.train.validation_fraction, fit.train.seed, groups)
            (words, well_formed), validation_data = splits
            validation_set = TaggedSentences(*validation_data)
        return TaggedSentences(words, well_formed), validation_set

    def _prepare(self, fit: FitState) -> tuple[WordWindows, WordWindows | None]:
        text, model = as_classifier_sections(fit.configs, DEFAULT_MAX_LENGTH, "tokens")
        self.tokenizer_ = build_tokenizer(text, model, list(map(" ".join, fit.examples.words)))
        self.length_ = text.max_length
        validation_table = None if fit.validation is None else self.encode(fit.validation.words)
        return self.encode(fit.examples.words), validation_table

    def encode(self, sentences: Sequence[Sequence[str]]) -> WordWindows:
        """Tokenize checked sentences."""
        return encode_words(self.tokenizer_, sentences, max_length=self.length_)

    def _resolve_defaults(self, fit: FitState) -> dict[str, Any]:
        return auto_values_for(fit.train, fit.network, is_from_scratch(self.model), len(fit.examples.words))

    def _build(self, fit: FitState) -> Any:
        text, model = as_classifier_sections(fit.configs, DEFAULT_MAX_LENGTH, "tokens")
        return build_model(model, text, self.tokenizer_, len(self.classes_), fit.table.table, fit.train.seed)

    def class_indices(self, tags: Sequence[Sequence[str]]) -> np.ndarray:
        """The class index of each tag ``[W]``, int64; -100 for a tag that was not seen in training."""
        index = {tag: i for i, tag in enumerate(self.classes_.tolist())}
        return np.array([index.get(tag, IGNORED) for row_tags in tags for tag in row_tags], np.int64)

    def _loop(self, fit: FitState) -> tuple[WordStream, TaggedWords, Callable[[], dict[str, float]] | None]:
        train: TaggerFitConfig = fit.train
        encoded: WordWindows = fit.table
        settings = BatchSettings(train.batch_size or 0, train.batch_tokens, train.length_window)
        words = len(encoded.first)
        stream = WordStream(encoded.table, settings, train.accumulate, train.seed, fit.device, words=words)
        masking = input_masking(train, self.tokenizer_, mask_first=False)
        targets = encoded.on_first(self.class_indices(fit.examples.tags), IGNORED)
        objective = TaggedWords(targets, encoded.table.starts, train.label_smoothing, masking)
        return stream, objective, None if fit.validation is None else self._evaluator(fit)

    def _evaluator(self, fit: FitState) -> Callable[[], dict[str, float]]:
        tags, truth = fit.validation.tags, self.class_indices(fit.validation.tags)

        def evaluate() -> dict[str, float]:
            logits = self.word_logits(fit.network, fit.validation_table, fit.device)
            has_tag = truth != IGNORED
            probabilities = softmax(logits)[has_tag, truth[has_tag]]
            loss = -float(np.log(np.maximum(probabilities, 1e-300)).mean()) if has_tag.any() else 0.0
            predicted = self.decide(fit.validation_table.split(logits))
            metrics = tag_metrics(tags, predicted, self.scheme_, bootstrap=0)
            return {"loss": loss, "accuracy": metrics["accuracy"], MAIN_METRIC: metrics[MAIN_METRIC]}

        return evaluate

    def _arrays(self, fit: FitState) -> list[np.ndarray | None]:
        arrays: list[np.ndarray | None] = []
        for encoded, examples in ((fit.table, fit.examples), (fit.validation_table, fit.validation)):
            if encoded is not None:
                arrays += [encoded.table.ids, encoded.table.starts, encoded.first]
                arrays.append(self.class_indices(examples.tags))
        return arrays

    # --- prediction ------------------------------------------------------------------------------

    def words_of(self, X: Any, origin: str = "sentences") -> list[list[str]]:
        """Sentences as lists of words.

        Texts are split at white space. Punctuation at the beginning and end of a word becomes a separate
        word, unless the word had this punctuation in training.

        Raises:
            DataError: there are no sentences, or a sentence cannot be used.
        """
        return check_words(self.prediction_examples(X, origin), origin, whole=self._whole_words())

    def _whole_words(self) -> frozenset[str] | None:
        return None if self.whole_words_ is None else frozenset(self.whole_words_)

    @property
    def budget(self) -> int:
        """Number of tokens per batch in prediction."""
        return max(self.batch_tokens or 8192, self.length_)

    def word_logits(
        self,
        model: Any,
        encoded: WordWindows,
        device: torch.device,
        progress: Callable[[int], None] | None = None,
    ) -> np.ndarray:
        """Logits of each word, ``[W, C]`` fp32: those of its first token."""
        count = None if progress is None else lambda index: progress(len(index))
        options = {"batch_tokens": self.budget, "device": device, "progress": count}
        return predict_tokens(model, encoded.table, len(self.classes_), **options)[encoded.first]

    @runs_isolated
    def logits(self, X: Sequence[Any], *, progress: Callable[[int], None] | None = None) -> list[np.ndarray]:
        """Logits of each sentence's words, ``[W_i, C]`` fp32 each."""
        check_is_fitted(self, "model_")
        words, model = self.words_of(X), self.predictor()
        device = next(model.parameters()).device
        out: list[np.ndarray] = []
        for start in range(0, len(words), CHUNK):
            encoded = self.encode(words[start : start + CHUNK])
            out += encoded.split(finite(self.word_logits(model, encoded, device, progress), "logits"))
        return out

    def predict_proba(
        self, X: Sequence[Any], *, progress: Callable[[int], None] | None = None
    ) -> list[np.ndarray]:
        """Probabilities of each sentence's words, ``[W_i, C]`` fp64, columns in the order of ``classes_``."""
        return [self.to_probabilities(logits) for logits in self.logits(X, progress=progress)]

    def to_probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Convert logits ``[W, C]`` to probabilities."""
        return softmax(logits, self.temperature_)

    def predict(self, X: Sequence[Any]) -> list[list[str]]:
        """The most probable tag of each word; malformed sequences of tags are repaired."""
        return self.decide(self.predict_proba(X))

    def decide(self, probabilities: Sequence[np.ndarray]) -> list[list[str]]:
        """Tags from the probabilities or logits ``[W_i, C]`` of each sentence."""
        return self._repair([self.classes_[p.argmax(1)].tolist() for p in probabilities])

    def spans(
        self, X: Sequence[Any], probabilities: Sequence[np.ndarray] | None = None
    ) -> list[list[TaggedSpan]]:
        """The spans of each sentence.

        Args:
            X: lists of words, or texts. Character positions refer to the text, or to the words joined with
                spaces.
            probabilities: the result of ``predict_proba``, if known.
        """
        X = read_rows(self.prediction_examples(X), "sentences", "sentences", is_example=is_sentence)
        probabilities = self.predict_proba(X) if probabilities is None else probabilities
        classes, tags, whole_words = self.classes_.tolist(), self.decide(probabilities), self._whole_words()
        return [
            tagged_spans(x if isinstance(x, str) else list(x), t, p, classes, self.scheme_, whole_words)
            for x, t, p in zip(X, tags, probabilities, strict=True)
        ]

    def score(self, X: Sequence[Any], y: Sequence[Any]) -> float:
        """Entity F1 as in seqeval; accuracy for plain tags without "O".

        Tags in another spelling or scheme are converted, with an ``OtherSpellingWarning``.
        """
        words, classes = check_words(self.prediction_examples(X)), {*self.classes_.tolist()}
        sentences = zip(check_tags(y, words), self.true_tags(y, words), strict=True)
        converted = [(a, b) for tags in sentences for a, b in zip(*tags, strict=True) if a not in classes]
        warn_spelling_message(respelled_message([a for a, _ in converted], [b for _, b in converted]))
        metrics = self.judge(X, y, bootstrap=0)
        has_no_spans = self.scheme_ == "plain" and OUTSIDE not in self.classes_
        return metrics["accuracy" if has_no_spans else MAIN_METRIC]

    def judge(
        self, X: Sequence[Any], y: Sequence[Any], *, bootstrap: int = 1000, answers: Sequence | None = None
    ) -> dict[str, Any]:
        """All metrics of ``targets.token_tags.tag_metrics``; ``answers`` are predicted tags, if known."""
        words = check_words(self.prediction_examples(X))
        truth = self.true_tags(y, words)
        return tag_metrics(truth, answers or self.predict(words), self.scheme_, bootstrap=bootstrap)

    def true_tags(self, y: Any, words: Sequence[Sequence[str]], origin: str = "tags") -> list[list[str]]:
        """Convert true tags to this tagger's scheme, and repair malformed ones.

        Raises:
            DataError: tags are missing, or this tagger does not know them.
        """
        tags = read_tags_like_model(
            check_tags(y, words, origin), self.scheme, self.scheme_, self.classes_.tolist(), origin
        )
        return self._repair(tags)

    def explain(
        self, x: Any, *, word: str | int | None = None, method: str = "occlusion", **options: Any
    ) -> Any:
        """Explain the tag of a word by scores for the tokens of its sentence.

        Args:
            x: a list of words, or a text.
            word: the word or its index; None: the first word with a tag other than "O", or else the first.
            method: one of ``glassformer.explain.methods``.
            options: ``target`` (a tag; None: the predicted one), ``trust``, and options of the method.

        Raises:
            InputError: the sentence cannot be used, or there is no such word, method, option or tag.
        """
        check_is_fitted(self, "model_")
        options.update(word=word, method=method)
        return self._explained(self.words_of([x], "sentence"), None, options)[0]

    def explain_target(self, words: list[str], word: str | int | None = None) -> Any:
        """The ``Subject`` of an explanation: the tag of one word."""
        return word_subject(self, words, word)

    def check_examples(self, X: Sequence[Any]) -> list[list[str]]:
        """Check sentences, and return them as lists of words."""
        return self.words_of(X)

    def export_outputs(self) -> Any:
        from glassformer.export.outputs import WordTags

        return WordTags(self)

    def _repair(self, tags: Sequence[Sequence[str]]) -> list[list[str]]:
        return [repair_tags(row_tags, self.scheme_) for row_tags in tags]

    # --- files -----------------------------------------------------------------------------------

    def _write_model(self, folder: Path) -> None:
        save_pretrained(self.model_, folder, label_names=tuple(self.classes_.tolist()))

    def write_parts(self, folder: Path) -> dict[str, Any]:
        save_tokenizer(self.tokenizer_, folder, self.length_, segments=self.model_.config.embedding.segments)
        return {"classes": self.classes_.tolist()}

    def read_parts(self, folder: Path, metadata: dict[str, Any]) -> None:
        self.tokenizer_ = load_tokenizer(folder)
        classes = metadata.get("classes")
        where = str(folder / METADATA_FILE)
        if not isinstance(classes, list) or not all(isinstance(tag, str) for tag in classes):
            raise CheckpointError("'classes' is not a list of tags", where=where)
        self.classes_ = np.asarray(check_saved_labels(classes, "classes", where))
        if self.scheme_ not in ("BIO", "BIOES", "plain"):
            raise CheckpointError(f"scheme = {self.scheme_!r} is not known", where=where)
        temperature, words = self.temperature_, self.whole_words_
        is_number = isinstance(temperature, int | float) and not isinstance(temperature, bool)
        if not is_number or not 0 < temperature < float("inf"):
            raise CheckpointError(f"temperature = {temperature!r} is not a number above 0", where=where)
        if words is not None and not (isinstance(words, list) and all(isinstance(w, str) for w in words)):
            raise CheckpointError("'whole_words' is not a list of words", where=where)

    @classmethod
    def restore(cls, folder: Path, metadata: dict[str, Any], *, in_bf16: bool = False) -> TokenTagger:
        metadata = {"temperature": 1.0, "whole_words": None} | metadata
        return super().restore(folder, metadata, in_bf16=in_bf16)

    def check_parts(self, folder: Path) -> None:
        config = self.model_.config
        check_embedding_table(self.tokenizer_, config, str(folder))
        if getattr(config, "pooling", None) != "tokens" or config.num_labels != len(self.classes_):
            what = f"has no head for token classification with {len(self.classes_)} tags"
            raise CheckpointError(what, where=str(folder))

    @classmethod
    def from_tagger_checkpoint(cls, folder: Path, checkpoint: Checkpoint) -> TokenTagger:
        """The tagger for a folder of ``transformers``.

        Raises:
            CheckpointError: the labels do not name each output once, or the tokenizer does not match.
        """
        where, settings = str(folder / "config.json"), checkpoint.settings
        names = hub_labels(settings, checkpoint.config.num_labels, where, partial=True)
        tokenizer = load_tokenizer(folder)
        model = load_pretrained(cover_vocabulary(checkpoint, tokenizer, str(folder)))
        (names,), scheme, message = read_model_labels(names)
        if message:
            warnings.warn(f"{where}: {message}", MalformedTagsWarning, stacklevel=4)
        return cls.from_parts(
            {"model": str(folder)},
            model,
            tokenizer=tokenizer,
            classes=np.asarray(names),
            scheme=scheme,
            repaired=0,
            length=min(DEFAULT_MAX_LENGTH, model.config.embedding.max_positions),
            temperature=1.0,
            whole_words=None,
        )


def read(recipe: TaggingRecipe, source: str | None = None) -> TaggedDataset:
    """Read all sentences of a recipe, or of another source."""
    return read_source(load_tagged, recipe, source, "words_column", "tags_column")


def load(recipe: TaggingRecipe, source: str | None = None) -> Splits:
    """Load the sentences of a recipe and split them, or load another source without splitting it."""
    dataset = read(recipe, source)
    if source is not None:
        return evaluation_splits(dataset)
    return make_splits(convert_tags(dataset, recipe.text.scheme), recipe.data, recipe.evaluate.split)


def convert_tags(dataset: TaggedDataset, scheme: str | Sequence[str]) -> TaggedDataset:
    """The data set with its tags converted by ``read_tags``."""
    tagged = {name: split for name, split in dataset.splits.items() if split.tags is not None}
    reading = read_tags(
        [tags for split in tagged.values() for tags in split.tags or ()], scheme, dataset.name
    )
    converted = iter(reading.tags)
    splits = {name: replace(s, tags=[next(converted) for _ in s.words]) for name, s in tagged.items()}
    message = (reading.message,) if reading.message else ()
    return replace(dataset, splits=dataset.splits | splits, messages=(*dataset.messages, *message))


def preview_data(context: RunContext) -> DataPreview:
    """Describe the sentences, and the kinds of spans that do not occur in training."""
    splits, settings = context.data, context.recipe.evaluate
    if settings.sentences:
        check_words(list(settings.sentences), "evaluate.sentences")
    setting = context.recipe.text.scheme
    scheme = read_tags(splits.train.tags or (), setting).scheme
    training_kinds = _span_kinds(splits.train, scheme)
    lines = [*splits.dataset.messages, f"{splits.dataset.name}: {splits.sizes()} sentences, tags in {scheme}"]
    lines += context.held_out_warning("sentences", "tags")
    for split in {id(s): s for s in (splits.validation, splits.evaluated) if s is not None}.values():
        if unseen := sorted(_span_kinds(split, scheme) - training_kinds):
            lines.append(
                f"{split.origin} has kinds of spans that do not occur in training: {', '.join(unseen)}"
            )
    dataset = replace(splits.dataset, splits=splits.parts())
    return DataPreview(lines, splits.dataset.rejected, lambda: examine_tagged(dataset, setting))


def _span_kinds(split: TaggedSplit, scheme: Scheme) -> set[str]:
    return {tag_kind(tag, scheme) for tags in split.tags or () for tag in tags} - {""}


def evaluate(context: RunContext) -> dict[str, Any]:
    """Metrics of the splits and of the baseline; also write the predictions."""
    started = time.perf_counter()
    context.log("evaluating")
    tagger, recipe, splits = context.estimator, context.recipe, context.data
    out, evaluated = context.evaluate_splits(_evaluate_split, MAIN_METRIC), splits.evaluated
    out |= {"scheme": tagger.scheme_, "repaired": tagger.repaired_, "label_names": tagger.classes_.tolist()}
    if out["test"] is not None:
        if recipe.evaluate.baselines:
            context.log("baseline on the same split")
            out["baselines"] = {BASELINE: _baseline(context, evaluated)}
        predicted = tagger.decide(context.predictions)
        text = format_conll(evaluated.words, evaluated.tags, predicted)
        replace_text(context.folder / "predictions.conll", text)
    if recipe.evaluate.sentences:
        texts = list(recipe.evaluate.sentences)
        out["sentences"] = [
            {"text": text, "spans": [span.to_dict() for span in spans]}
            for text, spans in zip(texts, tagger.spans(texts), strict=True)
        ]
    out["seconds"]["evaluate"] = time.perf_counter() - started
    return out


def _evaluate_split(
    tagger: TokenTagger, split: TaggedSplit, bootstrap: int, progress: Any = None
) -> tuple[dict[str, Any], list[np.ndarray]]:
    probabilities, tags = tagger.predict_proba(split.words, progress=progress), split.tags or []
    metrics = tagger.judge(split.words, tags, bootstrap=bootstrap, answers=tagger.decide(probabilities))
    truth = [tag for row_tags in tagger.true_tags(tags, split.words, split.origin) for tag in row_tags]
    loss = word_log_loss(np.concatenate(probabilities), truth, tagger.classes_.tolist())
    return metrics | {"log_loss": loss}, probabilities


def _baseline(context: RunContext, split: TaggedSplit) -> dict[str, Any]:
    started, tagger, train = time.perf_counter(), context.estimator, context.data.train
    predicted, bootstrap = frequent_tags(train, split, tagger.scheme_), context.recipe.evaluate.bootstrap
    metrics = tagger.judge(split.words, split.tags or [], bootstrap=bootstrap, answers=predicted)
    return metrics | {"seconds": time.perf_counter() - started}


class TagsOutOfFold(OutOfFold):
    """Cross-validation of taggers. The predictions of a fold are probabilities ``[W, C]``."""

    NOUN, METRICS = "sentences", (MAIN_METRIC, "precision", "recall", "accuracy", "log_loss")
    target, measure = TokenTags(), MAIN_METRIC
    scheme: Scheme

    def __init__(self, recipe: TaggingRecipe, splits: Splits, estimator: Any):
        super().__init__(recipe, splits, estimator)
        tags = self.train.tags or []
        self.scheme = read_tags(tags, recipe.text.scheme).scheme
        self.truth = [repair_tags(row_tags, self.scheme) for row_tags in tags]
        self.classes = tag_classes(self.truth, self.scheme)
        if len(self.classes) < 2:
            raise OneClassError(f"every word has the tag {self.classes[0]!r}", where=self.train.origin)

    def assign(self, folds: int) -> np.ndarray:
        """The fold of each sentence; if there are enough sentences, stratified by whether it has spans."""
        data, train = self.recipe.data, self.train
        groups = copy_keys(train) if data.copies == "together" else None
        kinds = ["spans" if tags_to_spans(row_tags, self.scheme) else "none" for row_tags in train.tags or []]
        firsts = dict(zip(groups or range(len(kinds)), kinds, strict=True))
        if len(firsts) < folds:
            what = f"{len(firsts)} different sentences for {folds} folds"
            raise TooFewExamplesError(what, where=train.origin, fix="Use fewer folds, or give more sentences")
        if min(Counter(firsts.values()).values()) < folds:
            kinds = ["sentence"] * len(kinds)
        return stratified_folds(kinds, folds, data.split_seed, groups)

    def evaluate(self, model: TokenTagger, split: TaggedSplit) -> tuple[int, dict[str, Any], np.ndarray]:
        probabilities, model_classes = model.predict_proba(split.words), model.classes_.tolist()
        columns = [(i, self.classes.index(tag)) for i, tag in enumerate(model_classes) if tag in self.classes]
        p = np.concatenate(probabilities)
        all_tags = np.zeros((len(p), len(self.classes)))  # 0 for tags that the model does not know
        all_tags[:, [j for _, j in columns]] = p[:, [i for i, _ in columns]]
        truth = [repair_tags(tags, self.scheme) for tags in split.tags or []]
        scores = tag_metrics(truth, model.decide(probabilities), self.scheme, bootstrap=0)
        metrics = {key: scores[key] for key in self.METRICS if key in scores}
        metrics["log_loss"] = word_log_loss(all_tags, [tag for tags in truth for tag in tags], self.classes)
        return scores["n"], metrics, all_tags.astype(np.float32)

    def per_example(self, predictions: np.ndarray, rows: np.ndarray) -> list[np.ndarray] | None:
        counts = [len(self.train.words[i]) for i in rows.tolist()]
        return np.split(predictions, np.cumsum(counts)[:-1]) if sum(counts) == len(predictions) else None

    def pooled_metrics(
        self, folder: Path, predictions: list[Any], fold: np.ndarray, records: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        names = [[self.classes[c] for c in p.argmax(1).tolist()] for p in predictions]
        predicted = [repair_tags(tags, self.scheme) for tags in names]
        replace_text(folder / "predictions.conll", format_conll(self.train.words, self.truth, predicted))
        test = tag_metrics(self.truth, predicted, self.scheme, bootstrap=self.recipe.evaluate.bootstrap)
        out = {"task": self.recipe.task, "measure": MAIN_METRIC, "scheme": self.scheme}
        return out | {"test": test, "label_names": self.classes}


def evaluate_saved(context: RunContext, source: str | None) -> dict[str, Any]:
    """Metrics of a saved tagger on its own test split, or on other data."""
    split = context.split_to_evaluate(source, load, "sentences", "tagged split")
    scheme = context.estimator.scheme_
    true = context.estimator.true_tags(split.tags, split.words, split.origin)
    known_kinds = {tag_kind(tag, scheme) for tag in context.estimator.classes_.tolist()}
    if unknown := sorted(_span_kinds(replace(split, tags=true), scheme) - known_kinds):
        context.log(f"kinds of spans that the model does not know: {', '.join(unknown)}")
    with context.count("evaluating", len(split)) as progress:
        return _evaluate_split(context.estimator, split, context.recipe.evaluate.bootstrap, progress)[0]


def predict_records(tagger: TokenTagger, X: Sequence[Any]) -> list[dict[str, Any]]:
    """One record per text or list of words: its words, tags and spans."""
    probabilities = tagger.predict_proba(X)
    words, tags, spans = tagger.words_of(X), tagger.decide(probabilities), tagger.spans(X, probabilities)
    return [
        {
            "text": x if isinstance(x, str) else " ".join(x),
            "words": row_words,
            "tags": row_tags,
            "spans": [span.to_dict() for span in row_spans],
        }
        for x, row_words, row_tags, row_spans in zip(X, words, tags, spans, strict=True)
    ]


def collect_artifacts(context: RunContext) -> dict[str, Any]:
    """The contents of ``spans.json``: evaluated sentences with true and predicted spans, errors first."""
    split, tagger = context.data.evaluated, context.estimator
    if split is None or context.predictions is None:
        return {}
    spans = tagger.spans(split.words, context.predictions)
    order = sorted(range(len(split)), key=lambda i: -_error(split, spans, i, tagger.scheme_))
    examples = []
    for i in order[: context.recipe.evaluate.shown]:
        truth = tags_to_spans(split.tags[i], tagger.scheme_)
        predicted = _counted_spans(spans[i], split.tags[i])
        examples.append(
            {
                "where": location(split.origin, i, split.rows),
                "words": split.words[i],
                "true": [list(span) for span in truth],
                "predicted": [[*span, round(p, 4)] for span, p in predicted.items()],
                "errors": [list(error) for error in span_errors(truth, [*predicted])],
            }
        )
    return {"spans.json": {"examples": examples}}


def _counted_spans(spans: list, tags: Sequence[str]) -> dict[Span, float]:
    """Map predicted spans, without words with the true tag -100, to their probabilities."""
    is_counted = tagged_positions(tags)
    out = {}
    for span in spans:
        if inside := [i for i in is_counted if span.first <= i < span.last]:
            out[Span(span.kind, inside[0], inside[-1] + 1)] = span.probability
    return out


def _error(split: TaggedSplit, spans: list, i: int, scheme: Scheme) -> float:
    """The error of a sentence: the number of missed spans, plus the probabilities of wrong spans."""
    truth = {*tags_to_spans((split.tags or [])[i], scheme)}
    predicted = _counted_spans(spans[i], (split.tags or [])[i])
    return sum(p for span, p in predicted.items() if span not in truth) + len(truth - predicted.keys())


def example_fixture() -> tuple[TokenTagger, tuple]:
    words = [text.split() for text in TINY_TEXTS]
    tags = [["B-animal" if word in ("dog", "cat") else "O" for word in sentence] for sentence in words]
    return TokenTagger("encoder-mini", **TINY, max_length=16, min_count=1), (words, tags)


TASK = Task(
    estimator=TokenTagger,
    output_kind="tags",
    load=load,
    preview_data=preview_data,
    evaluate=evaluate,
    evaluate_saved=evaluate_saved,
    report="tags",
    example_fixture=example_fixture,
    collect_artifacts=collect_artifacts,
    predict_records=predict_records,
    target=TokenTags(),
    read=read,
    folds=TagsOutOfFold,
    export=export,
)
