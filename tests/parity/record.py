"""Writes what ``transformers`` gives for small random models: ``glassformer prove`` compares with it where that
package is not installed.

    PYTHONPATH=src .venv/bin/python -m tests.parity.record [MODEL_TYPE ...]        by default every family

Weights are random_tensor from their names (``proof.random_tensor``), so that a file holds configs, shapes, inputs and outputs only.
"""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

from glassformer.checkpoints.tensors import read_tensors
from glassformer.export.proof import RECORDED, Batch, random_tensor, write_random
from glassformer.families import FAMILIES

from . import test_image_families, test_text_families

KINDS = [*test_text_families.KINDS, *test_image_families.KINDS]
DRAWS = (1, 2, 4, 5, 7, 8, 10)  # none with sinusoidal positions, whose table is not random
LENGTHS = (11, 1, 6)


def cases_of(kind: str) -> list[tuple[str | None, int]]:
    """Head and number of each random config: the encoder twice, every other head once (images: twice)."""
    heads = list(FAMILIES[kind].hub.classes)
    heads = [None, *heads] if kind in test_text_families.KINDS else heads * 2
    return list(zip(heads, DRAWS, strict=False))


def batch_of(config: Any) -> Batch:
    config = test_image_families.of_images(config)
    if hasattr(config, "image_size"):
        height, width = (config.image_size,) * 2 if isinstance(config.image_size, int) else config.image_size
        return Batch(random_tensor("pixels", (1, config.num_channels, height, width), 1.0))
    random, pad = np.random.RandomState(config.vocab_size), config.pad_token_id
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    ids = torch.from_numpy(random.randint(0, config.vocab_size - 1, mask.shape)).long()
    ids = torch.where(mask, ids + (ids >= pad), pad)
    count = getattr(config, "type_vocab_size", 1)
    kinds = torch.from_numpy(random.randint(0, count, mask.shape)).long() if count > 1 else None
    return Batch(ids, mask, kinds)


def outputs_of(kind: str, head: str | None, draw: int) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """A case as ``compare_recorded`` reads it: config with shapes, and inputs with outputs."""
    labels = {"num_labels": 5} if head in ("classification", "tokens") else {}
    if kind in test_text_families.KINDS:
        has_pooler = kind not in test_text_families.ROTARY_BERTS  # AutoModel builds these without
        made = test_text_families.peer_of(kind, draw, head, pooler=has_pooler, **labels)
    else:
        ending = "ForImageClassification" if head else "Model"
        made = test_image_families.peer_of(kind, draw, ending, **labels)
    opener = type(made)
    with TemporaryDirectory() as home:
        made.save_pretrained(home)
        settings = json.loads((Path(home) / "config.json").read_text())
        shapes = {name: list(tensor.shape) for name, tensor in sorted(read_tensors(home).items())}
        write_random(Path(home), settings, shapes)
        peer, info = opener.from_pretrained(home, attn_implementation="eager", output_loading_info=True)
        assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
        batch = batch_of(peer.config)
        found = batch.theirs(peer.eval())
    del found["hidden states"]
    given = {"ids": batch.ids, "mask": batch.mask, "segments": batch.segments}
    return {"config": settings, "shapes": shapes}, found | {k: t for k, t in given.items() if t is not None}


def record(kind: str) -> dict[str, torch.Tensor]:
    cases, tensors = [], {}
    for number, (head, draw) in enumerate(cases_of(kind)):
        case, found = outputs_of(kind, head, draw)
        cases.append(case)
        tensors |= {f"{number}.{name}": tensor.clone() for name, tensor in found.items()}
    about = {"transformers": transformers.__version__, "cases": cases}
    RECORDED.mkdir(exist_ok=True)
    save_file(tensors, RECORDED / f"{kind}.safetensors", {"cases": json.dumps(about)})
    return tensors


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    for name in sys.argv[1:] or KINDS:
        record(name)
