"""Comparison of a checkpoint's outputs with those of ``transformers``.

``transformers`` opens the checkpoint, and glassformer's export of it. Only this module
imports ``transformers``, and only if it is installed. In all cases, the code of the model family is compared
with recorded outputs of ``transformers`` for small random models (``recorded/``, written by
``tests/parity/record.py``).
"""

from __future__ import annotations

import importlib.util
import json
import math
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from glassformer.checkpoints.files import file_sha256, read_json
from glassformer.checkpoints.hub import resolve_checkpoint
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.data.text import encode
from glassformer.data.tokenizer_file import load_tokenizer
from glassformer.errors import CheckpointError, InputError, NotForThisModelError
from glassformer.families.pretrained import Checkpoint, load_pretrained, read_checkpoint, save_pretrained
from glassformer.finite import json_text
from glassformer.nn.trace import Trace
from glassformer.packing import Packing
from glassformer.runtime import isolated_torch, versions

FILE, FORMAT = "proof.json", 1
TOLERANCE = 1e-4  # maximum difference, relative to the largest value of an output
RECORDED_TOLERANCE = 1e-5  # the same for small random models
MIN_TOLERANCE = 1e-5  # minimum of the absolute tolerance
RECORDED = Path(__file__).parent / "recorded"
WEIGHTS = ("model*.safetensors", "head*.safetensors", "pytorch_model*.bin")
STEPS = 4  # number of steps of the progress bar
MAX_TOKENS = 512  # maximum length of a text
TEXTS = (
    "A man is eating food.",
    "x",
    "Zürich, naïve café: 3.5 % of 1,000 people (“some” say 4)…",
    "Một con chó chạy 🐕 на снегу 東京",
    "The quick brown fox jumped over the lazy dog, which did not mind. " * 9,
    "Every sentence is read as a sequence of tokens, and each token sees all others; " * 60,
)
Progress = Callable[[int], Any]


@dataclass(frozen=True)
class Batch:
    """Inputs for both libraries: ids ``[B, T]`` with mask and token types, or pixels ``[B, C, H, W]``."""

    ids: Tensor
    mask: Tensor | None = None  # None: ``ids`` are pixels
    segments: Tensor | None = None  # None: all 0

    @torch.inference_mode()
    def ours(self, model: Any) -> dict[str, Tensor]:
        """The outputs of a model of glassformer; outputs per token are ``[N, D]``, without padding."""
        trace = Trace(hidden_states=True)
        if self.mask is None:
            out = model(self.ids, trace=trace)
        else:
            segments = None if self.segments is None else self.segments[self.mask]
            packing = Packing(tuple(self.mask.sum(1).tolist()))
            out = model(self.ids[self.mask], token_type_ids=segments, packing=packing, trace=trace)
        if model.config.head is not None and model.config.pooling != "pooler":
            out.pooler_output = None  # it is the input of the head, not the output of a pooler
        return self._outputs(out.trace.hidden_states, out, out)

    @torch.inference_mode()
    def theirs(self, model: Any) -> dict[str, Tensor]:
        """The outputs of a model of ``transformers``, in the same shapes."""
        inputs = [self.ids] if self.mask is None else [self.ids, self.mask.long()]
        segments = {} if self.segments is None else {"token_type_ids": self.segments}
        encoder = getattr(model, "vision_model", model.base_model)
        base = encoder(*inputs, output_hidden_states=True, **segments)
        out = base if encoder is model else model(*inputs, **segments)
        if hasattr(out, "start_logits"):
            out.logits = torch.stack([out.start_logits, out.end_logits], 2)
        return self._outputs(base.hidden_states, base, out)

    def _outputs(self, states: Any, encoder: Any, head: Any) -> dict[str, Tensor]:
        outputs = {
            "hidden states": torch.stack([self._rows(state) for state in states[:-1]]),
            "last hidden state": self._rows(encoder.last_hidden_state),
            "pooler": getattr(encoder, "pooler_output", None),
            "next sentence": getattr(head, "seq_relationship_logits", None),
        }
        for name in ("prediction_logits", "logits"):
            if (logits := getattr(head, name, None)) is not None:
                outputs["logits"] = self._rows(logits)
        return {name: tensor.float() for name, tensor in outputs.items() if tensor is not None}

    def _rows(self, x: Tensor) -> Tensor:
        return x[self.mask] if self.mask is not None and x.ndim == 3 else x


