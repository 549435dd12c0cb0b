"""Export an estimator of any task as a Hugging Face or ONNX folder."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from glassformer.tasks.card import card_of, run_around


def export(
    clf: Any, form: str, folder: Path, samples: list[Any], *, run: str | Path | None = None, **options: Any
) -> dict[str, Any]:
    """Export an estimator, check the export on ``samples``, and return the results of the check.

    Args:
        form: ``hf`` or ``onnx``.
        run: the run that the estimator comes from, for the model card of the ``hf`` form.
        options: arguments of ``export_onnx``.
    """
    from glassformer.export.hf_folder import export_hf
    from glassformer.export.onnx_folder import export_onnx

    if form == "hf":
        return export_hf(
            clf, folder, samples, partial(card_of, clf, None if run is None else run_around(run))
        )
    return export_onnx(clf, folder, samples, **options)
