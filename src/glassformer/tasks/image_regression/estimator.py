"""``ImageRegressor``: predict a number for an image, with an interval.

Everything except the targets works as in ``ImageClassifier``.
"""

from __future__ import annotations

from glassformer.tasks.estimator import with_settings
from glassformer.tasks.image_classification.estimator import ImageModel
from glassformer.tasks.image_regression.recipe import ImageNumberFitConfig, ImageNumberRecipe
from glassformer.tasks.regressor import Regressor


@with_settings
class ImageRegressor(Regressor, ImageModel, ImageNumberFitConfig):
    """A Transformer that predicts numbers from images: PIL images, paths, bytes, open files, uint8 arrays
    ``[H, W, C]`` or tensors ``[C, H, W]``.

    The parameters are the keys of a recipe's sections ``image``, ``model`` and ``train``; ``recipe.py``
    explains them. Targets are standardized for training; predictions have the unit of ``y``. ``score`` is R².
    Fitted attributes: those of ``ImageModel`` and of ``Regressor``.
    """

    RECIPE = ImageNumberRecipe
