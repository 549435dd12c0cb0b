"""``glassformer export`` of what answers from a text: an ONNX folder, or one for ``transformers``' class.

As with classifiers, a folder is written only if it agrees: questions go through the exported files, every
answer must be the same and no logit may move by more than the tolerance.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.checkpoints.files import README, read_json, signed, write_folder
from glassformer.data.question_windows import QuestionRows, encode_questions
from glassformer.data.questions import Question
from glassformer.data.tokenizer_file import load_tokenizer
from glassformer.data.vocabulary import Vocabulary
from glassformer.errors import ConfigError, GlassformerError
from glassformer.evaluate.spans import Candidates
from glassformer.export.graph import OPSET, Run, draw_graph, need_onnx, run_graph
from glassformer.export.hf_folder import as_hub_has_it
from glassformer.families.pretrained import load_pretrained, save_pretrained
from glassformer.finite import finite, json_text

HF_TOLERANCE, TOLERANCE = 1e-5, 1e-4
BATCH = 16
SCRIPT = Path(__file__).parent / "scripts" / "run_answers.txt"


def questions_of(model: Any, run: str | Path, count: int, seed: int = 0) -> list[Question]:
    """``count`` questions: of the run's ``predictions.jsonl`` as far as it goes, the rest of random words."""
    rng, file = np.random.default_rng(seed), Path(run) / "predictions.jsonl"
    out: list[Question] = []
    if file.is_file():
        with open(file, encoding="utf-8") as lines:
            known = [json.loads(line) for line in islice(lines, 50 * count)]
        chosen = sorted(rng.permutation(len(known))[:count].tolist())
        out = [Question(known[i]["question"], known[i]["context"]) for i in chosen]
    size = model.tokenizer_.get_vocab_size()
    while len(out) < count:
        lengths = rng.integers(1, 9), int(np.exp(rng.uniform(0, np.log(1.5 * model.length_)))) + 1
        ids = [rng.integers(0, size, n).tolist() for n in lengths]
        texts = [model.tokenizer_.decode(own, skip_special_tokens=True).replace("\0", "") for own in ids]
        out.append(Question(*(text if text.strip() else "word" for text in texts)))
    return out


