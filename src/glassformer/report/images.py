"""Thumbnails, image grids and attention maps of reports.

Thumbnails are encoded again, because bytes of a user's file must not reach a browser.
"""

from __future__ import annotations

import base64
import binascii
import io
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.data.image import ImageRange, open_image
from glassformer.errors import DataError
from glassformer.explain.attention import rollout
from glassformer.explain.view import Numbers, Prediction, View, image_view, text_view
from glassformer.process import without_warnings

SIDE = 96  # pixels of a thumbnail's longer side
LINE_WIDTH = 29  # maximum number of characters per line above an image of the grid
MAX_CHARACTERS = 60_000  # maximum number of characters of an encoded thumbnail
_PNG_HEADER = b"\x89PNG\r\n\x1a\n"


def thumbnail(source: Any, side: int = SIDE, image_range: ImageRange = "full") -> str:
    """An image as a small PNG in base64; smaller images are enlarged without smoothing."""
    from PIL import Image

    image = open_image(source, image_range=image_range)
    scale = side / max(image.size)
    size = tuple(max(1, round(n * scale)) for n in image.size)
    resampling = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.LANCZOS
    file = io.BytesIO()
    image.resize((size[0], size[1]), resampling).quantize(128).save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def data_uri(png: Any, where: str = "pictures.json") -> str:
    """A thumbnail as ``data:image/png;base64,...``."""
    try:
        content = base64.b64decode(png, validate=True) if png and len(png) <= MAX_CHARACTERS else b""
    except (TypeError, ValueError, binascii.Error):
        content = b""
    if not content.startswith(_PNG_HEADER):
        raise DataError("an image is not a small PNG", where=where, fix="Evaluate the run again")
    return f"data:image/png;base64,{png}"


def with_data_uris(images: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The content of ``pictures.json`` with every thumbnail as a data URI."""
    out = {}
    for group in ("examples", "mistakes"):
        try:
            out[group] = [
                {
                    **{key: str(example[key]) for key in ("name", "label", "predicted")},
                    "probability": float(example["probability"]),
                    "uri": data_uri(example["png"]),
                }
                for example in images.get(group) or []
            ]
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{group} cannot be shown ({error})", where="pictures.json") from None
    return out


def draw_grid(
    path: Path,
    images: Sequence[Any],
    examples: Sequence[dict[str, Any]],
    columns: int = 5,
    image_range: ImageRange = "full",
) -> None:
    """Write a PNG file with a grid of images; the true and the predicted label are above each image."""
    from matplotlib.figure import Figure

    rows = -(-len(images) // columns)
    figure = Figure((1.9 * columns, 2.25 * rows), layout="constrained", dpi=110)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes:
        axis.set_axis_off()
    for axis, source, example in zip(axes, images, examples, strict=False):
        image = open_image(source, image_range=image_range)
        axis.imshow(image, interpolation="nearest" if max(image.size) < 64 else "antialiased")
        is_right = example["label"] == example["predicted"]
        lines = f"true: {example['label']}", f"predicted: {example['predicted']}"
        title = "\n".join(textwrap.fill(line, LINE_WIDTH) for line in lines)
        axis.set_title(title, fontsize=8.5, color="#1a6b3c" if is_right else "#b3261e", parse_math=False)
    # matplotlib draws boxes for characters that the font lacks; its warnings about them are hidden.
    with without_warnings(message="Glyph .* missing from"):
        figure.savefig(path, format="png", metadata={"Software": None})


# --- attention maps -------------------------------------------------------------------------------

MAX_PAYLOAD = 2_000_000  # maximum number of characters of all encoded maps in one page


def encode(maps: np.ndarray) -> str:
    """Attention weights ``[L, H, T, T]`` as base64 with one byte each.

    The bytes encode the square roots of the weights, because small weights are then distinct.
    """
    return base64.b64encode(np.rint(255 * np.sqrt(np.clip(maps, 0, 1))).astype(np.uint8).tobytes()).decode()


def attention_views(examples: list[dict[str, Any]]) -> tuple[list[View], int]:
    """Views of the attention maps of examples, as many as fit into a page; and the number that do not fit."""
    views: list[View] = []
    size = 0
    for number, example in enumerate(examples, start=1):
        try:
            view = _view(example, MAX_PAYLOAD // len(examples))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise DataError(f"example {number} cannot be drawn ({error})", where="maps.json") from None
        if views and view.data["shape"][:2] != views[0].data["shape"][:2]:
            raise DataError(
                f"the layers and heads of example {number} differ from the first example", where="maps.json"
            )
        size += sum(len(view.data[key]) for key in ("rows", "flow", "pairs")) + len(view.picture)
        if size > MAX_PAYLOAD:
            return views, len(examples) - len(views)
        views.append(view)
    return views, 0


def _view(example: dict[str, Any], max_pairs: int) -> View:
    rows = np.asarray(example["cls_rows"], np.float64)  # [L, H, T]
    rollout_row = np.asarray(example.get("rollout") or [], np.float64)
    maps = _decode(example.get("maps"), rows.shape)
    flow = None if maps is None else rollout(maps)
    row = rollout_row if rollout_row.size else None
    numbers = Numbers(rows, row, flow=flow, maps=maps, max_pairs=max_pairs * 3 // 4)
    predicted, label = (str(example.get(key, "")) for key in ("predicted", "label"))
    prediction = Prediction(predicted, float(example["probability"]), label)
    if "png" in example:
        (width, height), (grid_rows, grid_columns) = example["size"], example["grid"]
        size, grid = (int(width), int(height)), (int(grid_rows), int(grid_columns))
        return image_view(data_uri(example["png"], "maps.json"), size, grid, numbers, prediction)
    words = np.asarray(example["words"], int) if "words" in example else None
    return text_view(example["text"], example["tokens"], example["offsets"], numbers, prediction, words)


def _decode(text: str | None, shape: tuple[int, ...]) -> np.ndarray | None:
    """The inverse of ``encode``, for a ``shape`` [L, H, T]; each row is normalized to sum 1."""
    if not text:
        return None
    flat = (np.frombuffer(base64.b64decode(text), np.uint8) / 255.0) ** 2
    maps = flat.reshape(*shape, shape[-1])  # [L, H, T, T]
    return maps / np.maximum(maps.sum(-1, keepdims=True), 1e-9)