def differences(
    ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], tolerance: float
) -> Iterator[dict[str, Any]]:
    """Yield a record per output; a pooler that only ``transformers`` has is random, and is left out."""
    for name, expected in theirs.items():
        if name == "pooler" and name not in ours:
            continue
        output, largest = ours[name], float(expected.abs().max())
        difference = float((output - expected).abs().max()) if output.shape == expected.shape else math.inf
        allowed = max(tolerance * largest, MIN_TOLERANCE)
        record = {
            "output": name,
            "shape": list(expected.shape),
            "largest_value": largest,
            "tolerance": allowed,
        }
        yield record | {"largest_difference": difference, "within": difference <= allowed}


# --- the certificate --------------------------------------------------------------------------------


@isolated_torch()
def prove(
    name: str | Path, revision: str | None = None, progress: Progress = lambda n: None
) -> dict[str, Any]:
    """Compare a checkpoint (a folder, a name or a Hub id) with ``transformers``; returns the certificate.

    Returns:
        A dict with ``verdict`` ("equal", "different", or "weights not compared" without ``transformers``),
        ``outputs`` (a record per output; ``way`` is ``opened`` for the checkpoint, ``exported`` for our
        export of it), ``recorded`` (the comparison with recorded outputs), ``weights`` (the SHA-256 of each
        file) and ``sentences`` (a summary).

    Raises:
        CheckpointError: glassformer or ``transformers`` cannot read the checkpoint.
        NotForThisModelError: the checkpoint has a layout that ``transformers`` does not have.
    """
    folder, source, _ = resolve_checkpoint(name, revision)
    checkpoint = read_checkpoint(folder)
    kind = checkpoint.family.model_type
    if checkpoint.family.hub is None:
        what = f"its layout ({kind}) only exists in glassformer, so transformers cannot open it"
        fix = "Name a checkpoint in the Hub's layout"
        raise NotForThisModelError(what, where=str(name), fix=fix)
    certificate: dict[str, Any] = {
        "format": FORMAT,
        "model": folder.name if source.startswith("local folder") else source,
        "model_type": kind,
        "weights": weight_sums(folder),
        "stored_as": sorted({str(t.dtype).removeprefix("torch.") for t in checkpoint.tensors.values()}),
        "computed_in": "float32",
        "versions": versions("transformers"),
        "date": datetime.now(UTC).date().isoformat(),
        "recorded": compare_recorded(kind),
    }
    progress(1)
    is_installed = importlib.util.find_spec("transformers") is not None
    if is_installed:
        certificate |= _compare_weights(checkpoint, progress)
    records = [*certificate.get("outputs", ()), certificate["recorded"]]
    is_equal = all(record["within"] for record in records if record)
    is_equal &= certificate.get("inputs", {}).get("token_ids") != "different"
    verdict = "different" if not is_equal else "equal" if is_installed else "weights not compared"
    return certificate | {"verdict": verdict, "sentences": list(_sentences(certificate, verdict))}


