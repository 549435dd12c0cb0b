"""Examples in memory: which columns a table has, what has no order, targets, and labels among the inputs."""

from collections import Counter, OrderedDict, namedtuple
from types import MappingProxyType

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from glassformer.data import check_labels, check_texts
from glassformer.data.checks import check_weights
from glassformer.data.columns import check_no_target_column, check_no_target_in_pairs, check_no_target_side
from glassformer.data.dataset import TextSplit
from glassformer.data.image import check_images
from glassformer.data.in_memory import as_targets, column_with_longest_values, open_table, read_rows, table_of
from glassformer.data.numbers import check_numbers
from glassformer.data.questions import check_questions
from glassformer.data.sentences import read_corpus
from glassformer.data.tags import check_tags, check_words
from glassformer.data.text_pairs import TextPair, check_inputs
from glassformer.errors import DataError

FIRST, SECOND = ["a dog", "a cat", "a hen"], ["runs", "sits", "eats"]
COLUMNS = {"premise": FIRST, "claim": SECOND}


class Frame:
    """What polars has, without polars: names, columns by name, a length."""

    def __init__(self, columns):
        self.data, self.columns = columns, list(columns)

    def __getitem__(self, name):
        return self.data[name]

    def __len__(self):
        return len(next(iter(self.data.values())))


def dataset(columns):
    return pytest.importorskip("datasets").Dataset.from_dict(columns)


def polars(columns):
    return pytest.importorskip("polars").DataFrame(columns)


def rows(columns):
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def named_tuples(columns):
    kind = namedtuple("Row", columns)
    return [kind(*row) for row in zip(*columns.values(), strict=True)]


NAMED = {
    "pandas": pd.DataFrame,
    "arrow": pa.table,
    "record batch": pa.RecordBatch.from_pydict,
    "datasets": dataset,
    "polars": polars,
    "like polars": Frame,
    "list of dicts": rows,
    "tuple of dicts": lambda columns: tuple(rows(columns)),
    "generator of dicts": lambda columns: iter(rows(columns)),
    "series of dicts": lambda columns: pd.Series(rows(columns)),
    "rows of a frame": lambda columns: [row for _, row in pd.DataFrame(columns).iterrows()],
    "named tuples": named_tuples,
    "dict of columns": dict,
    "mapping of columns": MappingProxyType,
    "record array": lambda columns: pd.DataFrame(columns).to_records(index=False),
}


@pytest.mark.parametrize("form", NAMED)
def test_columns_are_taken_by_name(form):
    for order in (["premise", "claim"], ["claim", "premise"]):
        X = NAMED[form]({name: COLUMNS[name] for name in order} | {"other": [1, 2, 3]})
        assert read_rows(X, "X", "texts", names=["premise", "claim"]) == list(zip(FIRST, SECOND, strict=True))
    assert read_rows(NAMED[form](COLUMNS), "X", "texts", names=["claim"]) == SECOND
    with pytest.raises(DataError, match=r"no column 'claims'; expected: 'claims'. Did you mean 'claim'\?"):
        read_rows(NAMED[form](COLUMNS), "X", "texts", names=["claims"])


@pytest.mark.parametrize("form", NAMED)
def test_one_column_is_a_list_and_two_are_pairs(form):
    assert check_texts(NAMED[form]({"premise": FIRST})) == FIRST
    pairs = [pair.sides for pair in check_inputs(NAMED[form](COLUMNS))]
    assert pairs == list(zip(FIRST, SECOND, strict=True))
    three = NAMED[form]({"id": [7, 8, 9], **COLUMNS})
    with pytest.raises(
        DataError, match=r"a table with 3 columns \(id, premise, claim\), expected one column"
    ):
        check_inputs(three)
    with pytest.raises(DataError, match=r"a table with 2 columns .* Give the column of texts: "):
        check_texts(NAMED[form](COLUMNS))


@pytest.mark.parametrize("form", NAMED)
def test_the_code_of_a_message_takes_the_columns(form):
    X = NAMED[form]({"id": [7, 8, 9], **COLUMNS})
    X = list(X) if form.startswith("generator") else X
    table = open_table(X, "X")
    assert column_with_longest_values(table) == "premise"
    one, two = table.code("premise"), table.code("premise", "claim")
    if form != "like polars":
        assert check_texts(eval(one, {"X": X})) == FIRST
        pairs = check_inputs(eval(two, {"X": X}))
        assert [pair.sides for pair in pairs] == list(zip(FIRST, SECOND, strict=True))


