"""``glassformer export`` of what embeds texts: an ONNX folder, or one for sentence-transformers.

As with classifiers, a folder is written only if it agrees: texts go through the exported files, and no number
of a vector may move by more than the tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from glassformer.checkpoints.files import README, read_json, signed, write_folder
from glassformer.data.spreadsheet import csv_dicts, csv_plain
from glassformer.data.text import clean_text
from glassformer.data.tokenizer_file import load_tokenizer
from glassformer.data.vocabulary import PAD, Vocabulary
from glassformer.errors import ConfigError, GlassformerError
from glassformer.export.graph import OPSET, Run, draw_graph, need_onnx, run_graph
from glassformer.export.hf_folder import as_hub_has_it
from glassformer.export.samples import random_words
from glassformer.families.pretrained import load_pretrained, save_pretrained
from glassformer.finite import json_text
from glassformer.models.sentences import Sentences, lowercased

HF_TOLERANCE, TOLERANCE = 1e-5, 1e-4
BATCH = 16
SCRIPT = Path(__file__).parent / "scripts" / "run_vectors.txt"


def texts_of(embedder: Any, run: str | Path, count: int, seed: int = 0) -> list[str]:
    """``count`` texts: of the run's ``pairs.csv`` as far as it goes, the rest of random words."""
    rng, file = np.random.default_rng(seed), Path(run) / "pairs.csv"
    out: list[str] = []
    if file.is_file():
        with file.open(encoding="utf-8", newline="") as lines:
            rows = list(islice(csv_dicts(lines), 50 * count))
        known = [csv_plain(row[side]) for row in rows for side in ("first", "second")]
        out = [known[i] for i in sorted(rng.permutation(len(known))[:count].tolist())]
    while len(out) < count:
        out.append(random_words(embedder.tokenizer_, embedder.longest(), rng))
    return out


