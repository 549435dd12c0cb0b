"""Questions and answers from files of every kind, and what the data doctor says of them."""

import json

import pytest

from glassformer.data.answer_doctor import examine_qa
from glassformer.data.answered import TEXTS_PER_SPLIT, QASplit, is_squad, load_qa
from glassformer.data.dataset import Dataset
from glassformer.data.kinds import detect_kind
from glassformer.data.questions import Answers, Question
from glassformer.errors import DataError

CONTEXT = "Ada was born in Hanoi in 1923. Bo, a baker, lives in Rome."
ROWS = [
    ("Where was Ada born?", "Hanoi", 16),
    ("When was Ada born?", "1923", 25),
    ("Where does Ada live?", None, None),
]


def squad() -> dict:
    qas = [
        {
            "id": f"q{i}",
            "question": question,
            "is_impossible": text is None,
            "answers": [] if text is None else [{"text": text, "answer_start": start}],
            "plausible_answers": [{"text": "Rome", "answer_start": 53}],
        }
        for i, (question, text, start) in enumerate(ROWS)
    ]
    return {"version": "v2.0", "data": [{"title": "t", "paragraphs": [{"context": CONTEXT, "qas": qas}]}]}


def flat() -> list[dict]:
    return [
        {
            "id": f"q{i}",
            "question": question,
            "context": CONTEXT,
            "answers": {"text": [text] if text else [], "answer_start": [start] if text else []},
        }
        for i, (question, text, start) in enumerate(ROWS)
    ]


def test_files_of_every_kind_say_the_same(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "train-v2.0.json").write_text(json.dumps(squad(), indent=1))
    (tmp_path / "own" / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in flat()))
    pq.write_table(pa.Table.from_pylist(flat()), tmp_path / "own" / "test-00000-of-00001.parquet")
    data = load_qa(tmp_path / "own")
    assert [*data.splits] == ["train", "validation", "test"]
    wanted = [Answers((text,), (start,)) if text else Answers() for _, text, start in ROWS]
    for split in data.splits.values():
        assert split.answers == wanted
        assert split.questions == [Question(question, CONTEXT) for question, _, _ in ROWS]
        assert list(split.ids) == ["q0", "q1", "q2"]
    lines = ["question,context,answer"] + [f'{q},"{CONTEXT}",{text or ""}' for q, text, _ in ROWS]
    (tmp_path / "some.csv").write_text("\n".join(lines))
    assert load_qa(tmp_path / "some.csv").splits["train"].answers == wanted
    assert is_squad(tmp_path / "own" / "train-v2.0.json")
    kinds = {detect_kind(path) for path in (tmp_path / "own", tmp_path / "some.csv", "facts")}
    assert kinds == {"answers"}


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ("Who?,Bo met Bo,Bo", "row 3: the answer 'Bo' occurs 2 times in the context"),
        ("Who?,Bo met Ann,Cleo", "row 3: the answer 'Cleo' is not in the context"),
        ("Who?,,Bo", "row 3: the context is empty"),
    ],
)
def test_a_bad_row_is_named_and_can_be_passed_over(cells, said, tmp_path):
    file = tmp_path / "a.csv"
    file.write_text(f"question,context,answer\nWho?,Bo met Ann,Ann\n{cells}\nNone?,Bo met Ann,\n")
    with pytest.raises(DataError, match=f"{said}.*on_bad_row=skip" if "empty" not in said else said):
        load_qa(file)
    data = load_qa(file, on_bad_row="skip")
    assert len(data.splits["train"]) == 2
    assert [row.row for row in data.rejected] == [3]


