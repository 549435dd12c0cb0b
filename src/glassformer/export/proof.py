"""``glassformer prove``: compare a checkpoint's outputs with those of ``transformers``; the result is a
certificate.

Both programs read the same inputs: first the folder itself, then the folder as ``save_pretrained`` writes it.
Only this module imports ``transformers``, and only if it is installed. In any case the code of the family is
compared with outputs of ``transformers`` for random configurations, which ``tests/parity/record.py`` wrote
into ``recorded/``.
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
from glassformer.runtime import computing, versions

FILE, FORMAT = "proof.json", 1
TOLERANCE = 1e-4  # times the largest value of an output
RECORDED_TOLERANCE = 1e-5  # the same, for small random models
ROUNDING = 1e-5  # differences up to this are equal, whatever the values
RECORDED = Path(__file__).parent / "recorded"
WEIGHTS = ("model*.safetensors", "head*.safetensors", "pytorch_model*.bin")
STEPS = 4  # calls of ``progress``
LONGEST = 512  # tokens of the longest text
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
    """Inputs for both programs: ids ``[B, T]`` with their mask and segments, or pixels ``[B, C, H, W]``."""

    ids: Tensor
    mask: Tensor | None = None  # None: ``ids`` are pixels
    segments: Tensor | None = None  # None: all 0

    @torch.inference_mode()
    def ours(self, model: Any) -> dict[str, Tensor]:
        """The outputs of our model, token-wise ones in rows of real tokens ``[N, D]``."""
        trace = Trace(hidden_states=True)
        if self.mask is None:
            out = model(self.ids, trace=trace)
        else:
            kinds = None if self.segments is None else self.segments[self.mask]
            packing = Packing(tuple(self.mask.sum(1).tolist()))
            out = model(self.ids[self.mask], token_type_ids=kinds, packing=packing, trace=trace)
        if model.config.head is not None and model.config.pooling != "pooler":  # it is the head's input
            out.pooler_output = None
        return self._outputs(out.trace.hidden_states, out, out)

    @torch.inference_mode()
    def theirs(self, model: Any) -> dict[str, Tensor]:
        """The outputs of a model of ``transformers``, in the same shapes."""
        given = [self.ids] if self.mask is None else [self.ids, self.mask.long()]
        kinds = {} if self.segments is None else {"token_type_ids": self.segments}
        encoder = getattr(model, "vision_model", model.base_model)
        base = encoder(*given, output_hidden_states=True, **kinds)
        out = base if encoder is model else model(*given, **kinds)
        if hasattr(out, "start_logits"):
            out.logits = torch.stack([out.start_logits, out.end_logits], 2)
        return self._outputs(base.hidden_states, base, out)

    def _outputs(self, states: Any, encoder: Any, head: Any) -> dict[str, Tensor]:
        found = {
            "hidden states": torch.stack([self._rows(state) for state in states[:-1]]),
            "last hidden state": self._rows(encoder.last_hidden_state),
            "pooler": getattr(encoder, "pooler_output", None),
            "next sentence": getattr(head, "seq_relationship_logits", None),
        }
        for name in ("prediction_logits", "logits"):
            if (logits := getattr(head, name, None)) is not None:
                found["logits"] = self._rows(logits)
        return {name: tensor.float() for name, tensor in found.items() if tensor is not None}

    def _rows(self, x: Tensor) -> Tensor:
        return x[self.mask] if self.mask is not None and x.ndim == 3 else x


def differences(
    found: Mapping[str, Tensor], expected: Mapping[str, Tensor], tolerance: float
) -> Iterator[dict[str, Any]]:
    """A record of each output, except a pooler that only ``transformers`` has, with random weights."""
    for name, b in expected.items():
        if name == "pooler" and name not in found:
            continue
        a, largest = found[name], float(b.abs().max())
        apart = float((a - b).abs().max()) if a.shape == b.shape else math.inf
        allowed = max(tolerance * largest, ROUNDING)
        record = {"output": name, "shape": list(b.shape), "largest_value": largest, "tolerance": allowed}
        yield record | {"largest_difference": apart, "within": apart <= allowed}


# --- the certificate --------------------------------------------------------------------------------


@computing()
def prove(
    name: str | Path, revision: str | None = None, progress: Progress = lambda n: None
) -> dict[str, Any]:
    """Compare a checkpoint (a folder, a known name or a Hub id); returns the certificate.

    Returns:
        ``verdict``: "equal", "different", or "weights not compared" without ``transformers``; ``outputs``: a
        record per output of the folder ``opened`` by both programs, and ``exported`` by us; ``recorded``: the
        comparison with recorded outputs; ``weights``: the SHA-256 of each file; ``sentences``: all in words.

    Raises:
        CheckpointError: the checkpoint cannot be read, here or by ``transformers``.
        NotForThisModelError: its layout is ours, which ``transformers`` cannot open.
    """
    folder, source, _ = resolve_checkpoint(name, revision)
    checkpoint = read_checkpoint(folder)
    kind = checkpoint.family.model_type
    if checkpoint.family.hub is None:
        what = f"its layout ({kind}) is glassformer's own, which transformers does not open"
        fix = "Name a checkpoint in the Hub's layout"
        raise NotForThisModelError(what, where=str(name), fix=fix)
    found: dict[str, Any] = {
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
    installed = importlib.util.find_spec("transformers") is not None
    if installed:
        found |= _compare_weights(checkpoint, progress)
    equal = [one["within"] for one in (*found.get("outputs", ()), found["recorded"]) if one]
    equal.append(found.get("inputs", {}).get("token_ids") != "different")
    verdict = "different" if not all(equal) else "equal" if installed else "weights not compared"
    return found | {"verdict": verdict, "sentences": list(_sentences(found, verdict))}


def weight_sums(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file of weights."""
    return {file.name: file_sha256(file) for pattern in WEIGHTS for file in sorted(folder.glob(pattern))}