@pytest.mark.parametrize(
    "X",
    [
        *(np.array(FIRST, kind)[:, None] for kind in (str, object, np.dtypes.StringDType())),
        *([[text] for text in FIRST], [(text,) for text in FIRST], iter(FIRST)),
        *(dict.fromkeys(FIRST, 1).keys(), dict(enumerate(FIRST)).values()),
        *(pd.Series(FIRST), pd.Index(FIRST), pd.Series(FIRST, dtype="category")),
        *(pa.array(FIRST), pa.chunked_array([FIRST]), pa.array(FIRST).dictionary_encode()),
    ],
)
def test_what_is_one_column(X):
    assert check_inputs(X) == FIRST


def test_columns_of_a_data_set_of_the_hub():
    assert check_inputs(dataset(COLUMNS)["premise"]) == FIRST
    datasets = pytest.importorskip("datasets")
    stream = datasets.IterableDataset.from_generator(lambda: iter(rows(COLUMNS)))
    assert read_rows(stream, "X", "texts", names=["claim"]) == SECOND
    splits = datasets.DatasetDict(train=dataset(COLUMNS))
    with pytest.raises(DataError, match=r"a DatasetDict where a list of texts is expected. .*X\['train'\]"):
        check_texts(splits)


UNORDERED = {
    "set": ({*FIRST}, "a set, which has no order, where a list"),
    "frozenset": (frozenset(FIRST), "a frozenset, which has no order, where a list"),
    "dict of texts": (dict(enumerate(FIRST)), "a dict where a list"),
    "ordered dict": (OrderedDict(enumerate(FIRST)), "an? OrderedDict where a list"),
    "counter": (Counter(FIRST), "a Counter where a list"),
    "items": (dict(enumerate(FIRST)).items(), "dict_items where a list"),
    "text": ("a dog", "one string"),
    "dict of lists of several lengths": ({"data": FIRST, "names": SECOND[:1]}, r"Give one .*X\['data'\]"),
    "bytes": (b"a dog", "one string where a list"),
    "nothing": (None, "nothing where a list"),
    "number": (7, "an int where a list"),
    "array of no dimension": (np.array("a dog"), "an? ndarray where a list"),
}
READERS = {"texts": check_texts, "inputs": check_inputs, "labels": check_labels, "numbers": check_numbers}
READERS |= {
    "sentences": check_words,
    "pictures": check_images,
    "questions": check_questions,
    "corpus": read_corpus,
}
READERS |= {"tags": lambda y: check_tags(y, [["a"]]), "weights": lambda w: check_weights(w, 3)}


ONE = {"text", "bytes"}


@pytest.mark.parametrize("name", UNORDERED)
@pytest.mark.parametrize("reader", [*READERS])
def test_what_has_no_order_raises_everywhere(reader, name):
    given, said = UNORDERED[name]
    if reader == "corpus" and name == "text":
        return  # a path
    if reader == "tags" and name in {*ONE, "nothing"}:
        said = "the tags are missing"
    if reader == "pictures" and name in ONE:
        said = "one image where a list is expected"
    if reader == "questions" and (name in ONE or (isinstance(given, dict) and name != "items")):
        said = "is not a list of questions"
    with pytest.raises(DataError, match=said):
        READERS[reader](given)


def test_a_missing_value_is_named_by_its_row():
    with pytest.raises(DataError, match=r"X\[1\]: no 'claim'"):
        read_rows([{"premise": "a", "claim": "b"}, {"premise": "c"}], "X", "texts", max_columns=2)
    with pytest.raises(DataError, match=r"X\[2\]: a str where the first row is a dict"):
        read_rows([{"premise": "a"}, {"premise": "b"}, "c"], "X", "texts")


def test_two_columns_with_one_name():
    twice = pd.concat([pd.Series(FIRST, name="a"), pd.Series(SECOND, name="a")], axis=1)
    with pytest.raises(DataError, match="two columns are called 'a'"):
        check_inputs(twice)
    with pytest.raises(DataError, match="a table without columns"):
        check_texts(pd.DataFrame(index=[1, 2]))


def test_columns_without_names_are_taken_by_place():
    X = pd.DataFrame(list(zip(FIRST, SECOND, strict=True)))
    assert table_of(X).names is None
    found = read_rows(X, "X", "texts", max_columns=2, names=["a", "b"])
    assert found == list(zip(FIRST, SECOND, strict=True))
    array = X.to_numpy()
    assert table_of(array).names is None
    assert read_rows(array, "X", "texts", max_columns=2) == list(zip(FIRST, SECOND, strict=True))
    assert table_of(np.zeros((3, 2))) is None
    assert table_of({"id 1": "a dog"}) is None
    assert table_of({"a": ["x"], "b": ["y", "z"]}) is None
    assert table_of({}) is None


