"""``ImageRegressor``: a number for an image, and an interval around it.

All but its targets is as in ``ImageClassifier``.
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

    The parameters are the keys of a recipe's ``image``, ``model`` and ``train`` sections; its file says what
    each means. Numbers are standardized for training; answers have the unit of ``y``. ``score`` is R².
    Fitted state: that of ``ImageModel`` and of ``Regressor``.
    """

    RECIPE = ImageNumberRecipe
