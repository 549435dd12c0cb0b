"""Why one word has its tag: the methods of ``explain`` applied to the logits of one row."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.data.vocabulary import Vocabulary
from glassformer.errors import InputError
from glassformer.explain.faithfulness import trust as trust_in
from glassformer.explain.methods import check_attention, check_method, explain, target_number
from glassformer.explain.render import Explanation
from glassformer.explain.subject import Subject, model_of
from glassformer.finite import finite
from glassformer.models.backbone import ModelOutput
from glassformer.nn.trace import Trace
from glassformer.packing import Packing
from glassformer.runtime import computes_gradients


class OneRow(nn.Module):
    """What reads one row of each sequence."""

    def __init__(self, row: int):
        super().__init__()
        self.row = row


class WordView(nn.Module):
    """A tagger's model that answers one word: the row ``row`` of every sequence, which all have their full
    length.
    """

    def __init__(self, model: Any, row: int, length: int):
        super().__init__()
        self.model, self.pooling, self.length = model, OneRow(row), length
        self.has_attention = getattr(model, "has_attention", True)

    @property
    def encoder(self) -> Any:
        return self.model.encoder

    @property
    def config(self) -> Any:
        return self.model.config

    def run_rows(self, x: Tensor, packing: Packing, trace: Trace | None = None) -> ModelOutput:
        """Embedded rows ``[N, D]`` -> the word's logits ``[B, C]``.

        Raises:
            InputError: tokens were left out, so that the row may be another word's, or nobody's.
        """
        if set(packing.lengths) != {self.length}:
            what = "a word whose sentence lacks tokens has no place in it"
            raise InputError(what, where="explain", fix="Hide tokens with by=mask, not by=delete")
        out = self.model.run_rows(x, packing, trace)
        out.logits = out.logits[packing.first_rows + self.pooling.row]
        return out


@computes_gradients
def explain_word(
    tagger: Any,
    words: list[str],
    *,
    word: str | int | None = None,
    method: str = "occlusion",
    target: Any = None,
    trust: bool = False,
    **options: Any,
) -> Explanation:
    """See ``TokenTagger.explain``; of a sentence in several windows, the one that answers the word is
    explained.
    """
    check_method(method, target, options)
    check_attention(tagger, method)
    subject = word_subject(tagger, words, word)
    made = explain(subject, method=method, target=target, **options)
    if trust:
        made.trust = trust_in(subject, made.scores, target=target_number(subject, target))
        made.notes.append(made.trust["verdict"])
    return made


def number_of(tagger: Any, words: list[str], word: str | int | None, tags: list[str]) -> int:
    """The number of the word that is asked for.

    Raises:
        InputError: no such word.
    """
    if word is None:
        return next((i for i, tag in enumerate(tags) if tag != "O"), 0)
    if isinstance(word, str) and word in words:
        return words.index(word)
    if isinstance(word, str) and not re.fullmatch(r"-?[0-9]{1,9}", word):
        raise InputError(f"no word {word!r}", where="explain", fix=f"The words are: {' '.join(words[:20])}")
    number = int(word)
    if not -len(words) <= number < len(words):
        raise InputError(f"no word {number}", where="explain", fix=f"Give 0 to {len(words) - 1}")
    return number % len(words)


@computes_gradients
def word_subject(tagger: Any, words: list[str], word: str | int | None = None) -> Subject:
    """One word of a sentence as the methods see it. Baselines as of ``explain.subject.text_subject``."""
    model = model_of(tagger)
    device = next(model.parameters()).device
    rows = tagger.encode([words])
    tags = tagger.decide([finite(tagger.word_logits(model, rows, device), "logits")])[0]
    number = number_of(tagger, words, word, tags)
    place = int(rows.first[number])
    window = int(np.searchsorted(rows.table.starts, place, side="right")) - 1
    start, stop = int(rows.table.starts[window]), int(rows.table.starts[window + 1])
    inside = rows.words[start:stop]
    ids = torch.from_numpy(rows.table.ids[start:stop].astype(np.int64)).to(device)
    packing = Packing.uniform(1, stop - start, device)
    special = torch.from_numpy(inside < 0).to(device)
    view = WordView(model, place - start, stop - start).eval()

    def embed(these: Tensor) -> Tensor:
        with torch.no_grad():
            return model.embed(these, packing)[0].float()  # [T, D]

    embedded, known = embed(ids), Vocabulary.of(tagger.tokenizer_)
    hiding = {"mask": known.unk if known.mask is None else known.mask, "unknown": known.unk, "pad": known.pad}
    baselines = {
        name: lambda token=token: embed(torch.where(special, ids, token))
        for name, token in hiding.items()
        if token is not None
    }
    with torch.inference_mode():
        out = view.run_rows(embedded.to(next(model.encoder.parameters()).dtype), packing)
    assert out.logits is not None
    probabilities = tagger.chances(out.logits.float().cpu().numpy())[0]
    classes = tagger.classes_.tolist()
    label = tags[number]
    said = f"word {number + 1} of {len(words)}, {words[number]!r}: {label}"
    shown = {
        "text": " ".join(words),
        "tokens": [tagger.tokenizer_.id_to_token(int(i)) or "?" for i in ids],
        "offsets": [(int(a), int(b)) for a, b in rows.offsets[start:stop]],
        "word_ids": _counted(inside),
        "label": label,
        "notes": [said],
        "name": f"{words[number]} ({label})",
    }
    # The tag that is given: where tags had to be mended it is not the likeliest.
    likely = classes.index(label) if label in classes else int(probabilities.argmax())
    subject = Subject(
        view,
        embedded,
        baselines,
        inside,
        classes,
        likely,
        probabilities,
        temperature=tagger.temperature_,
        shown=shown,
    )
    zero = {"zero": lambda: torch.where(special[:, None], embedded, 0.0)}
    return replace(subject, baselines={**baselines, **zero})


def _counted(words: np.ndarray) -> np.ndarray:
    """Numbers of words from 0, as those of a window in the middle of a sentence are not."""
    first = words[words >= 0].min(initial=len(words) + int(words.max(initial=0)))
    return np.where(words >= 0, words - first, -1)