LABELS, NUMBERS = ["yes", "no", "yes"], [1.5, 2.0, -3.0]


@pytest.mark.parametrize("named", [pd.DataFrame, pa.table, dict, Frame, dataset])
def test_one_column_of_targets_by_name(named):
    one_column(lambda y: named({"y": y}))


@pytest.mark.parametrize(
    "form",
    [lambda y: np.array(y)[:, None], pd.Series, pa.array, tuple, iter, lambda y: dataset({"y": y})["y"]],
)
def test_one_column_of_targets(form):
    one_column(form)


def one_column(form) -> None:
    assert check_labels(form(LABELS)) == LABELS
    assert check_numbers(form(NUMBERS)) == NUMBERS
    np.testing.assert_allclose(check_weights(form([1.0, 2.0, 3.0]), 3), [0.5, 1.0, 1.5])


def test_targets_of_several_columns_stay_as_they_are():
    matrix = np.eye(3, dtype=int)
    assert as_targets(matrix) is matrix
    frame = pd.DataFrame(matrix)
    assert as_targets(frame) is frame
    with pytest.raises(DataError, match=r"labels of shape \(3, 3\)"):
        check_labels(matrix)
    with pytest.raises(DataError, match=r"a table with 2 columns \(a, b\), expected one column of numbers"):
        check_numbers(pd.DataFrame({"a": NUMBERS, "b": NUMBERS}))
    assert check_labels(torch.tensor([1, 0, 1])) == [1, 0, 1]
    assert check_labels(torch.tensor([[True], [False]])) == [1, 0]


def test_pictures_in_columns():
    paths = ["a.png", "b.png"]
    for X in (np.array(paths)[:, None], pd.DataFrame({"image": paths}), [[path] for path in paths]):
        assert check_images(X) == paths
    record = [{"bytes": b"x", "path": None}, {"bytes": b"y", "path": None}]
    assert check_images(record) == record
    assert check_images([{"image": row} for row in record]) == record
    pixels = np.zeros((2, 5, 7, 3), np.uint8)
    assert len(check_images(pixels)) == len(check_images(pd.DataFrame({"x": list(pixels)}))) == 2
    with pytest.raises(DataError, match="one image where a list is expected"):
        check_images(record[0])
    with pytest.raises(DataError, match=r"Give the column of images: X\['image'\]"):
        check_images(pd.DataFrame({"label": [1, 2], "image": list(pixels)}))


def test_sentences_in_columns():
    words = [["a", "dog"], ["one"], ["the", "end", "."]]
    arrow = pa.table({"tokens": words})["tokens"]
    for X in (words, pd.Series(words), pd.DataFrame({"tokens": words}), arrow):
        assert check_words(X) == words
        assert check_tags(X, words) == words
    assert check_words([["dog"], ["cat"]]) == [["dog"], ["cat"]]  # sentences of one word
    assert check_words(np.array([["a", "dog"], ["the", "cat"]])) == [["a", "dog"], ["the", "cat"]]
    found = check_words(np.array([["New York is big"], ["so it is"]]))
    assert found == [["New", "York", "is", "big"], ["so", "it", "is"]]


@pytest.mark.parametrize("form", NAMED)
def test_questions_by_name(form):
    X = {"id": [1, 2, 3], "context": FIRST, "question": SECOND}
    assert check_questions(NAMED[form](X)) == list(zip(SECOND, FIRST, strict=True))
    if form != "named tuples":  # which are tuples of two
        with pytest.raises(DataError, match=r"no.*'context'"):
            check_questions(NAMED[form]({"question": FIRST, "passage": SECOND}))


def test_a_corpus_of_sentences_in_a_column():
    texts = ["a dog runs", "a dog sits", "a cat runs"]
    own = read_corpus(texts, min_count=1)
    for X in (pd.DataFrame({"text": texts}), np.array(texts)[:, None], pa.table({"t": texts})):
        assert read_corpus(X, min_count=1).digest() == own.digest()
    grid = np.array([text.split() for text in texts])
    assert read_corpus(grid, min_count=1).digest() == own.digest()


# --- a column that contains the labels is found, whatever it is called -----------------------------------


N = 23
TEXTS = [f"text number {i}" for i in range(N)]
KINDS = [("pos", "neg", "none")[i * i % 3] for i in range(N)]
CODES = [{"pos": 2, "neg": 0, "none": 1}[label] for label in KINDS]
SIDES = [f"side {i % 4}" for i in range(N)]


def refuse(columns, y, most=2):
    return check_no_target_column(table_of(pd.DataFrame(columns)), y, most, "texts")


