"""Files to texts, labels and token ids. Knows no model."""

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
