"""Questions with contexts as inputs of question-answering models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glassformer.data.answered import find_question_columns, is_squad, load_qa
from glassformer.data.questions import check_questions
from glassformer.data.text_pairs import TextPair
from glassformer.data.windows import concatenate_questions
from glassformer.inputs.inputs import CHARS_PER_TOKEN, Inputs, Item, ServedInputs
from glassformer.inputs.rows import InputRequest, Row, check_arguments
from glassformer.inputs.texts import gather_pairs, read_pairs

TEXT_NAMES = ("question", "text")  # names of the two texts of an input in messages


class ServedQuestions(ServedInputs):
    """How the server reads pairs (question, context)."""

    pairs = True
    length_field = "text_pair"
    default_example = ("Where was Ada born?", "Ada was born in Hanoi in 1923.")

    def estimate_tokens(self, x: Sequence[str]) -> int:
        # Doubled, because windows overlap and each repeats the question; 4 for rounding and special tokens.
        return 2 * self.length(x) // CHARS_PER_TOKEN + 4

    def length(self, x: Sequence[str]) -> int:
        return sum(map(len, x))

    def encode(self, inputs: Sequence[Sequence[str]], what: str = "questions") -> list[Item]:
        questions = check_questions(list(map(tuple, inputs)), what)
        encoded = [self.clf.encode([question]) for question in questions]
        return [
            Item(windows, len(windows.table.ids), bool(windows.table.truncated.any()), question)
            for question, windows in zip(questions, encoded, strict=True)
        ]

    def join(self, items: Sequence[Item]) -> Any:
        return concatenate_questions([item.encoded for item in items])


class Questions(Inputs):
    """Inputs with one question and its context per example."""

    noun, placeholder = "questions", '"A QUESTION" "A TEXT WITH ITS ANSWER"'
    served = ServedQuestions

    def rows(self, request: InputRequest) -> list[Row]:
        """One row per question: two arguments, or one entry of a file or of standard input.

        Files are JSON in SQuAD's format, tables with columns question and context, and ``.txt`` files. A line
        of a ``.txt`` file or of standard input has both texts, separated by a tab.
        """
        check_arguments(request.arguments, request.skip)
        return gather_pairs(request, TEXT_NAMES, _read_file)


def _read_file(path: Path, request: InputRequest) -> list[Row]:
    if path.is_file() and is_squad(path):
        data = load_qa(path, on_bad_row="skip" if request.skip else "refuse", need_answers=False)
        (split,) = data.splits.values()
        rows = split.rows or range(1, len(split) + 1)
        usable = [Row(TextPair(*q), row, str(path)) for q, row in zip(split.questions, rows, strict=True)]
        unusable = [Row(TextPair("", ""), row.row, str(path), error=row.reason) for row in data.rejected]
        return sorted([*usable, *unusable], key=lambda row: row.row or 0)
    columns = request.text_column, request.pair_column
    return read_pairs(path, lambda table: find_question_columns(table, *columns), request)
