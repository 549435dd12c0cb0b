"""``TextRegressor``: predict a number for a text or a pair of texts, with an interval.

Everything except the targets works as in ``TextClassifier``.
"""

from __future__ import annotations

from glassformer.tasks.estimator import with_settings
from glassformer.tasks.regressor import Regressor
from glassformer.tasks.text_classification.estimator import TextModel
from glassformer.tasks.text_regression.recipe import TextNumberFitConfig, TextNumberRecipe


@with_settings
class TextRegressor(Regressor, TextModel, TextNumberFitConfig):
    """A Transformer that predicts numbers for texts, or pairs of texts.

    A pair is a tuple of two texts, which the model reads together: ``fit([(first, second), ...], y)``.

    The parameters are the keys of a recipe's sections ``text``, ``model`` and ``train``; ``recipe.py``
    explains them. Targets are standardized for training; predictions have the unit of ``y``. ``score`` is R².
    Fitted attributes: those of ``TextModel`` and of ``Regressor``.
    """

    RECIPE = TextNumberRecipe