def export_vectors(
    embedder: Any,
    form: str,
    path: str | Path,
    samples: Sequence[str],
    *,
    card: Callable[..., str] | None = None,
    int8: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Write an embedder in a form; what its check on the texts ``samples`` found.

    Args:
        card: of the Hub's form: gives the text of ``README.md``, from how the folder is opened.
        int8: refused: what it costs a search is not measured.

    Raises:
        ConfigError: no layout or graph has such a model, or the extra is missing.
        GlassformerError: what was written gives other vectors, and nothing is kept.
    """
    if int8:
        raise ConfigError("vectors of texts have no int8 form", where="--int8", fix="Leave it out")
    how: Sentences = embedder.model_.sentences
    if how.prompt(None, None) and not how.pool.include_prompt:
        what = "its pooling leaves the prompt out, which no exported form can do"
        raise ConfigError(what, where="export", fix="Serve it with glassformer serve")
    if form == "hf":
        return _export_hf(embedder, how, path, samples, card)
    return _export_onnx(embedder, how, path, samples)


def _fp32(embedder: Any, network: Any, how: Sentences, tokenizer: Tokenizer, texts: Sequence[str]) -> Any:
    """Vectors ``[n, E]`` of a network in fp32."""
    cleaned = [clean_text(text, embedder.clean) for text in texts]
    return how.embed(network.eval(), cleaned, tokenizer=tokenizer)


# --- sentence-transformers ------------------------------------------------------------------------


def _export_hf(
    embedder: Any, how: Sentences, path: str | Path, samples: Sequence[str], card: Any
) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def write(folder: Path) -> None:
        given = as_hub_has_it(embedder.model_, embedder.model)
        save_pretrained(given, folder)
        opens_as = read_json(folder / "config.json")["architectures"][0]
        embedder.write_encoder(folder)
        before = _fp32(embedder, embedder.model_, how, embedder.tokenizer_, samples)
        again = load_pretrained(folder)
        after = _fp32(embedder, again, again.sentences, load_tokenizer(folder), samples)
        moved = float(np.abs(after - before).max())
        if not moved <= HF_TOLERANCE:
            what = f"the folder reads back with vectors that move by up to {moved:.1e}. Nothing was written"
            raise GlassformerError(what)
        found.update(opens_as=opens_as, whole=True, inputs=len(samples), largest_difference=moved)
        found.update(clean=embedder.clean, width=before.shape[1])
        if card is not None:
            text = card(library="sentence-transformers", opens_as="SentenceTransformer", whole=True)
            (folder / README).write_text(signed(text), encoding="utf-8")

    write_folder(path, write)
    return found


# --- ONNX -----------------------------------------------------------------------------------------


def _first(x: Tensor, mask: Tensor) -> Tensor:
    return x[:, 0]


def _last(x: Tensor, mask: Tensor) -> Tensor:
    last = (mask.sum(1) - 1).long()[:, None, None].expand(-1, 1, x.shape[2])
    return x.gather(1, last)[:, 0]


def _max(x: Tensor, mask: Tensor) -> Tensor:
    return x.masked_fill(mask[:, :, None] == 0, -3e38).amax(1)


def _mean(x: Tensor, mask: Tensor) -> Tensor:
    return (x * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)


def _mean_of_root(x: Tensor, mask: Tensor) -> Tensor:
    return (x * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True).sqrt()


def _weighted(x: Tensor, mask: Tensor) -> Tensor:
    return _mean(x, mask * mask.cumsum(1))


# ``models.sentences.POOLS`` of texts padded on the right: states [B, T, D] and a mask [B, T] -> [B, D].
PADDED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cls": _first,
    "max": _max,
    "mean": _mean,
    "mean_sqrt_len_tokens": _mean_of_root,
    "weightedmean": _weighted,
    "lasttoken": _last,
}


class PaddedVectors(nn.Module):
    """The model over ``[B, T]`` ids and a mask, padding on the right: one vector a text, ``[B, E]``."""

    def __init__(self, model: Any, how: Sentences, max_length: int):
        super().__init__()
        self.model, self.how = model, how
        if (places := model.embeddings.fixed_places(max_length)) is not None:
            self.register_buffer("places", places, persistent=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        places = getattr(self, "places", None)
        x = self.model.embeddings.padded(input_ids, attention_mask, places, None)
        x = self.model.encoder.padded(x, attention_mask.bool())
        kept = attention_mask.to(x.dtype)
        out = torch.cat([PADDED[mode](x, kept) for mode in self.how.pool.modes], 1)
        for step in self.how.after:
            out = step(out)
        return out[:, : self.how.truncate_dim]


def _export_onnx(embedder: Any, how: Sentences, path: str | Path, samples: Sequence[str]) -> dict[str, Any]:
    need_onnx()
    checked: dict[str, Any] = {}

    def write(folder: Path) -> None:
        about = _write_graph(embedder, how, folder)
        ours = _fp32(embedder, embedder.model_, how, embedder.tokenizer_, samples)
        theirs = vectors(folder, about, run_graph(folder / "model.onnx", embedder.threads), samples)
        moved = float(np.abs(ours - theirs).max()) if np.isfinite(theirs).all() else float("inf")
        if not moved <= TOLERANCE:
            what = f"vectors move by up to {moved:.1e} ({TOLERANCE:.0e} is allowed). Nothing was written"
            raise GlassformerError(f"the ONNX graph does not agree with the model: {what}")
        checked.update(inputs=len(samples), largest_difference=moved, width=ours.shape[1])
        text = json_text({**about, "checked": checked}, indent=2) + "\n"
        (folder / "onnx.json").write_text(text, encoding="utf-8")

    write_folder(path, write)
    return checked


def _write_graph(embedder: Any, how: Sentences, folder: Path) -> dict[str, Any]:
    longest = embedder.longest()
    if longest < 3:
        raise ConfigError(f"{longest} tokens leave no room for a text", where="export")
    ids = torch.ones(2, 3, dtype=torch.long)
    mask = ids.clone()
    mask[1, 2:] = 0  # with a mask of ones the exporter may leave the mask out
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=longest)}
    given = {"input_ids": ids, "attention_mask": mask}
    module = PaddedVectors(embedder.model_.eval(), how, longest)
    draw_graph(module, given, ("vectors",), dict.fromkeys(given, axes), folder / "model.onnx")
    tokenizer = Tokenizer.from_str(
        (lowercased(embedder.tokenizer_) if how.lowercase else embedder.tokenizer_).to_str()
    )
    tokenizer.enable_truncation(longest)
    pad = Vocabulary.of(tokenizer).pad or 0
    tokenizer.enable_padding(pad_id=pad, pad_token=tokenizer.id_to_token(pad) or PAD)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "run.py").write_text(SCRIPT.read_text(encoding="utf-8"), encoding="utf-8")
    return {
        "format": 1,
        "opset": OPSET,
        "inputs": {name: ["batch", "length"] for name in given},
        "outputs": {"vectors": ["batch", how.width(embedder.model_.config.encoder.d_model)]},
        "max_length": longest,
        "clean": embedder.clean,
        "prompt": how.prompt(None, None),
    }


def vectors(folder: Path, about: dict[str, Any], run: Run, texts: Sequence[str]) -> np.ndarray:
    """Vectors ``[n, E]`` of texts through the exported files: tokenizer and graph."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    given = [about["prompt"] + clean_text(text, about["clean"]) for text in texts]
    order = sorted(range(len(given)), key=lambda i: -len(given[i]))  # texts of like length share a batch
    out = np.empty((len(given), about["outputs"]["vectors"][1]), np.float32)
    for start in range(0, len(order), BATCH):
        part = order[start : start + BATCH]
        rows = tokenizer.encode_batch([given[i] for i in part])
        ids = np.array([row.ids for row in rows], np.int64)
        mask = np.array([row.attention_mask for row in rows], np.int64)
        out[part] = run({"input_ids": ids, "attention_mask": mask})[0]
    return out
