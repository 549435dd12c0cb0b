"""Attention maps of a run folder for the report."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from glassformer.errors import DataError
from glassformer.explain.attention import rollout
from glassformer.explain.view import Answer, Numbers, View, image_view, text_view
from glassformer.report.images import data_uri

MAX_PAYLOAD = 2_000_000  # maximum characters of encoded maps in one page


def encode(maps: np.ndarray) -> str:
    """Weights ``[L, H, T, T]`` as base64, one byte each; the square root keeps small weights distinct."""
    return base64.b64encode(np.rint(255 * np.sqrt(np.clip(maps, 0, 1))).astype(np.uint8).tobytes()).decode()


def attention_views(examples: list[dict[str, Any]]) -> tuple[list[View], int]:
    """The views that fit into a page, and the number of examples that do not fit."""
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
    numbers = Numbers(
        rows,
        rollout_row if rollout_row.size else None,
        flow=None if maps is None else rollout(maps),
        maps=maps,
        max_pairs=max_pairs * 3 // 4,
    )
    answer = Answer(
        str(example.get("predicted", "")), float(example["probability"]), str(example.get("label", ""))
    )
    if "png" in example:
        (width, height), (gh, gw) = example["size"], example["grid"]
        url = data_uri(example["png"], "maps.json")
        return image_view(url, (int(width), int(height)), (int(gh), int(gw)), numbers, answer)
    words = np.asarray(example["words"], int) if "words" in example else None
    return text_view(example["text"], example["tokens"], example["offsets"], numbers, answer, words)


def _decode(text: str | None, shape: tuple[int, ...]) -> np.ndarray | None:
    if not text:
        return None
    flat = (np.frombuffer(base64.b64decode(text), np.uint8) / 255.0) ** 2
    maps = flat.reshape(*shape, shape[-1])  # [L, H, T, T]
    return maps / np.maximum(maps.sum(-1, keepdims=True), 1e-9)
