"""Texts as targets, as in translation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from glassformer.errors import GlassformerError, UnequalLengthsError
from glassformer.evaluate.metrics import Plain, Share
from glassformer.targets.target import Target

_TOKEN = re.compile(r"\w+|[^\w\s]")  # a word, or one punctuation mark


class TargetText(Target):
    """One generated text per example."""

    marker_keys: ClassVar[Sequence[str]] = ("bleu",)
    metrics: ClassVar[Mapping[str, Share]] = {
        "bleu": Plain("BLEU", form=".2f"),
        "chrf": Plain("chrF", form=".2f"),
        "bleu_tokenised": Plain("BLEU, tokenized", form=".2f"),
        "length_ratio": Plain("length", form=".3f"),
        "sentences_per_second": Plain("sentences/s", form=".1f"),
    }
    main_metrics: ClassVar[Sequence[str]] = ("bleu", "chrf")


def tokenize(text: str) -> str:
    """Lower-cased words and punctuation, separated by spaces, similar to the literature on Multi30k."""
    return " ".join(_TOKEN.findall(text.lower()))


def translation_scores(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """Metrics of translations by sacrebleu, from 0 to 100.

    Returns:
        ``n``, ``bleu`` (detokenized, cased, tokenizer 13a), ``chrf``, ``bleu_tokenised`` (lower-cased),
        ``length_ratio`` (hypotheses / references) and ``signatures``.

    Raises:
        DataError: different numbers of texts, or no texts.
        GlassformerError: sacrebleu is not installed.
    """
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ImportError:
        what = "evaluating translations needs sacrebleu: pip install 'glassformer[translate]'"
        raise GlassformerError(f"{what}, or '.[translate]' in a clone") from None
    if len(hypotheses) != len(references) or not references:
        what = f"{len(hypotheses)} translations for {len(references)} references"
        raise UnequalLengthsError(what, where="translation_scores")
    bleu, chrf, word_bleu = BLEU(), CHRF(), BLEU(tokenize="none", force=True)
    score = bleu.corpus_score(list(hypotheses), [list(references)])
    characters = chrf.corpus_score(list(hypotheses), [list(references)])
    words = word_bleu.corpus_score(list(map(tokenize, hypotheses)), [list(map(tokenize, references))])
    return {
        "n": len(references),
        "bleu": float(score.score),
        "chrf": float(characters.score),
        "bleu_tokenised": float(words.score),
        "length_ratio": float(score.sys_len / max(score.ref_len, 1)),
        "signatures": {
            "bleu": str(bleu.get_signature()),
            "chrf": str(chrf.get_signature()),
            "bleu_tokenised": f"{word_bleu.get_signature()}, both sides lower-cased, words and marks apart",
        },
    }
