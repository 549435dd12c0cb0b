"""Zero-shot classification of texts and images by the names of the classes.

An entailment model predicts whether "This example is sports." follows from a text. It reads each text with
one such hypothesis per label (Yin, Hay and Roth, 2019). Any classifier of text pairs with an entailment class
can be used.

A sentence encoder compares the vector of a text with those of "This text is about sports.", "This text is
about politics." and so on. CLIP (Radford et al., 2021) and SigLIP (Zhai et al., 2023) compare an image with
"a photo of a cat.", "a photo of a dog." and so on. The vectors of the labels are the rows of a linear head,
so that these models read each text or image once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.checkpoints.hub import resolve_checkpoint
from glassformer.config import join_names
from glassformer.data.checks import check_class_names, check_texts
from glassformer.data.in_memory import read_rows
from glassformer.data.text import TokenTable, Windows, encode
from glassformer.data.text_pairs import TextPair, encode_pairs, without_segments
from glassformer.data.tokenizer_file import TOKENIZER_FILE, load_tokenizer, padding_id
from glassformer.errors import ConfigError, NotForThisModelError, NoTokenizerError
from glassformer.evaluate.predict import predict_rows, softmax
from glassformer.families.image_text import load_image_text
from glassformer.finite import finite
from glassformer.inputs.images import Images
from glassformer.inputs.texts import Texts
from glassformer.models.image_text import ImageTextModel
from glassformer.runtime import isolated_torch
from glassformer.targets.multiclass import Classes
from glassformer.tasks.image_classification.estimator import ImageClassifier
from glassformer.tasks.similarity.estimator import Embedder
from glassformer.tasks.text_classification.estimator import ENTAILS, TextClassifier
from glassformer.tasks.text_classification.few_shot import equivalent_pooling

ENTAILMENT_TEMPLATE = "This example is {}."
ENCODER_TEMPLATE = "This text is about {}."
PHOTO_TEMPLATE = "a photo of a {}."
TEMPERATURE = 0.05  # of the softmax over cosines of sentence encoders
CONTRADICTS = ("contra", "not_entail", "not entail")  # beginnings of the names of a contradiction class
CHUNK_TEXTS = 1024  # number of texts that are encoded at a time


def classifier_from_embedder(
    embedder: Embedder, labels: Sequence[str], template: str = ENCODER_TEMPLATE
) -> TextClassifier:
    """A classifier whose head compares the vector of a text with those of the labels in the template.

    The label with the highest cosine is predicted. The logits are the cosines divided by ``TEMPERATURE``. A
    linear head cannot normalize the vector of the text, so they also contain the factor (length of the vector
    / mean length of the label vectors). Their mean over the labels is subtracted, so that explanations show
    only differences between labels.

    Raises:
        NotForThisModelError: classifiers do not support the pooling, or a layer after it, of the embedder.
    """
    sentences = embedder.open().model_.sentences
    pooling = equivalent_pooling(sentences, embedder.model)
    model = embedder.model_.with_head(head="classification", pooling=pooling, num_labels=len(labels)).eval()
    model.sentences, model.weights_source = sentences, embedder.weights_source_
    settings = {"model": embedder.model, "max_length": sentences.max_length, "pooling": pooling}
    settings |= {"precision": embedder.precision, "clean": embedder.clean}
    state = {"tokenizer": embedder.tokenizer_, "pairs": False, "n_features_in": 1, "truncated": 0}
    state |= dict.fromkeys(("adapter", "class_order", "threshold", "int8"))
    state |= {"kind": Classes(), "temperature": 1.0}
    clf = TextClassifier.from_parts(settings, model, classes=np.unique(labels), **state)
    sentences_of_labels = [template.replace("{}", str(label)) for label in clf.classes_.tolist()]
    vectors = torch.from_numpy(clf.embed(sentences_of_labels, head=True))
    lengths = vectors.norm(dim=1, keepdim=True)
    rows = vectors / lengths / (TEMPERATURE * lengths.mean())
    with torch.no_grad():
        model.head.out.weight.copy_(rows - rows.mean(0))
        model.head.out.bias.zero_()
    clf._compute_model = None
    return clf


def check_candidate_labels(labels: Any) -> np.ndarray:
    """Check the labels of a zero-shot classifier and return them as an array ``[K]``.

    Raises:
        ConfigError: the labels are not a list, or the list is empty.
        DataError: a label occurs twice, or is not a text.
    """
    if isinstance(labels, str) or not labels:
        raise ConfigError("no list of labels", where="labels", fix='Give ["sports", "politics"]')
    return np.asarray(check_class_names(read_rows(labels, "labels", "labels"), "labels"))


def check_template(template: str, example: str) -> str:
    """Return the template; raise ConfigError unless it has one ``{}``. The error shows the ``example``."""
    if template.count("{}") != 1:
        what = f"{template!r} does not have one {{}} for the label"
        raise ConfigError(what, where="template", fix=f"Write it as {example!r}")
    return template


class ZeroShot:
    """Base of zero-shot classifiers, which have ``classes_`` and ``predict_proba``."""

    kind_ = Classes()  # one label per example
    classes_: np.ndarray
    predict_proba: Callable[..., np.ndarray]

    def outputs(self, X: Sequence[Any], *, progress: Callable[[int], None] | None = None) -> np.ndarray:
        """Same as ``predict_proba``, under the name that ``Supervised`` has."""
        return self.predict_proba(X, progress=progress)

    def predicted_index(self, probabilities: np.ndarray) -> np.ndarray:
        """The index of the most probable label of each row ``[n]``."""
        return self.kind_.predicted_index(probabilities)

    def decide(self, probabilities: np.ndarray) -> np.ndarray:
        """The most probable label of each row ``[n]``."""
        return self.kind_.labels(self.predicted_index(probabilities), self.classes_)

    def predict(self, X: Sequence[Any]) -> np.ndarray:
        """The most probable label of each example ``[n]``."""
        return self.decide(self.predict_proba(X))


class ZeroShotClassifier(ZeroShot):
    """Classifies texts by the names of labels, without training.

    ``predict``, ``predict_proba`` and ``explain`` work as in a fitted ``TextClassifier``. ``classes_`` has
    the labels in your order. ``classifier`` is the entailment model; with a sentence encoder, it is a
    ``TextClassifier`` of the labels, which can be saved.
    """

    INPUTS = inputs = Texts()
    NOUN, RECIPE = INPUTS.noun, TextClassifier.RECIPE

    def __init__(
        self,
        model: Any,
        labels: Sequence[str],
        *,
        template: str | None = None,
        multi_label: bool = False,
    ):
        """Combine a model with labels.

        Args:
            model: a fitted ``TextClassifier`` of pairs with an entailment class, an ``Embedder``, the folder
                of one of these, or the name of a sentence encoder such as "all-minilm-l6-v2".
            labels: the labels, as words in the language of the texts.
            template: a sentence in which ``{}`` is replaced by the label. None: "This example is {}."; with a
                sentence encoder, "This text is about {}.".
            multi_label: predict each label separately, entailment against contradiction. Otherwise the
                probabilities of all labels sum to 1.

        Raises:
            ConfigError: the model is of another kind or has other classes, or the template has no ``{}``. A
                sentence encoder also needs two labels and does not support ``multi_label``.
            DataError: there are no labels, or a label occurs twice.
        """
        clf = model
        if isinstance(model, str | Path):
            from glassformer.tasks.load import load

            clf = load(model if Path(model).exists() else resolve_checkpoint(model).path)
        is_encoder = isinstance(clf, Embedder)
        if not is_encoder and (not isinstance(clf, TextClassifier) or clf.pairs_ is False):
            where = str(model) if isinstance(model, str | Path) else type(clf).__name__
            what = "labels to choose from are only for entailment models and sentence encoders (zero-shot)"
            if isinstance(clf, TextClassifier):
                what += f", and this one classifies texts as {join_names(list(map(str, clf.classes_)))}"
            fix = "Leave the labels out, or name an entailment model (a classifier of pairs) or an encoder"
            raise NotForThisModelError(what, where=where, fix=fix)
        self.classes_ = check_candidate_labels(labels)
        self.template = check_template(
            template or (ENCODER_TEMPLATE if is_encoder else ENTAILMENT_TEMPLATE), ENTAILMENT_TEMPLATE
        )
        self.multi_label = multi_label
        self.entailment: int | None = None  # index of the entailment class; None: a sentence encoder
        self.contradiction: int | None = None
        if is_encoder:
            if multi_label or len(labels) == 1:
                what = "a sentence encoder only compares labels with each other"
                fix = "Give two labels or more without multi_label, or name an entailment model"
                raise NotForThisModelError(what, where="labels", fix=fix)
            self.classifier = classifier_from_embedder(clf, self.classes_.tolist(), self.template)
            self.columns = np.searchsorted(self.classifier.classes_, self.classes_)  # its classes are sorted
            return
        self.classifier = clf
        names = list(map(str, clf.classes_.tolist()))
        fix = "Use an entailment model, with the classes entailment, neutral and contradiction"
        self.entailment = _find_class(names, (ENTAILS,), "entailment", fix)
        if multi_label or len(labels) == 1:
            has_contradiction = any(name.lower().startswith(CONTRADICTS) for name in names)
            if len(names) == 2 and not has_contradiction:
                self.contradiction = 1 - self.entailment
            else:
                fix = "Use a model with such a class, or leave multi_label out"
                self.contradiction = _find_class(names, CONTRADICTS, "contradiction", fix)

    @property
    def max_length(self) -> int:
        """Maximum number of tokens of a text; for entailment, of a text and its hypothesis."""
        return self.classifier.max_length

    def hypothesis(self, label: str) -> str:
        """The template with a label in it."""
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
        num_segments = getattr(clf.model_.config.embedding, "segments", 0)
        return table if num_segments > 1 else without_segments(table)

    def logits(self, X: Sequence[str], *, progress: Callable[[int], None] | None = None) -> np.ndarray:
        """Logits of the model's classes for each text and label, ``[n, K, C]``, fp32.

        With a sentence encoder, logits of the labels, ``[n, K]``.
        """
        texts, clf = check_texts(X), self.classifier
        if self.entailment is None:
            return clf.logits(texts)[:, self.columns]
        model = clf.predictor()
        compute = partial(clf.table_outputs, model, output="logits", device=next(model.parameters()).device)
        out = []
        with isolated_torch(clf.threads):
            for start in range(0, len(texts), CHUNK_TEXTS):
                chunk = texts[start : start + CHUNK_TEXTS]
                table = self._table(chunk)
                out.append(compute(Windows(table, len(table))).reshape(len(chunk), len(self.classes_), -1))
                if progress is not None:
                    progress(len(chunk))
        return finite(np.concatenate(out), "logits")

    def predict_proba(self, X: Sequence[str], *, progress: Callable[[int], None] | None = None) -> np.ndarray:
        """Probabilities ``[n, K]``, fp64. They sum to 1 per text, except with ``multi_label``."""
        if self.entailment is None:
            return self.classifier.predict_proba(check_texts(X), progress=progress)[:, self.columns]
        logits = self.logits(X, progress=progress)
        if self.contradiction is None:
            return softmax(logits[:, :, self.entailment], self.classifier.temperature_)
        both = logits[:, :, [self.contradiction, self.entailment]].reshape(-1, 2)
        return softmax(both, self.classifier.temperature_)[:, 1].reshape(logits.shape[:2])

    def truncated(self, X: Sequence[str]) -> np.ndarray:
        """Which texts are truncated, ``[n]`` bool. Hypotheses are never truncated."""
        if self.entailment is None:
            return self.classifier.truncated(check_texts(X))
        return self._table(check_texts(X)).truncated.reshape(-1, len(self.classes_)).any(1)

    def explain(self, text: str, label: str | None = None, **options: Any) -> Any:
        """Explain the prediction of a label by an ``Explanation``.

        An entailment model is explained on the text with the hypothesis, a sentence encoder on the text.

        Args:
            label: the label to explain; None: the predicted label.
            options: arguments of ``TextClassifier.explain``. The default method is occlusion, and the default
                target is entailment.
        """
        from glassformer.explain.methods import METHODS, takes_target

        label = str(self.predict([text])[0]) if label is None else label
        method = options.setdefault("method", "occlusion")
        x: Any = text if self.entailment is None else (text, self.hypothesis(label))
        target = label if self.entailment is None else self.classifier.classes_.tolist()[self.entailment]
        if method in METHODS and takes_target(method):
            options.setdefault("target", target)
        return self.classifier.explain(x, **options)


def _find_class(names: Sequence[str], beginnings: tuple[str, ...], what: str, fix: str) -> int:
    """The index of the only class whose name starts with one of ``beginnings``."""
    matches = [i for i, name in enumerate(names) if name.lower().startswith(beginnings)]
    if len(matches) != 1:
        what = f"expected one {what} class among {', '.join(names)}"
        raise NotForThisModelError(what, where="model", fix=fix)
    return matches[0]


def label_vectors(
    model: ImageTextModel,
    tokenizer: Any,
    labels: Sequence[str],
    templates: Sequence[str],
    padding: int | None = None,
) -> Tensor:
    """The mean vector of each label over the templates, ``[K, E]`` of length 1 (Radford et al., 3.1.4).

    Args:
        padding: id of the token that texts are padded with to the maximum length (SigLIP); None: no padding.
    """
    texts = [template.replace("{}", label) for label in labels for template in templates]
    longest = model.config.text.embedding.max_positions
    table = encode(tokenizer, texts, max_length=longest)
    if padding is not None:
        token_ids = (table[i].tolist() for i in range(len(table)))
        table = TokenTable.of([ids + [padding] * (longest - len(ids)) for ids in token_ids])

    def text_vectors(_: Any, batch: Any) -> Tensor:
        return model.text_vectors(batch.ids, packing=batch.packing)

    vectors = predict_rows(model, table, text_vectors)  # [K * templates, E]
    return F.normalize(torch.from_numpy(vectors).unflatten(0, (len(labels), -1)).mean(1), dim=1)


@torch.no_grad()
def classifier_from_image_text_model(
    folder: str | Path, labels: Sequence[str], templates: Sequence[str] = (PHOTO_TEMPLATE,)
) -> ImageClassifier:
    """A classifier of images whose head compares their vectors with those of the labels in the templates.

    The logits are the cosines, scaled as in the model. SigLIP computes the probability of each label as the
    sigmoid of its logit; here, a softmax compares the labels.

    Raises:
        CheckpointError: the folder is not of both halves of CLIP or SigLIP, or lacks its tokenizer or
            preprocessor.
    """
    path, _, _ = resolve_checkpoint(folder)
    model = load_image_text(path)
    is_padded = model.config.end_token == "last"
    if not is_padded and not (path / TOKENIZER_FILE).is_file():  # CLIP's vocab.json alone cannot be read
        fix = "Write it with transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
        raise NoTokenizerError(f"contains no {TOKENIZER_FILE}", where=str(path), fix=fix)
    clf = ImageClassifier(str(path))
    clf.read_parts(path, {})
    network = model.image.with_head(head="classification", num_labels=len(labels)).eval()
    classes = np.unique(labels)
    tokenizer = load_tokenizer(path)
    padding = padding_id(tokenizer, path) if is_padded else None
    vectors = label_vectors(model, tokenizer, classes.tolist(), templates, padding)
    network.head.out.weight.copy_(model.logit_scale.exp() * vectors)
    network.head.out.bias.fill_(0.0 if model.logit_bias is None else model.logit_bias)
    network.weights_source += ", head of label vectors"
    clf._with_parts(
        network, classes=classes, class_order=None, kind=ZeroShot.kind_, temperature=1.0, threshold=None
    )
    clf.check_parts(path)
    return clf


class ZeroShotImageClassifier(ZeroShot):
    """Classifies images by the names of labels, without training, with CLIP or SigLIP.

    ``predict``, ``predict_proba`` and ``explain`` work as in a fitted ``ImageClassifier``. ``classes_`` has
    the labels in your order. ``classifier`` is an ``ImageClassifier`` of the labels, which can be saved.
    """

    INPUTS = inputs = Images()
    NOUN, RECIPE = INPUTS.noun, ImageClassifier.RECIPE

    def __init__(
        self, model: str | Path, labels: Sequence[str], *, template: str | Sequence[str] | None = None
    ):
        """Combine a model with labels.

        Args:
            model: the folder or Hub id of a CLIP or SigLIP model, such as "openai/clip-vit-base-patch32".
            labels: the labels, as words in the language of the model.
            template: a text whose ``{}`` is replaced by the label, or several, whose vectors are averaged;
                None: "a photo of a {}.".

        Raises:
            CheckpointError: the model cannot be read, or is not of both halves of CLIP or SigLIP.
            ConfigError: a template without ``{}``, or a single label.
            DataError: a duplicate label.
        """
        self.classes_ = check_candidate_labels(labels)
        if len(self.classes_) == 1:
            what = "a zero-shot classifier only compares labels with each other"
            raise NotForThisModelError(what, where="labels", fix="Give two labels or more")
        templates = [PHOTO_TEMPLATE] if template is None else template
        templates = [templates] if isinstance(templates, str) else templates
        self.templates = tuple(check_template(text, PHOTO_TEMPLATE) for text in templates)
        if not self.templates:
            raise ConfigError("no template", where="template", fix=f"Write it as {PHOTO_TEMPLATE!r}")
        self.classifier = classifier_from_image_text_model(model, self.classes_.tolist(), self.templates)
        self.columns = np.searchsorted(self.classifier.classes_, self.classes_)  # its classes are sorted

    @property
    def transform_(self) -> Any:
        """The preprocessing of images (``ImageTransform``)."""
        return self.classifier.transform_

    def logits(self, X: Sequence[Any]) -> np.ndarray:
        """Scaled cosines of each image with each label, ``[n, K]``, fp32."""
        return self.classifier.logits(X)[:, self.columns]

    def predict_proba(self, X: Sequence[Any], *, progress: Callable[[int], None] | None = None) -> np.ndarray:
        """Probabilities ``[n, K]``, fp64: a softmax of the logits."""
        return self.classifier.outputs(X, progress=progress)[:, self.columns]

    def explain(self, image: Any, label: str | None = None, **options: Any) -> Any:
        """Explain the prediction of a label for an image by an ``Explanation``.

        Args:
            label: the label to explain; None: the predicted one.
            options: arguments of ``ImageClassifier.explain``.
        """
        return self.classifier.explain(image, target=label, **options)
