"""Runs of regression on images.

In addition to the files of every run, these write ``predictions.csv`` and ``numbers.json`` (points of the
plots, and the examples with the largest errors).
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
    label_of=lambda image: float(image.mean()),
    report="numbers",
    collect_artifacts=show_numbers,
    baselines=(mean_number, as_baseline(pixel_ridge)),
)