def weight_sums(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file of weights."""
    return {file.name: file_sha256(file) for pattern in WEIGHTS for file in sorted(folder.glob(pattern))}


def valid_sentences(folder: Path) -> list[str]:
    """The sentences of the certificate in a folder; empty if it is missing or was made for other weights."""
    try:
        certificate = read_json(folder / FILE)
    except InputError:
        return []
    sentences = certificate.get("sentences") if certificate.get("weights") == weight_sums(folder) else None
    return list(map(str, sentences)) if isinstance(sentences, list) else []


def _sentences(certificate: dict[str, Any], verdict: str) -> Iterator[str]:
    if "outputs" in certificate:
        library = f"transformers {certificate['versions']['transformers']} ({certificate['opens_as']})"
        worst = max(certificate["outputs"], key=lambda r: r["largest_difference"] / r["tolerance"])
        difference = f"{worst['largest_difference']:.1e} where values reach {worst['largest_value']:.2g}"
        yield f"{verdict}: {library} opens the folder and our export of it; differences up to {difference}"
        inputs = certificate["inputs"]
        yield f"inputs: {inputs['what']}; token ids: {inputs['token_ids']}"
    else:
        yield "weights not compared: transformers is not installed (pip install transformers)"
    if recorded := certificate["recorded"]:
        result = "equal" if recorded["within"] else "different"
        models = f"transformers {recorded['transformers']} for {recorded['configurations']} random models"
        difference = f"{recorded['largest_difference']:.1e}"
        yield f"recorded outputs of {models} of this kind: {result}; differences up to {difference}"


def _compare_weights(checkpoint: Checkpoint, progress: Progress) -> dict[str, Any]:
    """The entries of the certificate from the comparison with ``transformers``."""
    hub, original = checkpoint.family.hub, checkpoint.folder
    assert hub is not None
    has_own_head = "glassformer" in checkpoint.settings  # a head that transformers cannot read
    opens_as = hub.classes[None] if has_own_head else hub.class_of(checkpoint.config)
    batch, description = _inputs(checkpoint)
    model = load_pretrained(checkpoint)
    ours = batch.ours(model)
    progress(1)
    records: list[dict[str, Any]] = []
    with TemporaryDirectory() as home:
        exported, readable = Path(home) / "exported", Path(home) / "readable"
        save_pretrained(model, exported)
        del model
        if not any(original.glob("model*.safetensors")):  # transformers must not unpickle weights
            readable.mkdir()
            shutil.copyfile(original / "config.json", readable / "config.json")
            write_tensors(readable, read_tensors(original))
            original = readable
        for way, folder in (("opened", original), ("exported", exported)):
            theirs = batch.theirs(_open_with_transformers(opens_as, folder))
            records += [{"way": way} | record for record in differences(ours, theirs, TOLERANCE)]
            progress(1)
    return {"opens_as": opens_as, "inputs": description, "outputs": records}


def _open_with_transformers(name: str, folder: Path) -> Any:
    """The model in a folder in fp32, opened by a class of ``transformers``."""
    import transformers
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    options = {"local_files_only": True, "attn_implementation": "eager"}
    try:
        model = getattr(transformers, name).from_pretrained(folder, **options)
    except Exception as error:  # errors have no common class, and an old version lacks the class
        what = f"transformers {transformers.__version__} cannot open it as {name}: {error}"
        raise CheckpointError(what, where=str(folder)) from error
    return model.float().eval()


# --- inputs -----------------------------------------------------------------------------------------


def _inputs(checkpoint: Checkpoint) -> tuple[Batch, dict[str, Any]]:
    """The inputs of the comparison, and their description."""
    embedding = checkpoint.config.embedding
    if checkpoint.family.model.reads == "images":
        height, width = embedding.image_size
        pixels = random_tensor("pixels", (2, embedding.channels, height, width), 1.0)
        return Batch(pixels), {"what": f"2 images of {width} x {height} pixels", "token_ids": "none"}
    pad = checkpoint.settings.get("pad_token_id") or 0
    max_tokens = min(embedding.max_positions or MAX_TOKENS, MAX_TOKENS)
    texts, result = _token_ids(checkpoint.folder, max_tokens, embedding.vocab_size)
    if texts is None:
        lengths = sorted({1, min(7, max_tokens), max_tokens // 3 + 1, max_tokens})
        rows = [np.random.RandomState(n).randint(0, embedding.vocab_size - 1, n) for n in lengths]
        texts = [row + (row >= pad) for row in rows]  # skip the id of the padding token
    lengths = torch.tensor([len(ids) for ids in texts])
    positions = torch.arange(int(lengths.max()))
    mask = positions < lengths[:, None]
    ids = torch.full(mask.shape, pad)
    ids[mask] = torch.from_numpy(np.concatenate(texts)).long()
    has_segments = getattr(embedding, "segments", 0) > 1
    segments = (positions >= lengths[:, None] // 2).long() if has_segments else None
    what = f"{len(texts)} texts of {lengths.min()} to {lengths.max()} tokens"
    what += ", padded for transformers, packed for glassformer"
    return Batch(ids, mask, segments), {"what": what, "token_ids": result, "lengths": lengths.tolist()}


def _token_ids(folder: Path, max_tokens: int, vocab_size: int) -> tuple[list[np.ndarray] | None, str]:
    """The ids of ``TEXTS``, and a phrase: whether the tokenizer of ``transformers`` gives the same ids.

    The ids are None without a tokenizer, or if the tokenizer has more tokens than the model.
    """
    from transformers import AutoTokenizer

    try:
        table = encode(load_tokenizer(folder), TEXTS, max_length=max_tokens)
    except InputError:
        return None, "no tokenizer, so the ids are random"
    if table.ids.max() >= vocab_size:
        return None, "not compared: the vocabulary of the tokenizer is larger than the model's"
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        ids = tokenizer(list(TEXTS), truncation=True, max_length=max_tokens)["input_ids"]
    except Exception as error:  # the tokenizer may need other packages or files
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        return [*table], f"not compared ({reason})"
    return [*table], "equal" if ids == [row.tolist() for row in table] else "different"


# --- recorded outputs -------------------------------------------------------------------------------


def random_tensor(name: str, shape: tuple[int, ...], scale: float = 0.2) -> Tensor:
    """Random numbers that only depend on name and shape; weights of norms have mean 1.

    ``RandomState`` gives the same numbers in all versions of NumPy.
    """
    numbers = scale * np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape)
    return torch.from_numpy(numbers + (len(shape) == 1 and name.endswith("weight"))).float()


def write_random(folder: Path, settings: Mapping[str, Any], shapes: Mapping[str, list[int]]) -> None:
    """Write a checkpoint: ``config.json``, and random weights with these names and shapes."""
    (folder / "config.json").write_text(json_text(dict(settings)), encoding="utf-8")
    write_tensors(folder, {name: random_tensor(name, tuple(shape)) for name, shape in shapes.items()})


def compare_recorded(model_type: str) -> dict[str, Any] | None:
    """Compare with the recorded outputs of a family; returns None if nothing was recorded."""
    file = RECORDED / f"{model_type}.safetensors"
    if not file.is_file():
        return None
    records: list[dict[str, Any]] = []
    with safe_open(file, "pt") as recorded, TemporaryDirectory() as home:
        metadata = json.loads(recorded.metadata()["cases"])
        for number, case in enumerate(metadata["cases"]):
            folder, prefix = Path(home) / str(number), f"{number}."
            folder.mkdir()
            write_random(folder, case["config"], case["shapes"])
            names = [name for name in recorded.offset_keys() if name.startswith(prefix)]
            tensors = {name.removeprefix(prefix): recorded.get_tensor(name) for name in names}
            batch = Batch(tensors.pop("ids"), tensors.pop("mask", None), tensors.pop("segments", None))
            records += differences(batch.ours(load_pretrained(folder)), tensors, RECORDED_TOLERANCE)
    return {
        "configurations": len(metadata["cases"]),
        "transformers": metadata["transformers"],
        "largest_difference": max(record["largest_difference"] for record in records),
        "within": all(record["within"] for record in records),
    }