def export_answers(
    model: Any,
    form: str,
    path: str | Path,
    samples: Sequence[Question],
    *,
    card: Callable[..., str] | None = None,
    int8: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Write an answerer in a form; what its check on the questions ``samples`` found.

    Args:
        card: of the Hub's form: gives the text of ``README.md``, from how the folder is opened.
        int8: refused: what it costs an answer is not measured.

    Raises:
        ConfigError: no layout or graph has such a model, or the extra is missing.
        GlassformerError: what was written answers otherwise, and nothing is kept.
    """
    if int8:
        raise ConfigError("answers from a text have no int8 form", where="--int8", fix="Leave it out")
    if form == "hf":
        return _export_hf(model, path, samples, card)
    return _export_onnx(model, path, samples)


def _fp32(model: Any, network: Any, rows: QuestionRows) -> np.ndarray:
    device = next(network.parameters()).device
    return finite(model.token_logits(network.eval(), rows, device), "logits")


# --- transformers ---------------------------------------------------------------------------------


def _export_hf(model: Any, path: str | Path, samples: Sequence[Question], card: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def write(folder: Path) -> None:
        given = as_hub_has_it(model.model_, model.model)
        if given is not model.model_ and given.config.embedding.segments == 1:
            given = model.model_  # segments are told apart: nothing was added
        save_pretrained(given, folder)
        opens_as = read_json(folder / "config.json")["architectures"][0]
        model.write_parts(folder)
        rows = model.encode(samples)
        before, after = (_fp32(model, own, rows) for own in (model.model_, load_pretrained(folder)))
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


class PaddedSpans(nn.Module):
    """The model over ``[B, T]`` ids, a mask and segments: logits of begin and end, ``[B, T]`` each."""

    def __init__(self, model: Any, max_length: int):
        super().__init__()
        self.model = model
        if (places := model.embeddings.fixed_places(max_length)) is not None:
            self.register_buffer("places", places, persistent=False)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        mask, places = attention_mask.bool(), getattr(self, "places", None)
        x = self.model.embeddings.padded(input_ids, attention_mask, places, token_type_ids)
        logits = self.model.spans(self.model.encoder.padded(x, mask))  # [B, T, 2]
        return logits[..., 0], logits[..., 1]


def _export_onnx(model: Any, path: str | Path, samples: Sequence[Question]) -> dict[str, Any]:
    need_onnx()
    checked: dict[str, Any] = {}

    def write(folder: Path) -> None:
        about = _write_graph(model, folder)
        rows = model.encode(samples)
        logits = _fp32(model, model.model_, rows)
        found, theirs = answers(folder, about, run_graph(folder / "model.onnx", model.threads), samples)
        moved = float(np.abs(logits - found).max()) if np.isfinite(found).all() else float("inf")
        ours = model.best(logits, rows)
        other = sum(_given(a, model) != _given(b, model) for a, b in zip(ours, theirs, strict=True))
        if other or not moved <= TOLERANCE:
            raise GlassformerError(
                f"the ONNX graph does not agree with the model: {other} of {len(samples):,} questions have "
                f"another answer and logits move by up to {moved:.1e} ({TOLERANCE:.0e} is allowed). Nothing "
                "was written"
            )
        checked.update(inputs=len(samples), largest_difference=moved, labels_changed=0)
        text = json_text({**about, "checked": checked}, indent=2) + "\n"
        (folder / "onnx.json").write_text(text, encoding="utf-8")

    write_folder(path, write)
    return checked


def _given(found: Candidates, model: Any) -> tuple[int, int] | None:
    """The place of the answer; None: none is given."""
    return None if found.is_none(model.threshold_) else found.spans[0][1:]


def _write_graph(model: Any, folder: Path) -> dict[str, Any]:
    longest, kinds = model.length_, model.model_.config.embedding.segments > 1
    module = PaddedSpans(model.model_.eval(), longest)
    ids = torch.ones(2, 5, dtype=torch.long)
    mask = ids.clone()
    mask[1, 4:] = 0  # with a mask of ones the exporter may leave the mask out
    given = {"input_ids": ids, "attention_mask": mask}
    if kinds:
        given["token_type_ids"] = torch.tensor([[0, 0, 1, 1, 1], [0, 0, 1, 0, 0]])
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=longest)}
    names = ("start_logits", "end_logits")
    draw_graph(module, given, names, dict.fromkeys(given, axes), folder / "model.onnx")
    model.tokenizer_.save(str(folder / "tokenizer.json"))
    (folder / "run.py").write_text(SCRIPT.read_text(encoding="utf-8"), encoding="utf-8")
    return {
        "format": 1,
        "opset": OPSET,
        "inputs": {name: ["batch", "length"] for name in given},
        "outputs": {name: ["batch", "length"] for name in names},
        "max_length": longest,
        "doc_stride": model.doc_stride,
        "max_question": model.max_question,
        "max_answer_length": model.max_answer_length,
        "threshold": model.threshold_,
        "pad": Vocabulary.of(model.tokenizer_).pad or 0,
    }


def answers(
    folder: Path, about: dict[str, Any], run: Run, questions: Sequence[Question]
) -> tuple[np.ndarray, list[Candidates]]:
    """Logits of every token ``[N, 2]``, and candidates, through the exported files."""
    from glassformer.evaluate.spans import candidates

    sizes = {"stride": about["doc_stride"], "max_question": about["max_question"]}
    tokenizer = load_tokenizer(folder)
    rows = encode_questions(tokenizer, questions, max_length=about["max_length"], **sizes)
    table = rows.table
    out = np.empty((len(table.ids), 2), np.float32)
    order = np.argsort(-table.lengths, kind="stable")
    for at in range(0, len(order), BATCH):
        part = order[at : at + BATCH].tolist()
        shape = len(part), max(int(table.lengths[i]) for i in part)
        ids = np.full(shape, about["pad"], np.int64)
        mask, kinds = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        places = [slice(*table.starts[i : i + 2].tolist()) for i in part]
        for row, own in enumerate(places):
            count = own.stop - own.start
            ids[row, :count], mask[row, :count] = table.ids[own], 1
            if table.segments is not None:
                kinds[row, :count] = table.segments[own]
        begin, end = run({"input_ids": ids, "attention_mask": mask, "token_type_ids": kinds})
        for row, own in enumerate(places):
            count = own.stop - own.start
            out[own] = np.stack([begin[row, :count], end[row, :count]], 1)
    return out, candidates(out, rows, about["max_answer_length"])
