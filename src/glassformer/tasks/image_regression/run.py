"""Numbers of images: what is particular to their runs.

A run leaves ``predictions.csv`` and ``numbers.json`` (points of the figures, the examples furthest off)
beside what every run leaves.
"""

from glassformer.targets.regression import Numbers, as_baseline, mean_number, pixel_ridge
from glassformer.tasks.image_regression.estimator import ImageRegressor
from glassformer.tasks.image_regression.recipe import ImageNumberRecipe
from glassformer.tasks.labelled import labelled, show_numbers

TASK = labelled(
    "image-regression",
    ImageNumberRecipe,
    ImageRegressor,
    Numbers(),
    label_of=lambda image: float(image.mean()),  # how bright is it?
    report="numbers",
    collect_artifacts=show_numbers,
    baselines=(mean_number, as_baseline(pixel_ridge)),
)
