"""Files to texts, labels and token ids. Knows no model."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the names of `_PUBLIC` for type checkers, which do not run `__getattr__`
    from glassformer.data.checks import check_classes, check_labels, check_texts
    from glassformer.data.dataset import TextDataset, TextSplit
    from glassformer.data.doctor import DoctorReport, Finding, examine
    from glassformer.data.sources import NAMED_SOURCES, load_text_dataset
    from glassformer.data.splits import split_by_distinct_text, stratified_split, stratified_subset
    from glassformer.data.text import (
        TokenTable,
        clean_text,
        encode,
        unknown_id,
        word_tokenizer,
        wordpiece_tokenizer,
    )
    from glassformer.data.tokenizer_file import load_tokenizer

# Public name -> its module, which is imported at the first use: most commands need few of them
_PUBLIC = {
    "NAMED_SOURCES": "sources",
    "check_classes": "checks",
    "check_labels": "checks",
    "check_texts": "checks",
    "clean_text": "text",
    "encode": "text",
    "examine": "doctor",
    "load_text_dataset": "sources",
    "load_tokenizer": "tokenizer_file",
    "split_by_distinct_text": "splits",
    "stratified_split": "splits",
    "stratified_subset": "splits",
    "unknown_id": "text",
    "word_tokenizer": "text",
    "wordpiece_tokenizer": "text",
    "DoctorReport": "doctor",
    "Finding": "doctor",
    "TextDataset": "dataset",
    "TextSplit": "dataset",
    "TokenTable": "text",
}

__all__ = [
    "NAMED_SOURCES",
    "DoctorReport",
    "Finding",
    "TextDataset",
    "TextSplit",
    "TokenTable",
    "check_classes",
    "check_labels",
    "check_texts",
    "clean_text",
    "encode",
    "examine",
    "load_text_dataset",
    "load_tokenizer",
    "split_by_distinct_text",
    "stratified_split",
    "stratified_subset",
    "unknown_id",
    "word_tokenizer",
    "wordpiece_tokenizer",
]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(f"glassformer.data.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module 'glassformer.data' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
