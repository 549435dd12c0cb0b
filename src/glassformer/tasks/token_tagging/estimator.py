"""``TokenTagger``: token classification, such as named-entity recognition.

tagger = gf.TokenTagger().fit([["Ann", "sees", "Rome"]], [["B-person", "O", "B-place"]])
tagger.predict([["Bob", "left"]]); tagger.spans(["Ann left Rome"]); tagger.explain("Ann left", word="Ann")
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer

from glassformer.checkpoints.settings import ABOUT, section
from glassformer.data.batching import BatchSettings
from glassformer.data.checks import check_two, read_labels
from glassformer.data.copies import alike
from glassformer.data.splits import random_split
from glassformer.data.tags import (
    Scheme,
    check_tags,
    check_words,
    classes_of,
    is_sentence,
    malformed,
    read_names,
    read_tags,
    repaired,
    whole_words_of,
)
from glassformer.data.tokenizer_file import load_tokenizer
from glassformer.data.windows import WordRows, encode_words
from glassformer.errors import CheckpointError, MalformedTagsWarning, OneClassError
from glassformer.evaluate.predict import softmax
from glassformer.families.pretrained import Checkpoint, load_pretrained, positions_of, save_pretrained
from glassformer.inputs.sentences import Sentences
from glassformer.targets.token_tags import MEASURE, tag_figures
from glassformer.tasks.build import (
    build_model,
    build_tokenizer,
    check_table,
    fitting,
    is_from_scratch,
    save_tokenizer,
)
from glassformer.tasks.estimator import Estimator, Fit, fitted, with_settings
from glassformer.tasks.text_classification.recipe import ModelConfig, TextConfig
from glassformer.tasks.token_tagging.answers import TagAnswers
from glassformer.tasks.token_tagging.recipe import (
    TaggerFitConfig,
    TaggerModelConfig,
    TaggerTextConfig,
    TaggingRecipe,
)
from glassformer.train.callbacks import Callback
from glassformer.train.config import chosen, kind_of, warn_of_high_rate
from glassformer.train.loop import WordStream
from glassformer.train.objectives import IGNORED, TaggedWords, hiding_of

LONGEST = 256  # default number of tokens per window, if the model has enough positions


class Tagged(NamedTuple):
    """Sentences and the tags of their words."""

    words: list[list[str]]
    tags: list[list[str]]


@with_settings
class TokenTagger(TagAnswers, Estimator, TaggerTextConfig, TaggerModelConfig, TaggerFitConfig):
    """A Transformer that tags words.

    The parameters are the keys of a recipe's sections ``text``, ``model`` and ``train``; ``recipe.py``
    explains them. Fitted attributes in addition to ``Estimator``'s: ``classes_`` (tags, in the order of the
    logits), ``scheme_`` ("BIO", "BIOES" or "plain"), ``repaired_`` (number of malformed training tags),
    ``tokenizer_``, ``length_`` (tokens per window), ``temperature_`` (1 unless calibrated), ``whole_words_``
    (words that keep their punctuation when a text is split; None: texts are split at white space only).
    """

    RECIPE, INPUTS, TARGETS, is_example = TaggingRecipe, Sentences(), "tags", staticmethod(is_sentence)
    SAVED_STATE = (*Estimator.SAVED_STATE, "scheme", "repaired", "length", "temperature", "whole_words")

    tokenizer_: Tokenizer = fitted()
    classes_: np.ndarray = fitted()
    scheme_: Scheme = fitted()
    repaired_: int = fitted()
    length_: int = fitted()

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
                numbers and for other spellings. Malformed tags are read as the spans that they mean, with a
                warning. Words tagged -100 are ignored in loss and metrics.
            validation: ``(X, y)``, evaluated after each epoch to select the best weights.
            checkpoints: folder for checkpoints, saved every ``checkpoint_every`` steps; must be empty without
                ``resume``.
            resume: continue bit-identically from the newest complete checkpoint; a new run if there is none.

        Raises:
            DataError: an unusable sentence, word or tag, only one tag, or tags that look like a scheme in
                another spelling.
            ConfigError: an invalid setting.
            CheckpointError: weights that cannot be loaded, or a checkpoint of another run.
        """
        return self._fit((X, y, validation), callbacks, checkpoints, resume)

    def _examples(self, fit: Fit, *data: Any) -> tuple[Tagged, Tagged | None]:
        X, y, validation = data
        words, self.temperature_ = check_words(self.fit_rows(X, y)), 1.0
        tags, self.scheme_, _ = read_tags(check_tags(y, words), self.scheme)
        held, self.whole_words_ = None, whole_words_of(words)
        well_formed = [repaired(own, self.scheme_) for own in tags]
        self.repaired_ = sum(len(malformed(own, self.scheme_)) for own in tags)
        if self.repaired_:
            of = f"{self.repaired_:,} of {sum(map(len, tags)):,} tags are malformed {self.scheme_}"
            warnings.warn(
                f"{of} and were read as the spans that they mean", MalformedTagsWarning, stacklevel=4
            )
        classes = classes_of(well_formed, self.scheme_)
        if len(classes) < 2:
            what = f"every word has the tag {classes[0]!r}"
            raise OneClassError(what, where="tags", fix="Give sentences with at least two tags")
        self.classes_ = np.asarray(classes)
        if validation is not None:
            X, y = check_two(validation, "sentences, tags")
            others = check_words(self.rows_of(X), "validation sentences")
            held = Tagged(others, self.true_tags(y, others, "validation tags"))
        elif fit.train.validation_fraction:
            groups = [alike(" ".join(sentence)) for sentence in words] if fit.together else None
            parts = random_split([words, well_formed], fit.train.validation_fraction, fit.train.seed, groups)
            (words, well_formed), (others, own) = parts
            held = Tagged(others, own)
        return Tagged(words, well_formed), held

    def _prepare(self, fit: Fit) -> tuple[WordRows, WordRows | None]:
        text, model = self._sections(fit.configs)
        self.tokenizer_ = build_tokenizer(text, model, list(map(" ".join, fit.examples.words)))
        self.length_ = text.max_length
        return self.encode(fit.examples.words), None if fit.held is None else self.encode(fit.held.words)

    def _sections(self, configs: dict[str, Any]) -> tuple[TextConfig, ModelConfig]:
        """The settings as sections of ``TextClassifier``'s recipe; an unset ``max_length`` is the model's."""
        text, model = {k: v for k, v in vars(configs["text"]).items() if k != "scheme"}, configs["model"]
        if text["max_length"] is None:
            most = None if is_from_scratch(model.model) else positions_of(model.model, model.revision)
            text["max_length"] = min(LONGEST, most or LONGEST)
        return TextConfig(**text), ModelConfig(**vars(model), pooling="tokens")  # type: ignore[arg-type]  # no choice

    def encode(self, sentences: Sequence[Sequence[str]]) -> WordRows:
        """Tokenize checked sentences, with the first token of each word."""
        return encode_words(self.tokenizer_, sentences, max_length=self.length_)

    def _choose(self, fit: Fit) -> dict[str, Any]:
        kind = kind_of(fit.train, fit.network, is_from_scratch(self.model))
        warn_of_high_rate(fit.train, kind, fit.network.width)
        return chosen(fit.train, kind, fit.network.width, len(fit.examples.words))

    def _build(self, fit: Fit) -> Any:
        text, model = self._sections(fit.configs)
        table = fit.table.table
        return build_model(model, text, self.tokenizer_, len(self.classes_), table, fit.train.seed)

    def numbers(self, tags: Sequence[Sequence[str]]) -> np.ndarray:
        """The class index of each tag ``[W]``, int64; -100 for a tag that was not seen in training."""
        number = {tag: i for i, tag in enumerate(self.classes_.tolist())}
        return np.array([number.get(tag, IGNORED) for own in tags for tag in own], np.int64)

    def _loop(self, fit: Fit) -> tuple[WordStream, TaggedWords, Callable[[], dict[str, float]] | None]:
        train: TaggerFitConfig = fit.train
        rows: WordRows = fit.table
        settings = BatchSettings(train.batch_size or 0, train.batch_tokens, train.length_window)
        words = len(rows.first)
        stream = WordStream(rows.table, settings, train.accumulate, train.seed, fit.device, words=words)
        hide = hiding_of(train, self.tokenizer_, first=False)
        targets = rows.on_first(self.numbers(fit.examples.tags), IGNORED)
        objective = TaggedWords(targets, rows.table.starts, train.label_smoothing, hide)
        return stream, objective, None if fit.held is None else self._evaluator(fit)

    def _evaluator(self, fit: Fit) -> Callable[[], dict[str, float]]:
        held, truth = fit.held.tags, self.numbers(fit.held.tags)

        def evaluate() -> dict[str, float]:
            logits = self.word_logits(fit.network, fit.held_table, fit.device)
            known = truth != IGNORED
            probabilities = softmax(logits)[known, truth[known]]
            loss = -float(np.log(np.maximum(probabilities, 1e-300)).mean()) if known.any() else 0.0
            predicted = self.decide(fit.held_table.split(logits))
            metrics = tag_figures(held, predicted, self.scheme_, bootstrap=0)
            return {"loss": loss, "accuracy": metrics["accuracy"], MEASURE: metrics[MEASURE]}

        return evaluate

    def _arrays(self, fit: Fit) -> list[np.ndarray | None]:
        pairs = [(fit.table, fit.examples), (fit.held_table, fit.held)][: 1 if fit.held is None else 2]
        arrays: list[np.ndarray | None] = []
        for rows, own in pairs:
            arrays += [rows.table.ids, rows.table.starts, rows.first, self.numbers(own.tags)]
        return arrays

    # --- files -----------------------------------------------------------------------------------

    def _write_model(self, folder: Path) -> None:
        save_pretrained(self.model_, folder, label_names=tuple(self.classes_.tolist()))

    def write_parts(self, folder: Path) -> dict[str, Any]:
        save_tokenizer(self.tokenizer_, folder, self.length_, segments=self.model_.config.embedding.segments)
        return {"classes": self.classes_.tolist()}

    def read_parts(self, folder: Path, about: dict[str, Any]) -> None:
        self.tokenizer_ = load_tokenizer(folder)
        classes = about.get("classes")
        where = str(folder / ABOUT)
        if not isinstance(classes, list) or not all(isinstance(tag, str) for tag in classes):
            raise CheckpointError("'classes' is not a list of tags", where=where)
        self.classes_ = np.asarray(read_labels(classes, "classes", where))
        if self.scheme_ not in ("BIO", "BIOES", "plain"):
            raise CheckpointError(f"scheme = {self.scheme_!r} is not known", where=where)
        t = self.temperature_
        if isinstance(t, bool) or not isinstance(t, int | float) or not 0 < t < float("inf"):
            raise CheckpointError(f"temperature = {t!r} is not a number above 0", where=where)
        whole = self.whole_words_
        if whole is not None and not (isinstance(whole, list) and all(isinstance(w, str) for w in whole)):
            raise CheckpointError("'whole_words' is not a list of words", where=where)

    @classmethod
    def restore(cls, folder: Path, about: dict[str, Any]) -> TokenTagger:
        return super().restore(folder, {"temperature": 1.0, "whole_words": None} | about)

    def check_parts(self, folder: Path) -> None:
        config = self.model_.config
        check_table(self.tokenizer_, config, str(folder))
        if getattr(config, "pooling", None) != "tokens" or config.num_labels != len(self.classes_):
            what = f"has no head for token classification with {len(self.classes_)} tags"
            raise CheckpointError(what, where=str(folder))

    @classmethod
    def of_tokens(cls, folder: Path, checkpoint: Checkpoint) -> TokenTagger:
        """The tagger for a folder that ``transformers`` wrote.

        Raises:
            CheckpointError: labels that do not name each output once, or a tokenizer that does not fit.
        """
        where, settings = str(folder / "config.json"), checkpoint.settings
        count = checkpoint.config.num_labels
        named = section(settings, "id2label", where) if settings.get("id2label") else {}
        names = [named.get(str(i), f"LABEL_{i}") for i in range(count)]
        if not all(isinstance(name, str) for name in names) or len(set(names)) < count:
            raise CheckpointError(f"'id2label' does not name each of the {count} outputs once", where=where)
        tokenizer = load_tokenizer(folder)
        model = load_pretrained(fitting(checkpoint, tokenizer, str(folder)))
        (names,), scheme, said = read_names(names)
        if said:
            warnings.warn(f"{where}: {said}", MalformedTagsWarning, stacklevel=4)
        return cls.from_parts(
            {"model": str(folder)},
            model,
            tokenizer=tokenizer,
            classes=np.asarray(names),
            scheme=scheme,
            repaired=0,
            length=min(LONGEST, model.config.embedding.max_positions),
            temperature=1.0,
            whole_words=None,
        )
