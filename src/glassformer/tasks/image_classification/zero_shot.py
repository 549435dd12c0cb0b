"""Zero-shot image classification by the names of the classes.

CLIP (Radford et al., 2021) compares the vector of an image with those of "a photo of a cat.", "a photo of a
dog." and so on. The vectors of the labels are the rows of a linear head, so that the model reads each image
once for all labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.checkpoints.hub import resolve_checkpoint
from glassformer.data.text import encode
from glassformer.data.tokenizer_file import TOKENIZER_FILE, load_tokenizer
from glassformer.errors import ConfigError, NotForThisModelError, NoTokenizerError
from glassformer.evaluate.predict import predict_rows
from glassformer.families.image_text import load_image_text
from glassformer.inputs.images import Images
from glassformer.models.image_text import ImageTextModel
from glassformer.tasks.image_classification.estimator import ImageClassifier
from glassformer.tasks.text_classification.zero_shot import ZeroShot, check_candidate_labels, check_template

PHOTO = "a photo of a {}."


def label_vectors(
    model: ImageTextModel, tokenizer: Any, labels: Sequence[str], templates: Sequence[str]
) -> Tensor:
    """The mean vector of each label over the templates, ``[K, E]`` of length 1 (Radford et al., 3.1.4)."""
    texts = [template.replace("{}", label) for label in labels for template in templates]
    table = encode(tokenizer, texts, max_length=model.config.text.embedding.max_positions)
    rows = predict_rows(
        model, table, lambda _, batch: model.text_vectors(batch.ids, packing=batch.packing)
    )  # [K * templates, E]
    return F.normalize(torch.from_numpy(rows).unflatten(0, (len(labels), -1)).mean(1), dim=1)


@torch.no_grad()
def classifier_of(
    folder: str | Path, labels: Sequence[str], templates: Sequence[str] = (PHOTO,)
) -> ImageClassifier:
    """A classifier whose head has the label vectors as rows, scaled as CLIP scales cosines.

    Raises:
        CheckpointError: the folder is not of both halves of CLIP, or lacks its tokenizer or preprocessor.
    """
    path, _, _ = resolve_checkpoint(folder)
    model = load_image_text(path)
    if not (path / TOKENIZER_FILE).is_file():  # vocab.json is read as another tokenizer's
        fix = "Write it with transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
        raise NoTokenizerError(f"holds no {TOKENIZER_FILE}", where=str(path), fix=fix)
    clf = ImageClassifier(str(path))
    clf.read_parts(path, {})
    network = model.image.with_head(head="classification", num_labels=len(labels)).eval()
    classes = np.unique(labels)
    vectors = label_vectors(model, load_tokenizer(path), classes.tolist(), templates)
    network.head.out.weight.copy_(model.logit_scale.exp() * vectors)
    network.head.out.bias.zero_()
    network.weights_source += ", head of label vectors"
    clf._with_parts(
        network, classes=classes, class_order=None, kind=ZeroShot.kind_, temperature=1.0, threshold=None
    )
    clf.check_parts(path)
    return clf


class ZeroShotImageClassifier(ZeroShot):
    """Classifies images by the names of labels, without training, with CLIP.

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
            model: the folder or Hub id of a CLIP model, such as "openai/clip-vit-base-patch32".
            labels: the labels, as words in the language of the model.
            template: a text whose ``{}`` is replaced by the label, or several, whose vectors are averaged;
                None: "a photo of a {}.".

        Raises:
            CheckpointError: the model cannot be read, or is not of both halves of CLIP.
            ConfigError: a template without ``{}``, or a single label.
            DataError: a duplicate label.
        """
        self.classes_ = check_candidate_labels(labels)
        if len(self.classes_) == 1:
            what = "CLIP only compares labels with each other"
            raise NotForThisModelError(what, where="labels", fix="Give two labels or more")
        templates = [PHOTO] if template is None else template
        templates = [templates] if isinstance(templates, str) else templates
        self.templates = tuple(check_template(text, PHOTO) for text in templates)
        if not self.templates:
            raise ConfigError("no template", where="template", fix=f"Write it as {PHOTO!r}")
        self.classifier = classifier_of(model, self.classes_.tolist(), self.templates)
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
        """An ``Explanation`` of an image: why it is near to the label.

        Args:
            label: the label to explain; None: the predicted one.
            options: arguments of ``ImageClassifier.explain``.
        """
        return self.classifier.explain(image, target=label, **options)