@pytest.mark.parametrize(
    ("column", "y"),
    [
        (KINDS, KINDS),
        (KINDS, CODES),  # as LabelEncoder makes them
        (CODES, KINDS),
        (CODES, CODES),
        (list(map(str, CODES)), [float(code) for code in CODES]),
        ([f" {label.upper()} " for label in KINDS], KINDS),
        (KINDS, [label == "pos" for label in KINDS]),  # one class against the others
        ([float(i) for i in range(N)], list(range(N))),  # a number each
        ([str(i / 7) for i in range(N)], [i / 7 for i in range(N)]),
    ],
)
def test_a_column_of_the_labels_raises(column, y):
    said = r"column 'label' of X contains the labels. Give the column of texts without the labels: fit\(X\['text'\], X\['label'\]\)"
    with pytest.raises(DataError, match=said):
        refuse({"text": TEXTS, "label": column}, y)
    with pytest.raises(DataError, match=said):
        refuse({"label": column, "text": TEXTS}, y)
    with pytest.raises(DataError, match=said):
        refuse({"id": range(7, 7 + N), "text": TEXTS, "label": column}, y)


def test_a_column_by_any_other_name():
    with pytest.raises(DataError, match="column 'x' of X contains the labels"):
        refuse({"text": TEXTS, "x": KINDS}, CODES)
    with pytest.raises(DataError, match=r"column 'x' .* Give the column of texts"):
        refuse({"x": KINDS}, KINDS)


def test_the_fix_names_both_sides_of_pairs():
    with pytest.raises(DataError, match=r"fit\(X\[\['premise', 'hypothesis'\]\], X\['label'\]\)"):
        refuse({"premise": TEXTS, "hypothesis": SIDES, "label": KINDS}, CODES)
    with pytest.raises(DataError, match=r"fit\(X\[\['sentence1', 'sentence2'\]\], X\['score'\]\)"):
        refuse({"sentence1": TEXTS, "sentence2": SIDES, "score": [i / 7 for i in range(N)]}, None)


@pytest.mark.parametrize(
    ("columns", "y"),
    [
        ({"text": TEXTS}, KINDS),
        ({"premise": TEXTS, "hypothesis": SIDES}, KINDS),
        ({"premise": TEXTS, "hypothesis": SIDES}, [float(i) for i in range(N)]),
        ({"premise": TEXTS, "hypothesis": SIDES}, None),
        ({"text": ["good", "bad"] * 10}, [1, 0] * 10),  # a few texts that are repeated
        ({"a": ["x y", "z w"] * 10, "b": ["good", "bad"] * 10}, [1, 0] * 10),
        ({"a": TEXTS, "topic": KINDS}, [int(i > 7) for i in range(N)]),  # tells something, not the label
        ({"text": TEXTS, "label": KINDS}, [int(i > 7) for i in range(N)]),
    ],
)
def test_what_is_no_label_is_left_alone(columns, y):
    assert refuse(columns, y) is None


def test_sides_of_tuples():
    with pytest.raises(
        DataError, match=r"the second text of each pair has one value for each.*\[pair\[0\] for"
    ):
        check_no_target_side([TEXTS, KINDS], CODES, "texts")
    with pytest.raises(DataError, match=r"the first text of each pair is its label.*\[pair\[1\] for pair in"):
        check_no_target_side([KINDS, TEXTS], KINDS, "texts")
    check_no_target_side([TEXTS, SIDES], KINDS, "texts")


@pytest.mark.parametrize(
    ("sides", "said"),
    [
        ((TEXTS, KINDS), "column 'b c', read as the second text of pairs, has one value for each label. "),
        (
            (TEXTS, list(map(str, CODES))),
            "column 'b c', read as the second text of pairs, contains the labels. ",
        ),
        (
            (list(map(str, CODES)), TEXTS),
            "column 'a', read as the first text of pairs, contains the labels. ",
        ),
    ],
)
def test_sides_of_two_columns_of_a_table(sides, said):
    pairs = [TextPair(*pair) for pair in zip(*sides, strict=True)]
    fix = "Read only 'a': text_column a pair_column none"
    if sides[1] is TEXTS:
        fix = "Read only 'b c': text_column 'b c' pair_column none"
    with pytest.raises(DataError) as raised:
        check_no_target_in_pairs(TextSplit(pairs, CODES, "t.csv"), ("a", "b c"))
    assert str(raised.value) == f"t.csv: {said}{fix}"
    others = [TextPair(*pair) for pair in zip(TEXTS, SIDES, strict=True)]
    assert check_no_target_in_pairs(TextSplit(others, CODES, "t.csv"), ("a", "b c")) is None
