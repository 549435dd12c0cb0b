"""Zero-shot text classification by entailment: does "This example is sports." follow from a text?

Each text is paired with one hypothesis per label (Yin, Hay and Roth, 2019). Any classifier of text pairs with
an entailment class can be used, trained with glassformer or from the Hub.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.config import listed
from glassformer.data.checks import check_class_names, check_texts
from glassformer.data.in_memory import read_rows
from glassformer.data.text import Windows
from glassformer.data.text_pairs import TextPair, encode_pairs, without_segments
from glassformer.errors import ConfigError, NotForThisModelError
from glassformer.evaluate.predict import softmax
from glassformer.finite import finite
from glassformer.inputs.texts import Texts
from glassformer.runtime import computing
from glassformer.targets.multiclass import Classes
from glassformer.tasks.text_classification.estimator import ENTAILS, TextClassifier

TEMPLATE = "This example is {}."
AGAINST = ("contra", "not_entail", "not entail")  # how names of a contradiction class begin
TEXTS = 1024  # texts per chunk; each is paired with all labels


class ZeroShotClassifier:
    """Classifies texts into labels of your choice with an entailment model, without training.

    ``predict``, ``predict_proba`` and ``explain`` work as for a fitted ``TextClassifier``; ``classes_`` are
    the labels in the given order.
    """

    INPUTS = inputs = Texts()
    NOUN, RECIPE = INPUTS.noun, TextClassifier.RECIPE
    kind_ = Classes()  # one label per text

    def __init__(
        self,
        model: Any,
        labels: Sequence[str],
        *,
        template: str = TEMPLATE,
        multi_label: bool = False,
    ):
        """Combine an entailment model with labels.

        Args:
            model: a fitted ``TextClassifier`` of pairs with an entailment class, or its folder.
            labels: the labels, as words in the language of the texts.
            template: the hypothesis; ``{}`` is replaced by the label.
            multi_label: whether each label is predicted separately, entailment against contradiction;
                otherwise the probabilities of a text's labels sum to 1.

        Raises:
            ConfigError: a model of single texts, or without the required classes; a template without ``{}``.
            DataError: no labels, or a duplicate label.
        """
        clf = model
        if isinstance(model, str | Path):
            from glassformer.tasks.load import load

            clf = load(model)
        if not isinstance(clf, TextClassifier) or clf.pairs_ is False:
            where = str(model) if isinstance(model, str | Path) else type(clf).__name__
            what = "labels to choose from are only for entailment models (zero-shot)"
            if isinstance(clf, TextClassifier):
                what += f", and this one classifies texts as {listed(list(map(str, clf.classes_)))}"
            fix = "Leave the labels out, or name an entailment model: a classifier of pairs"
            raise NotForThisModelError(what, where=where, fix=fix)
        names = [str(label).lower() for label in clf.classes_.tolist()]
        self.entailment = _class_of(names, (ENTAILS,), clf)
        self.against = _against(names, self.entailment, clf) if multi_label or len(labels) == 1 else None
        if isinstance(labels, str) or not labels:
            raise ConfigError("no list of labels", where="labels", fix='Give ["sports", "politics"]')
        if template.count("{}") != 1:
            what = f"{template!r} has no one place for the label"
            raise ConfigError(what, where="template", fix=f"Write it as {TEMPLATE!r}")
        self.classifier, self.template, self.multi_label = clf, template, multi_label
        self.classes_ = np.asarray(check_class_names(read_rows(labels, "labels", "labels"), "labels"))

    @property
    def max_length(self) -> int:
        """Maximum number of tokens of a text and a hypothesis together."""
        return self.classifier.max_length

    def hypothesis(self, label: str) -> str:
        """The hypothesis for a label."""
        return self.template.replace("{}", label)

    def _pairs(self, texts: Sequence[str]) -> list[TextPair]:
        return [TextPair(text, self.hypothesis(label)) for text in texts for label in self.classes_.tolist()]

    def _table(self, texts: Sequence[str]) -> Any:
        clf = self.classifier
        table = encode_pairs(
            clf.tokenizer_,
            self._pairs(texts),
            max_length=clf.max_length,
            clean=clf.clean,  # type: ignore[arg-type]  # checked by its fit
            add_special_tokens=clf.add_special_tokens,
            keep_second=True,
        )
        kinds = getattr(clf.model_.config.embedding, "segments", 0)
        return table if kinds > 1 else without_segments(table)

    def logits(self, X: Sequence[str], *, progress: Callable[[int], None] | None = None) -> np.ndarray:
        """Logits of the model's classes (entailment ...) for each text and label, ``[n, K, C]``, fp32."""
        texts, clf = check_texts(X), self.classifier
        model = clf.predictor()
        rows = partial(clf.table_rows, model, what="logits", device=next(model.parameters()).device)
        out = []
        with computing(clf.threads):
            for start in range(0, len(texts), TEXTS):
                part = texts[start : start + TEXTS]
                table = self._table(part)
                out.append(rows(Windows(table, len(table))).reshape(len(part), len(self.classes_), -1))
                if progress is not None:
                    progress(len(part))
        return finite(np.concatenate(out), "logits")

    def predict_proba(self, X: Sequence[str], *, progress: Callable[[int], None] | None = None) -> np.ndarray:
        """Probabilities ``[n, K]``, fp64, which sum to 1 per text; with ``multi_label`` of each label."""
        logits = self.logits(X, progress=progress)
        if self.against is None:
            return softmax(logits[:, :, self.entailment], self.classifier.temperature_)
        both = logits[:, :, [self.against, self.entailment]].reshape(-1, 2)
        return softmax(both, self.classifier.temperature_)[:, 1].reshape(logits.shape[:2])

    outputs = predict_proba  # the name of this method in all supervised estimators

    def chosen(self, probabilities: np.ndarray) -> np.ndarray:
        """The index of the most probable label of each row ``[n]``."""
        return self.kind_.predicted_index(probabilities)

    def decide(self, probabilities: np.ndarray) -> np.ndarray:
        """The most probable label of each row ``[n]``."""
        return self.kind_.labels(self.chosen(probabilities), self.classes_)

    def predict(self, X: Sequence[str]) -> np.ndarray:
        """The most probable label of each text ``[n]``."""
        return self.decide(self.predict_proba(X))

    def truncated(self, X: Sequence[str]) -> np.ndarray:
        """Which texts are truncated, ``[n]`` bool; hypotheses never are."""
        return self._table(check_texts(X)).truncated.reshape(-1, len(self.classes_)).any(1)

    def explain(self, text: str, label: str | None = None, **options: Any) -> Any:
        """Explain whether the hypothesis of a label follows from a text: an ``Explanation`` of that pair.

        Args:
            label: the label to explain; None: the predicted one.
            options: arguments of ``TextClassifier.explain``; the default target is entailment.
        """
        from glassformer.explain.methods import METHODS, takes_target

        chosen = str(self.predict([text])[0]) if label is None else label
        method = options.setdefault("method", "occlusion")
        if method in METHODS and takes_target(method):
            options.setdefault("target", self.classifier.classes_.tolist()[self.entailment])
        return self.classifier.explain((text, self.hypothesis(chosen)), **options)


def _class_of(names: Sequence[str], beginnings: Sequence[str], clf: TextClassifier) -> int:
    """The index of the only class whose name starts with one of ``beginnings``."""
    found = [i for i, name in enumerate(names) if name.startswith(tuple(beginnings))]
    if len(found) != 1:
        what = f"no one class of entailment among {', '.join(map(str, clf.classes_.tolist()))}"
        fix = "Take a model of entailment, whose classes are called entailment, neutral and contradiction"
        raise NotForThisModelError(what, where="model", fix=fix)
    return found[0]


def _against(names: Sequence[str], entailment: int, clf: TextClassifier) -> int:
    found = [i for i, name in enumerate(names) if name.startswith(AGAINST)]
    if len(found) == 1:
        return found[0]
    if len(names) == 2:
        return 1 - entailment
    what = f"no one class of contradiction among {', '.join(map(str, clf.classes_.tolist()))}"
    raise NotForThisModelError(what, where="model", fix="Take a model with one, or leave multi_label out")
