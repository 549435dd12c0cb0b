"""Questions and answers from files of every kind, and what the data doctor says of them."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from glassformer.data.answer_doctor import examine_qa
from glassformer.data.answered import TEXTS_PER_SPLIT, QASplit, is_squad, load_qa
from glassformer.data.dataset import Dataset
from glassformer.data.kinds import detect_kind
from glassformer.data.questions import Answers, Question
from glassformer.data.text import word_tokenizer
from glassformer.data.windows import encode_questions
from glassformer.errors import DataError

from .conftest import by_code, json_lines

CONTEXT = "Ada was born in Hanoi in 1923. Bo, a baker, lives in Rome."
ROWS = [
    ("Where was Ada born?", "Hanoi", 16),
    ("When was Ada born?", "1923", 25),
    ("Where does Ada live?", None, None),
]


def answers(text, start) -> list[dict]:
    return [] if text is None else [{"text": text, "answer_start": start}]


def squad(*qas: dict) -> str:
    data = [{"title": "t", "paragraphs": [{"context": CONTEXT, "qas": qas}]}]
    return json.dumps({"version": "v2.0", "data": data})


QAS = [
    {"id": f"q{i}", "question": question, "is_impossible": text is None, "answers": answers(text, start)}
    for i, (question, text, start) in enumerate(ROWS)
]
SQUAD = squad(*(qa | {"plausible_answers": answers("Rome", 53)} for qa in QAS))
FLAT = [
    {key: qa[key] for key in ("id", "question")}
    | {
        "context": CONTEXT,
        "answers": {key: [a[key] for a in qa["answers"]] for key in ("text", "answer_start")},
    }
    for qa in QAS
]


def test_files_of_every_kind_say_the_same(put, tmp_path):
    put("own/train-v2.0.json", SQUAD), put("own/dev.jsonl", json_lines(FLAT))
    pq.write_table(pa.Table.from_pylist(FLAT), tmp_path / "own" / "test-00000-of-00001.parquet")
    data = load_qa(tmp_path / "own")
    assert [*data.splits] == ["train", "validation", "test"]
    wanted = [Answers((text,), (start,)) if text else Answers() for _, text, start in ROWS]
    for split in data.splits.values():
        assert split.answers == wanted
        assert split.questions == [Question(question, CONTEXT) for question, _, _ in ROWS]
        assert list(split.ids) == ["q0", "q1", "q2"]
    rows = [f'{q},"{CONTEXT}",{text or ""}' for q, text, _ in ROWS]
    file = put("some.csv", ["question,context,answer", *rows])
    assert load_qa(file).splits["train"].answers == wanted
    assert is_squad(tmp_path / "own" / "train-v2.0.json")
    assert {detect_kind(path) for path in (tmp_path / "own", file, "facts")} == {"answers"}
    file = put("a.csv", "question,context,answer,answer_start\nWho?,Bo met Bo,Bo,7\n")  # the place by itself
    assert load_qa(file).splits["train"].answers == [Answers(("Bo",), (7,))]


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ("Who?,Bo met Bo,Bo", "row 3: the answer 'Bo' occurs 2 times in the context.*on_bad_row=skip"),
        ("Who?,Bo met Ann,Cleo", "row 3: the answer 'Cleo' is not in the context.*on_bad_row=skip"),
        ("Who?,,Bo", "row 3: the context is empty"),
    ],
)
def test_a_bad_row_is_named_and_can_be_passed_over(cells, said, put):
    file = put("a.csv", ["question,context,answer", "Who?,Bo met Ann,Ann", cells, "None?,Bo met Ann,"])
    with pytest.raises(DataError, match=said):
        load_qa(file)
    data = load_qa(file, on_bad_row="skip")
    assert len(data.splits["train"]) == 2
    assert [row.row for row in data.rejected] == [3]
    file = put("a.csv", ["question,context,answer", "Who?,Ann met Bob and Ann left.,Ann", cells])
    with pytest.raises(DataError, match=r"no question can be used; 2 rows left out; the first: .* 2 times"):
        load_qa(file, on_bad_row="skip")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.json", '{"data": [{"paragraphs": [{"qas": []}]}]}', "format of SQuAD: KeyError 'context'"),
        ("a.json", '{"data": [{"paragraphs": ', "not JSON"),
        ("a.csv", "one,two\n1,2\n", "no column of questions"),
        ("a.xml", "<a/>", "files of type '.xml' are not supported"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(name, text, said, put):
    with pytest.raises(DataError, match=said):
        load_qa(put(name, text))


def test_the_generated_texts_are_the_same_every_time_and_share_nobody():
    data = load_qa("facts")
    assert {name: len(set(split.texts)) for name, split in data.splits.items()} == TEXTS_PER_SPLIT
    again = load_qa("facts", limit=7)
    assert all(len(split) == 7 for split in again.splits.values())
    assert set(again.splits["test"].questions) <= set(data.splits["test"].questions)
    for name, split in data.splits.items():
        for question, own in zip(split.questions, split.answers, strict=True):
            for text, start in zip(own.texts, own.starts, strict=True):
                assert question.context[start : start + len(text)] == text, name
    assert by_code(examine_qa(data), "warning") == {}


def test_the_doctor_finds_repeats_leaks_borders_and_what_windows_lose():
    long = "Ann likes " + "very " * 9 + "old cheese."
    train = QASplit(
        [Question("Who?", "Bo met Ann."), Question("who", "Bo met Ann."), Question("What?", long)],
        [Answers(("Bo",), (0,)), Answers(("An",), (7,)), Answers((long[10:-1],), (10,))],
        "a.csv",
    )
    test = QASplit([Question("Whom?", "bo met  ann.")], [Answers()], "b.csv")
    tokenizer = word_tokenizer(train.texts, min_count=1)
    windows = encode_questions(tokenizer, train.questions, max_length=11, stride=2, max_question=3)
    report = examine_qa(Dataset("x", {"train": train, "test": test}), {"train": windows})
    codes = {"duplicates", "contradictions", "leaks", "no-answer", "answer-borders", "lost-answers"}
    assert by_code(report, "warning").keys() == codes
    assert report.figures["leaks"] == {"train/test": 1}
    assert report.figures["splits"]["train"]["windows"]["several"] == 1


@pytest.mark.parametrize("start", ["16", " 16 ", "16.0", 16.0, 16, ["16"], [16.0], None, ""])
@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "squad.json", "a.csv"])
def test_a_place_may_be_written_as_text(put, name, start):
    row = {"question": ROWS[0][0], "context": CONTEXT, "answers": {"text": ["Hanoi"], "answer_start": start}}
    place = start[0] if isinstance(start, list) else start
    cells = ROWS[0][0], CONTEXT, "Hanoi", "" if place is None else place
    content = {
        "a.jsonl": json.dumps(row),
        "a.json": json.dumps([row]),
        "squad.json": squad({"id": "q", "question": ROWS[0][0], "answers": answers("Hanoi", start)}),
        "a.csv": ["question,context,answer,answer_start", ",".join(f'"{cell}"' for cell in cells)],
    }
    assert load_qa(put(name, content[name])).splits["train"].answers == [Answers(("Hanoi",), (16,))]


@pytest.mark.parametrize("start", ["here", "16.5", 16.5, True, "0x10"])
def test_a_place_that_is_not_a_number_is_named(put, start):
    answer = {"text": ["Hanoi"], "answer_start": [start]}
    row = {"question": ROWS[0][0], "context": CONTEXT, "answers": answer}
    with pytest.raises(DataError, match=r"row 1: answer_start = .* is not a whole number"):
        load_qa(put("a.jsonl", json.dumps(row)))
