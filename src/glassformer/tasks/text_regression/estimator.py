"""``TextRegressor``: a number for a text, or for a pair of texts, and an interval around it.

All but its targets is as in ``TextClassifier``.
"""

from __future__ import annotations

from glassformer.tasks.estimator import with_settings
from glassformer.tasks.regressor import Regressor
from glassformer.tasks.text_classification.estimator import TextModel
from glassformer.tasks.text_regression.recipe import TextNumberFitConfig, TextNumberRecipe


@with_settings
class TextRegressor(Regressor, TextModel, TextNumberFitConfig):
    """A Transformer that gives texts, or pairs of texts, numbers.

    A pair is a tuple of two texts, and the model reads both at once: ``fit([(first, second), ...], y)``.

    The parameters are the keys of a recipe's ``text``, ``model`` and ``train`` sections; its file says what
    each means. Numbers are standardized for training; answers have the unit of ``y``. ``score`` is R².
    Fitted state: that of ``TextModel`` and of ``Regressor``.
    """

    RECIPE = TextNumberRecipe