def valid_sentences(folder: Path) -> list[str]:
    """The sentences of the certificate in a folder; empty if there is none for the folder's weights."""
    try:
        found = read_json(folder / FILE)
    except InputError:
        return []
    sentences = found.get("sentences") if found.get("weights") == weight_sums(folder) else None
    return list(map(str, sentences)) if isinstance(sentences, list) else []


def _sentences(found: dict[str, Any], verdict: str) -> Iterator[str]:
    if "outputs" in found:
        there = f"transformers {found['versions']['transformers']} ({found['opens_as']})"
        worst = max(found["outputs"], key=lambda one: one["largest_difference"] / one["tolerance"])
        apart = f"{worst['largest_difference']:.1e} where values reach {worst['largest_value']:.2g}"
        yield f"{verdict}: {there} opens the folder and our export of it; differences up to {apart}"
        yield f"inputs: {found['inputs']['what']}; token ids: {found['inputs']['token_ids']}"
    else:
        yield "weights not compared: transformers is not installed (pip install transformers)"
    if recorded := found["recorded"]:
        equal = "equal" if recorded["within"] else "different"
        there = f"transformers {recorded['transformers']} for {recorded['configurations']} random models"
        apart = f"{recorded['largest_difference']:.1e}"
        yield f"recorded outputs of {there} of this kind: {equal}; differences up to {apart}"


def _compare_weights(checkpoint: Checkpoint, progress: Progress) -> dict[str, Any]:
    """Compare with ``transformers``: the folder opened by both, and our export opened there."""
    hub, given = checkpoint.family.hub, checkpoint.folder
    assert hub is not None
    own_head = "glassformer" in checkpoint.settings  # in a file that transformers does not read
    opens_as = hub.classes[None] if own_head else hub.class_of(checkpoint.config)
    batch, about = _inputs(checkpoint)
    model = load_pretrained(checkpoint)
    ours = batch.ours(model)
    progress(1)
    records: list[dict[str, Any]] = []
    with TemporaryDirectory() as home:
        exported, readable = Path(home) / "exported", Path(home) / "readable"
        save_pretrained(model, exported)
        del model
        if not any(given.glob("model*.safetensors")):  # so that nothing is unpickled there
            readable.mkdir()
            shutil.copyfile(given / "config.json", readable / "config.json")
            write_tensors(readable, read_tensors(given))
            given = readable
        for way, folder in (("opened", given), ("exported", exported)):
            theirs = batch.theirs(_opened(opens_as, folder))
            records += [{"way": way} | record for record in differences(ours, theirs, TOLERANCE)]
            progress(1)
    return {"opens_as": opens_as, "inputs": about, "outputs": records}


