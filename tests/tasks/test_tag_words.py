"""How a text becomes words: punctuation apart where the training words have it so, places kept."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import glassformer as gf
from glassformer.data.kinds import kind_of
from glassformer.data.tagged import load_tagged
from glassformer.data.tags import MARKS, check_words, places_of_words, whole_words_of
from glassformer.errors import CheckpointError, DataError, InputError
from glassformer.export.words import SCRIPT
from glassformer.tasks.task import TINY
from glassformer.tasks.token_tagging.explain import number_of

TEXTS = {
    "We met in Bath, on Monday.": "We met in Bath , on Monday .",
    "two USB-C cables (blue), O'Brien's": "two USB-C cables ( blue ) , O'Brien's",
    "J. Smith of the U.S. said...": "J. Smith of the U.S. said ...",
    'Dr. Who? "Yes!"': 'Dr. Who ? " Yes ! "',
    "due 07.06.2025.  at 12:30": "due 07.06.2025 . at 12:30",
    ":) #tag @me -5 3,50": ":) #tag @me -5 3,50",
}


@pytest.mark.parametrize("text", TEXTS)
def test_marks_at_the_borders_are_words(text: str):
    places = places_of_words(text, {"Dr."})
    assert [text[a:b] for a, b in places] == TEXTS[text].split()
    assert places == sorted(places)
    assert [text[a:b] for a, b in places_of_words(text)] == text.split()
    assert check_words([text, [text]], whole={"Dr."}) == [TEXTS[text].split(), [text]]  # given words stay


@pytest.mark.parametrize("text", TEXTS)
def test_the_exported_script_splits_alike(text: str):
    code = SCRIPT.read_text(encoding="utf-8")
    known = {"ABOUT": {"whole_words": ["Dr."]}, "re": re}
    exec(re.search(r"^MARKS = .*$", code, re.MULTILINE)[0], known)
    exec(code[code.index("def split(") : code.index("for text in sys.argv")], known)
    assert known["split"](text) == TEXTS[text].split()
    assert set(known["MARKS"]) == MARKS
    known["ABOUT"]["whole_words"] = None
    assert known["split"](text) == text.split()


def test_training_words_say_what_keeps_its_marks():
    apart = [["Dr.", "Who", "met", "Bo", ",", "in", "Bath", "."], ["in", "Bath,", "and", "Bath", "."]]
    assert whole_words_of(apart) == ["Dr."]  # "Bath," is rarer than "Bath"
    assert whole_words_of([["Dr.", "Who", "met", "Bo,", "in", "Bath."]]) is None
    assert whole_words_of([["no", "marks"]]) == []


def test_spans_of_a_text_end_before_its_marks(tmp_path: Path):
    words = [["Ann", "left", "Rome", "."], ["Bo", "saw", "Oslo", ",", "too"], ["nobody", "came", "."]] * 7
    tags = [["O", "O", "B-place", "O"], ["O", "O", "B-place", "O", "O"], ["O"] * 3] * 7
    settings = {**TINY, "max_length": 17, "min_count": 1, "epochs": 30, "lr": 0.01, "batch_size": 5}
    tagger = gf.TokenTagger("encoder-mini", **settings).fit(words, tags)
    text = "Ann left Rome, Bo left Oslo."
    again = gf.load(tagger.save(tmp_path / "model"))
    for each in (tagger, again):
        (spans,) = each.spans([text])
        assert [(s.text, s.start, s.end, s.first, s.last) for s in spans] == [
            ("Rome", 9, 13, 2, 3),
            ("Oslo", 23, 27, 6, 7),
        ]
        assert each.predict([text]) == each.predict([["Ann", "left", "Rome", ",", "Bo", "left", "Oslo", "."]])
    folder = tmp_path / "model"
    about = json.loads((folder / "glassformer.json").read_text())
    assert about.pop("whole_words") == []
    before = gf.TokenTagger.restore(folder, about)  # as it was saved without them
    assert len(before.predict([text])[0]) == 6
    with pytest.raises(CheckpointError, match="whole_words"):
        gf.TokenTagger.restore(folder, about | {"whole_words": 5})


def test_a_blank_in_place_of_the_tab_is_read_and_said(tmp_path: Path):
    file = tmp_path / "a.conll"
    file.write_text("Ann\tB-x\nMill  O\n\nok\tO\nsoap I-x\nbar\tO\n\nin New York\tB-x\ncame\tO\n")
    data = load_tagged(file)
    assert data.splits["train"].words == [["Ann", "Mill"], ["ok", "soap", "bar"], ["in New York", "came"]]
    assert data.splits["train"].tags == [["B-x", "O"], ["O", "I-x", "O"], ["B-x", "O"]]
    assert data.said == ("2 lines with a blank in place of the tab read all the same (rows 2, 5)",)
    for line in ("Rome is far", "New York"):  # no tag, but a word
        file.write_text(f"Ann\tB-x\n{line}\n\nok\tO\n")
        with pytest.raises(DataError, match="row 2: 1 columns"):
            load_tagged(file)


TREEBANK = """# sent_id = 1
# text = Don't go.
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No
1\tDo\tdo\tAUX\t_\t_\t0\troot\t_\t_
2\tn't\tnot\tPART\t_\t_\t1\tadvmod\t_\t_
2.1\tyou\tyou\tPRON\t_\t_\t_\t_\t_\t_
3\tgo\tgo\tVERB\t_\t_\t1\txcomp\t_\tSpaceAfter=No
4\t.\t.\tPUNCT\t_\t_\t1\tpunct\t_\t_