def test_the_place_may_stand_in_a_column_of_its_own(tmp_path):
    (tmp_path / "a.csv").write_text("question,context,answer,answer_start\nWho?,Bo met Bo,Bo,7\n")
    assert load_qa(tmp_path / "a.csv").splits["train"].answers == [Answers(("Bo",), (7,))]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "a.json",
            '{"data": [{"paragraphs": [{"qas": []}]}]}',
            "not in the format of SQuAD: KeyError 'context'",
        ),
        ("a.json", '{"data": [{"paragraphs": ', "not JSON"),
        ("a.csv", "one,two\n1,2\n", "no column of questions"),
        ("a.xml", "<a/>", "files of type '.xml' are not supported"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(name, text, said, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=said):
        load_qa(tmp_path / name)


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
    report = examine_qa(data)
    assert {f.code for f in report.findings if f.severity == "warning"} == set()


def test_the_doctor_finds_repeats_leaks_borders_and_what_windows_lose():
    from glassformer.data.text import word_tokenizer
    from glassformer.data.windows import encode_questions

    long = "Ann likes " + "very " * 9 + "old cheese."
    train = QASplit(
        [Question("Who?", "Bo met Ann."), Question("who", "Bo met Ann."), Question("What?", long)],
        [Answers(("Bo",), (0,)), Answers(("An",), (7,)), Answers((long[10:-1],), (10,))],
        "a.csv",
    )
    test = QASplit([Question("Whom?", "bo met  ann.")], [Answers()], "b.csv")
    windows = {
        "train": encode_questions(
            word_tokenizer(train.texts, min_count=1), train.questions, max_length=11, stride=2, max_question=3
        )
    }
    report = examine_qa(Dataset("x", {"train": train, "test": test}), windows)
    codes = {f.code for f in report.findings if f.severity == "warning"}
    assert codes == {"duplicates", "contradictions", "leaks", "no-answer", "answer-borders", "lost-answers"}
    assert report.figures["leaks"] == {"train/test": 1}
    assert report.figures["splits"]["train"]["windows"]["several"] == 1


def test_where_no_question_is_left_the_first_reason_is_said(tmp_path):
    file = tmp_path / "q.csv"
    file.write_text("question,context,answer\nWho?,Ann met Bob and Ann left.,Ann\nWhere?,In Rome.,Paris\n")
    with pytest.raises(
        DataError, match=r"no question can be used; 2 rows left out; the first: .* occurs 2 times"
    ):
        load_qa(file, on_bad_row="skip")


@pytest.mark.parametrize("start", ["16", " 16 ", "16.0", 16.0, 16, ["16"], [16.0], None, ""])
@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "squad.json", "a.csv"])
def test_a_place_may_be_written_as_text(tmp_path, name, start):
    first = ROWS[0][0], CONTEXT, "Hanoi"
    path = tmp_path / name
    if name == "squad.json":
        qa = {"id": "q", "question": first[0], "answers": [{"text": "Hanoi", "answer_start": start}]}
        path.write_text(json.dumps({"data": [{"paragraphs": [{"context": CONTEXT, "qas": [qa]}]}]}))
    elif name == "a.csv":
        place = start[0] if isinstance(start, list) else start
        cells = (*first, "" if place is None else str(place))
        path.write_text(
            "question,context,answer,answer_start\n" + ",".join(f'"{cell}"' for cell in cells) + "\n"
        )
    else:
        row = {
            "question": first[0],
            "context": CONTEXT,
            "answers": {"text": ["Hanoi"], "answer_start": start},
        }
        path.write_text(json.dumps([row] if name == "a.json" else row))
    assert load_qa(path).splits["train"].answers == [Answers(("Hanoi",), (16,))]


@pytest.mark.parametrize("start", ["here", "16.5", 16.5, True, "0x10"])
def test_a_place_that_is_not_a_number_is_named(tmp_path, start):
    path = tmp_path / "a.jsonl"
    answer = {"text": ["Hanoi"], "answer_start": [start]}
    path.write_text(json.dumps({"question": ROWS[0][0], "context": CONTEXT, "answers": answer}))
    with pytest.raises(DataError, match=r"row 1: answer_start = .* is not a whole number"):
        load_qa(path)
