"""Sentences as inputs of taggers: texts, which are split into words, or lists of words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from glassformer.data.tagged import list_words
from glassformer.data.windows import joined_rows
from glassformer.inputs.inputs import CHARS_PER_TOKEN, Gathered, Inputs, Item, Served, chosen
from glassformer.inputs.rows import Given, Row, gather_rows, refuse_unreadable
from glassformer.inputs.texts import two_columns


class ServedSentences(Served):
    """Sentences in the server: texts, which are split into words, or lists of words."""

    neutral = "Ann left Rome on Monday ."

    def guess(self, x: str | Sequence[str]) -> int:
        return super().guess(x) if isinstance(x, str) else sum(len(word) // CHARS_PER_TOKEN + 1 for word in x)

    def length(self, x: str | Sequence[str]) -> int:
        return len(x) if isinstance(x, str) else sum(map(len, x)) + len(x) - 1

    def encode(self, inputs: Sequence[str | Sequence[str]], what: str = "inputs") -> list[Item]:
        parts = [self.clf.encode([words]) for words in self.clf.words_of(list(inputs), what)]
        return [Item(rows, len(rows.table.ids), given=x) for x, rows in zip(inputs, parts, strict=True)]

    def join(self, items: Sequence[Item]) -> Any:
        return joined_rows([item.encoded for item in items])


class Sentences(Inputs):
    """One example is one sentence, given as a text or as a list of words."""

    noun, single_text, served = "sentences", True, ServedSentences

    def rows(self, given: Given) -> list[Row]:
        """Texts, files of texts, CoNLL files, and tables with lists of words."""
        refuse_unreadable(given.words, given.skip)
        found: list[Row] = []
        for number, word in enumerate(given.words, 1):
            data = list_words(word, given.text_column, given.skip)
            if data is None:
                found += gather_rows(replace(given, words=[word], trained=()), number)
                continue
            split = data.splits["train"]
            row_numbers = split.rows or range(1, len(split) + 1)
            good = [Row(" ".join(w), n, word, words=w) for w, n in zip(split.words, row_numbers, strict=True)]
            bad = [Row("", row.row, word, error=row.reason) for row in data.rejected]
            found += sorted([*good, *bad], key=lambda row: row.row or 0)
        return found

    def gather(self, given: Given) -> Gathered:
        found = super().gather(given)
        # print the file name of each row if there are several files
        found.layout = found.layout._replace(files=len({row.file for row in found.rows}) > 1)
        return found

    def explained(self, given: Given, numbers: Sequence[int]) -> list[Any]:
        return chosen(gather_rows(given), numbers)  # explanations take texts, not lists of words

    def as_pairs(self, clf: Any) -> Inputs:
        return two_columns(clf)