"""


def test_a_treebank_has_its_words_and_universal_tags(tmp_path):
    (tmp_path / "t.conllu").write_text(TREEBANK)
    data = load_tagged(tmp_path / "t.conllu")
    assert data.splits["train"].words == [["Do", "n't", "go", "."]]
    assert data.splits["train"].tags == [["AUX", "PART", "VERB", "PUNCT"]]
    named = load_tagged(tmp_path / "t.conllu", words_column="3", tags_column="8").splits["train"]
    assert (named.words, named.tags) == ([["do", "not", "go", "."]], [["root", "advmod", "xcomp", "punct"]])


TREE = ["AUX", "PART", "VERB", "PUNCT"]
WORDS = ["Do", "n't", "go", "."]


@pytest.mark.parametrize("ending", ["conll", "iob", "iob2", "bio", "bioes", "txt"])
def test_a_treebank_of_another_ending_is_known_by_what_stands_there(tmp_path, ending):
    file = tmp_path / f"t.{ending}"
    file.write_text(TREEBANK * 3)
    data = load_tagged(file)
    assert (data.splits["train"].words, data.splits["train"].tags) == ([WORDS] * 3, [TREE] * 3)
    said = f"t.{ending}: column 1 counts the words, so words are column 2 and tags column 4"
    assert data.said == (said,)
    assert kind_of(file) == "tags"
    named = load_tagged(file, words_column="3", tags_column="8")
    assert named.splits["train"].words == [["do", "not", "go", "."]] * 3
    assert named.said == ()


@pytest.mark.parametrize("between", ["\t", " "])
@pytest.mark.parametrize("first", [0, 1])
def test_other_columns_behind_a_counter(tmp_path, between, first):
    rows = [("Ann", "NNP", "B-per"), ("saw", "VBD", "O"), ("Rome", "NNP", "B-loc")]
    lines = [between.join((str(i + first), *row)) for i, row in enumerate(rows)]
    file = tmp_path / "t.conll"
    file.write_text("\n".join([*lines, "", *lines[:1], ""]))
    split = load_tagged(file).splits["train"]
    assert (split.words, split.tags) == (
        [["Ann", "saw", "Rome"], ["Ann"]],
        [["B-per", "O", "B-loc"], ["B-per"]],
    )


def test_ten_columns_whose_last_has_spans(tmp_path):
    lines = [
        "\t".join([str(i + 1), word, *"_______", tag])
        for i, (word, tag) in enumerate([("Ann", "B-per"), ("saw", "O")])
    ]
    (tmp_path / "t.conll").write_text("\n".join(lines))
    split = load_tagged(tmp_path / "t.conll").splits["train"]
    assert (split.words, split.tags) == ([["Ann", "saw"]], [["B-per", "O"]])


def test_numbers_that_are_words_stay_words(tmp_path):
    """Two columns, one word a sentence, or numbers that do not count."""
    for lines in (["1\tO", "2\tB-n"], ["1\tCD\tO", "", "1\tCD\tB-n"], ["7\tCD\tO", "2\tCD\tB-n"]):
        file = tmp_path / "t.conll"
        file.write_text("\n".join(lines))
        words = [word for own in load_tagged(file).splits["train"].words for word in own]
        assert words == [line[0] for line in lines if line]


@pytest.mark.parametrize("word", ["--5", "5-", "9" * 5_000, "-" + "9" * 5_000, "٣"])
def test_a_word_that_is_no_number_is_refused(word):
    with pytest.raises(InputError, match="no word"):
        number_of(None, ["the", "dog"], word, ["O", "O"])
