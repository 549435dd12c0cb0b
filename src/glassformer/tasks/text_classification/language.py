"""Detect texts that are not in the language of an encoder, by the number of tokens per word.

With BERT's English vocabulary, English texts have 1.0 to 1.2 tokens per word; French has 1.5, Vietnamese 1.9,
German 2.0.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from itertools import islice
from typing import Any

from glassformer.checkpoints.catalog import CATALOG
from glassformer.errors import OtherLanguageWarning
from glassformer.train.config import outside

OF_ENGLISH = (
    "all-minilm-l6-v2",
    "all-mpnet-base-v2",
    "bert-base-uncased",
    "bert-large-uncased",
    "distilbert-base-uncased",
)
WORD = re.compile(r"[^\W\d_]+")
MOST, LEAST = 5_000, 200  # maximum and minimum number of words to count
LIMIT = 1.4  # tokens per word above which texts are not English


def pieces_per_word(tokenizer: Any, texts: Sequence[str]) -> float | None:
    """Mean number of tokens per word, over the first words of the texts; None: too few words."""
    words = [*islice((word for text in texts for word in WORD.findall(text)), MOST)]
    if len(words) < LEAST:
        return None
    encodings = tokenizer.encode_batch(words, add_special_tokens=False)
    return sum(len(encoding.ids) for encoding in encodings) / len(words)


def pieces_if_foreign(model: str, tokenizer: Any, texts: Sequence[str]) -> float | None:
    """Tokens per word if the encoder is a known English one and the texts are not English; else None."""
    if CATALOG.get(str(model).lower()) not in [CATALOG[name] for name in OF_ENGLISH]:
        return None
    pieces = pieces_per_word(tokenizer, texts)
    return pieces if pieces is not None and pieces > LIMIT else None


def warn_of_language(model: str, tokenizer: Any, texts: Sequence[str]) -> None:
    """Warn if a known English encoder would be trained on texts in another language."""
    if (pieces := pieces_if_foreign(model, tokenizer, texts)) is not None:
        what = f"{model} was trained on English, and cuts a word of these texts into {pieces:.1f} pieces"
        fix = "a multilingual encoder may do better: model=xlm-roberta-base, from the Hub"
        warnings.warn(f"{what} (of English into 1.1): {fix}", OtherLanguageWarning, stacklevel=outside())
