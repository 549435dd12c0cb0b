"""Sentences as inputs of taggers: lists of words, or texts that are split into words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from glassformer.data.tagged import load_words
from glassformer.data.windows import concatenate_sentences
from glassformer.inputs.inputs import CHARS_PER_TOKEN, Inputs, Item, RowChunks, ServedInputs, select_inputs
from glassformer.inputs.rows import InputRequest, Row, check_arguments, gather_rows
from glassformer.inputs.texts import as_text_pairs


class ServedSentences(ServedInputs):
    """How the server reads sentences: as lists of words, or as texts that are split into words."""

    default_example = "Ann left Rome on Monday ."

    def estimate_tokens(self, x: str | Sequence[str]) -> int:
        if isinstance(x, str):
            return super().estimate_tokens(x)
        return sum(len(word) // CHARS_PER_TOKEN + 1 for word in x)

    def length(self, x: str | Sequence[str]) -> int:
        return len(x) if isinstance(x, str) else sum(map(len, x)) + len(x) - 1

    def encode(self, inputs: Sequence[str | Sequence[str]], what: str = "inputs") -> list[Item]:
        encoded = [self.clf.encode([words]) for words in self.clf.words_of(list(inputs), what)]
        return [Item(s, len(s.table.ids), original=x) for x, s in zip(inputs, encoded, strict=True)]

    def join(self, items: Sequence[Item]) -> Any:
        return concatenate_sentences([item.encoded for item in items])


class Sentences(Inputs):
    """One example is one sentence, given as a text or as a list of words."""

    noun, example_is_one_text, served = "sentences", True, ServedSentences

    def rows(self, request: InputRequest) -> list[Row]:
        """One row per sentence, from texts, files of texts, CoNLL files and tables with lists of words."""
        check_arguments(request.arguments, request.skip)
        rows: list[Row] = []
        for number, argument in enumerate(request.arguments, 1):
            data = load_words(argument, request.text_column, request.skip)
            if data is None:
                rows += gather_rows(replace(request, arguments=[argument], training_columns=()), number)
                continue
            split = data.splits["train"]
            row_numbers = split.rows or range(1, len(split) + 1)
            numbered = zip(split.words, row_numbers, strict=True)
            usable = [Row(" ".join(words), n, argument, words=words) for words, n in numbered]
            unusable = [Row("", row.row, argument, error=row.reason) for row in data.rejected]
            rows += sorted([*usable, *unusable], key=lambda row: row.row or 0)
        return rows

    def gather(self, request: InputRequest) -> RowChunks:
        chunks = super().gather(request)
        # write the file name of each row if there are several files
        chunks.layout = chunks.layout._replace(files=len({row.file for row in chunks.rows}) > 1)
        return chunks

    def examples_of_arguments(self, request: InputRequest, numbers: Sequence[int]) -> list[Any]:
        return select_inputs(gather_rows(request), numbers)  # explanations take texts, not lists of words

    def as_pairs(self, clf: Any) -> Inputs:
        return as_text_pairs(clf)
