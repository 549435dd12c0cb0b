"""``glassformer export`` of what tags words: an ONNX folder, or one for ``transformers``' token classes.

As with classifiers, a folder is written only if it agrees: sentences go through the exported files, every
word must have the same tag and no logit may move by more than the tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassformer.checkpoints.files import README, read_json, signed, write_folder
from glassformer.data.tagged import load_tagged
from glassformer.data.tokenizer_file import load_tokenizer
from glassformer.data.vocabulary import Vocabulary
from glassformer.data.word_rows import OVERLAP, WordRows, encode_words
from glassformer.errors import ConfigError, GlassformerError
from glassformer.export.graph import OPSET, Run, draw_graph, need_onnx, quantize, run_graph
from glassformer.export.hf_folder import as_hub_has_it
from glassformer.export.padded import PaddedText
from glassformer.families.pretrained import load_pretrained, save_pretrained
from glassformer.finite import finite, json_text

HF_TOLERANCE, TOLERANCE = 1e-5, 1e-4
INT8_TOLERANCE = 0.5  # points of accuracy over words
BATCH = 16
SCRIPT = Path(__file__).parent / "scripts" / "run_words.txt"
Sentences = Sequence[Sequence[str]]


def sentences_of(tagger: Any, run: str | Path, count: int, seed: int = 0) -> list[list[str]]:
    """``count`` sentences: of the run's ``predictions.conll`` as far as it goes, the rest of random words,
    from one to more than a window holds."""
    rng, file = np.random.default_rng(seed), Path(run) / "predictions.conll"
    out: list[list[str]] = []
    if file.is_file():
        known = load_tagged(file, need_tags=False).splits["train"].words
        out = [known[i] for i in sorted(rng.permutation(len(known))[:count].tolist())]
    size = tagger.tokenizer_.get_vocab_size()
    while len(out) < count:
        length = int(np.exp(rng.uniform(0, np.log(1.2 * tagger.length_)))) + 1
        ids = rng.integers(0, size, length).tolist()
        words = tagger.tokenizer_.decode(ids, skip_special_tokens=True).replace("\0", "").split()
        out.append(words or ["word"])
    return out


def fp32_logits(tagger: Any, model: Any, sentences: Sentences, encode: Callable[..., WordRows]) -> np.ndarray:
    """Logits of every word ``[W, C]`` in fp32."""
    device = next(model.parameters()).device
    return finite(tagger.word_logits(model.eval(), encode(sentences), device), "logits")


def export_words(
    tagger: Any,
    form: str,
    path: str | Path,
    samples: Sentences,
    *,
    card: Callable[..., str] | None = None,
    int8: bool = False,
    int8_tolerance: float = INT8_TOLERANCE,
    validation: tuple[Sentences, Sequence[Any]] | None = None,
) -> dict[str, Any]:
    """Write a tagger in a form; what its check on the sentences ``samples`` found.

    Args:
        card: of the Hub's form: gives the text of ``README.md``, from how the folder is opened.
        int8: of ONNX: also write ``model-int8.onnx``.
        int8_tolerance: points of accuracy over words that int8 may cost on ``validation``.
        validation: sentences and their tags.

    Raises:
        ConfigError: no layout or graph has such a model, or the extra is missing.
        GlassformerError: what was written answers otherwise, and nothing is kept; or int8 costs too much, and
            all but its file is kept.
    """
    if form == "hf":
        return _export_hf(tagger, path, samples, card)
    return _export_onnx(tagger, path, samples, int8, int8_tolerance, validation)


# --- transformers ---------------------------------------------------------------------------------


def _export_hf(tagger: Any, path: str | Path, samples: Sentences, card: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def write(folder: Path) -> None:
        given, classes = as_hub_has_it(tagger.model_, tagger.model), tagger.classes_.tolist()
        save_pretrained(given, folder, label_names=tuple(classes))
        opens_as = read_json(folder / "config.json")["architectures"][0]
        tagger.write_parts(folder)
        before = fp32_logits(tagger, tagger.model_, samples, tagger.encode)
        tokenizer = load_tokenizer(folder)
        after = fp32_logits(
            tagger,
            load_pretrained(folder),
            samples,
            lambda words: encode_words(tokenizer, words, max_length=tagger.length_),
        )
        moved = float(np.abs(after - before).max())
        if not moved <= HF_TOLERANCE:
            what = f"the folder reads back with logits that move by up to {moved:.1e}. Nothing was written"
            raise GlassformerError(what)
        found.update(opens_as=opens_as, whole=True, inputs=len(samples), largest_difference=moved)
        found["clean"] = "none"
        if card is not None:
            text = card(library="transformers", opens_as=opens_as, whole=True)
            (folder / README).write_text(signed(text), encoding="utf-8")

    write_folder(path, write)
    return found


# --- ONNX -----------------------------------------------------------------------------------------


def _export_onnx(
    tagger: Any,
    path: str | Path,
    samples: Sentences,
    int8: bool,
    int8_tolerance: float,
    validation: tuple[Sentences, Sequence[Any]] | None,
) -> dict[str, Any]:
    need_onnx()
    checked: dict[str, Any] = {}

    def write(folder: Path) -> None:
        about = _write_graph(tagger, folder)
        logits = fp32_logits(tagger, tagger.model_, samples, tagger.encode)
        found = answers(folder, about, run_graph(folder / "model.onnx", tagger.threads), samples)
        moved, flipped = _apart(logits, found)
        if flipped or not moved <= TOLERANCE:
            raise GlassformerError(
                f"the ONNX graph does not agree with the model: {flipped} of {len(logits):,} words have "
                f"another tag and logits move by up to {moved:.1e} ({TOLERANCE:.0e} is allowed). Nothing was "
                "written"
            )
        checked.update(inputs=len(samples), words=len(logits), largest_difference=moved, labels_changed=0)
        if int8:
            quantize(folder / "model.onnx", folder / "model-int8.onnx")
            run = run_graph(folder / "model-int8.onnx", tagger.threads)
            moved, flipped = _apart(logits, answers(folder, about, run, samples))
            checked["int8"] = {"largest_difference": moved, "labels_changed": flipped}
            checked["int8"] |= _judged(tagger, folder, about, run, validation)
            if _fall(checked["int8"]) > int8_tolerance:
                (folder / "model-int8.onnx").unlink()
                checked["int8"]["removed"] = True
        text = json_text({**about, "checked": checked}, indent=2) + "\n"
        (folder / "onnx.json").write_text(text, encoding="utf-8")

    write_folder(path, write)
    if int8 and checked["int8"].get("removed"):
        raise GlassformerError(
            f"int8 weights cost {_fall(checked['int8']):.2f} points of accuracy on "
            f"{checked['int8']['judged']:,} words ({int8_tolerance:g} points are allowed). {path} was "
            "written without model-int8.onnx"
        )
    return checked


def _write_graph(tagger: Any, folder: Path) -> dict[str, Any]:
    longest = tagger.length_
    if not hasattr(tagger.model_, "encode") or getattr(tagger.model_, "pooled_padded", None) is not None:
        what = f"{tagger.model!r} is no Transformer, and its tags have no graph"
        raise ConfigError(what, where="--to onnx", fix="Train an encoder, such as encoder-mini")
    if longest < 3:
        raise ConfigError(f"windows of {longest} tokens leave no room for a word", where="export")
    module = PaddedText(tagger.model_.eval(), longest, tagger.temperature_)
    ids = torch.ones(2, 3, dtype=torch.long)
    mask = ids.clone()
    mask[1, 2:] = 0  # with a mask of ones the exporter may leave the mask out
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=longest)}
    given = {"input_ids": ids, "attention_mask": mask}
    draw_graph(module, given, ("logits", "probabilities"), dict.fromkeys(given, axes), folder / "model.onnx")
    tagger.tokenizer_.save(str(folder / "tokenizer.json"))
    (folder / "run.py").write_text(SCRIPT.read_text(encoding="utf-8"), encoding="utf-8")
    known = Vocabulary.of(tagger.tokenizer_)
    return {
        "format": 1,
        "opset": OPSET,
        "inputs": {name: ["batch", "length"] for name in given},
        "outputs": {name: ["batch", "length", "label"] for name in ("logits", "probabilities")},
        "labels": tagger.classes_.tolist(),
        "scheme": tagger.scheme_,
        "whole_words": tagger.whole_words_,  # keep their punctuation; null: split at white space
        "each_word": True,  # the answer of a word stands at its first piece
        "max_length": longest,
        "overlap": OVERLAP,
        "pad": known.pad or 0,
        "unknown": known.unk,
    }


def answers(folder: Path, about: dict[str, Any], run: Run, sentences: Sentences) -> np.ndarray:
    """Logits of every word ``[W, C]`` through the exported files: tokenizer, windows and graph."""
    rows = encode_words(load_tokenizer(folder), sentences, max_length=about["max_length"])
    table = rows.table
    out = np.empty((len(table.ids), len(about["labels"])), np.float32)
    order = np.argsort(-table.lengths, kind="stable")
    for at in range(0, len(order), BATCH):
        part = order[at : at + BATCH].tolist()
        longest = max(int(table.lengths[i]) for i in part)
        ids = np.full((len(part), longest), about["pad"], np.int64)
        mask = np.zeros_like(ids)
        for row, i in enumerate(part):
            ids[row, : len(table[i])], mask[row, : len(table[i])] = table[i], 1
        found = run({"input_ids": ids, "attention_mask": mask})[0]
        for row, i in enumerate(part):
            out[table.starts[i] : table.starts[i + 1]] = found[row, : len(table[i])]
    return out[rows.first]


def _apart(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, int]:
    """The largest difference of two logits, and how many words have another tag."""
    moved = float(np.abs(ours - theirs).max()) if np.isfinite(theirs).all() else float("inf")
    return moved, int((ours.argmax(1) != theirs.argmax(1)).sum())


def _judged(tagger: Any, folder: Path, about: dict[str, Any], run: Run, validation: Any) -> dict[str, Any]:
    """The accuracy over the words of held-out sentences, before and after."""
    if validation is None:
        return {}
    words, tags = validation
    truth = tagger.numbers(tagger.true_tags(tags, words))
    known = truth >= 0  # the others have no tag that the model knows
    both = {
        "accuracy_fp32": fp32_logits(tagger, tagger.model_, words, tagger.encode),
        "accuracy_int8": answers(folder, about, run, words),
    }
    shares = {name: float((rows.argmax(1) == truth)[known].mean()) for name, rows in both.items()}
    return {"judged": int(known.sum())} | shares


def _fall(int8: dict[str, Any]) -> float:
    """Points of accuracy that int8 costs; 0 where tags are not known."""
    return round(100 * (int8.get("accuracy_fp32", 0.0) - int8.get("accuracy_int8", 0.0)), 6)