def _opened(name: str, folder: Path) -> Any:
    """The model of a folder in fp32, opened by a class of ``transformers``."""
    import transformers
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    options = {"local_files_only": True, "attn_implementation": "eager"}
    try:
        model = getattr(transformers, name).from_pretrained(folder, **options)
    except Exception as error:  # it has no common class of errors; an old version lacks the class
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
    longest = min(embedding.max_positions or LONGEST, LONGEST)
    found, same = _token_ids(checkpoint.folder, longest, embedding.vocab_size)
    if found is None:
        lengths = sorted({1, min(7, longest), longest // 3 + 1, longest})
        rows = [np.random.RandomState(n).randint(0, embedding.vocab_size - 1, n) for n in lengths]
        found = [row + (row >= pad) for row in rows]  # no padding token inside a text
    lengths = torch.tensor([len(row) for row in found])
    place = torch.arange(int(lengths.max()))
    mask = place < lengths[:, None]
    ids = torch.full(mask.shape, pad)
    ids[mask] = torch.from_numpy(np.concatenate(found)).long()
    segments = (place >= lengths[:, None] // 2).long() if getattr(embedding, "segments", 0) > 1 else None
    what = f"{len(found)} texts of {lengths.min()} to {lengths.max()} tokens, padded there and packed here"
    return Batch(ids, mask, segments), {"what": what, "token_ids": same, "lengths": lengths.tolist()}


def _token_ids(folder: Path, longest: int, rows: int) -> tuple[list[np.ndarray] | None, str]:
    """Ids of ``TEXTS``, and whether the tokenizer of ``transformers`` gives the same; None: no tokenizer, or
    one with more tokens than the model has ``rows``."""
    from transformers import AutoTokenizer

    try:
        table = encode(load_tokenizer(folder), TEXTS, max_length=longest)
    except InputError:
        return None, "none, they are random"
    if table.ids.max() >= rows:
        return None, "not compared, more tokens than the model has"
    try:
        there = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        ids = there(list(TEXTS), truncation=True, max_length=longest)["input_ids"]
    except Exception as error:  # it may need other packages or files
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        return [*table], f"not compared ({reason})"
    return [*table], "equal" if ids == [row.tolist() for row in table] else "different"


# --- recorded outputs -------------------------------------------------------------------------------


def random_tensor(name: str, shape: tuple[int, ...], scale: float = 0.2) -> Tensor:
    """Random numbers that depend on the name only; weights of norms have the mean 1.

    NumPy never changes the numbers of ``RandomState``.
    """
    numbers = scale * np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape)
    return torch.from_numpy(numbers + (len(shape) == 1 and name.endswith("weight"))).float()


def write_random(folder: Path, settings: Mapping[str, Any], shapes: Mapping[str, list[int]]) -> None:
    """Write ``config.json``, and ``random_tensor`` weights of these names and shapes."""
    (folder / "config.json").write_text(json_text(dict(settings)), encoding="utf-8")
    write_tensors(folder, {name: random_tensor(name, tuple(shape)) for name, shape in shapes.items()})


def compare_recorded(model_type: str) -> dict[str, Any] | None:
    """Compare with the recorded outputs of a family; None: there are none."""
    file = RECORDED / f"{model_type}.safetensors"
    if not file.is_file():
        return None
    records: list[dict[str, Any]] = []
    with safe_open(file, "pt") as recorded, TemporaryDirectory() as home:
        about = json.loads(recorded.metadata()["cases"])
        for number, case in enumerate(about["cases"]):
            folder, prefix = Path(home) / str(number), f"{number}."
            folder.mkdir()
            write_random(folder, case["config"], case["shapes"])
            names = [name for name in recorded.offset_keys() if name.startswith(prefix)]
            own = {name.removeprefix(prefix): recorded.get_tensor(name) for name in names}
            batch = Batch(own.pop("ids"), own.pop("mask", None), own.pop("segments", None))
            records += differences(batch.ours(load_pretrained(folder)), own, RECORDED_TOLERANCE)
    return {
        "configurations": len(about["cases"]),
        "transformers": about["transformers"],
        "largest_difference": max(one["largest_difference"] for one in records),
        "within": all(one["within"] for one in records),
    }
