"""How a text becomes words: punctuation apart where the training words have it so, places kept."""

import json
import re
from pathlib import Path

import pytest

import glassformer as gf
from glassformer.data.kinds import detect_kind
from glassformer.data.tag_doctor import examine_tagged
from glassformer.data.tagged import load_tagged
from glassformer.data.tags import PUNCTUATION, check_words, word_positions, words_with_punctuation
from glassformer.errors import CheckpointError, DataError, InputError
from glassformer.explain.token_subjects import word_index
from glassformer.export.onnx_folder import SCRIPTS
from glassformer.tasks.task import TINY

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
    places = word_positions(text, {"Dr."})
    assert [text[a:b] for a, b in places] == TEXTS[text].split()
    assert places == sorted(places)
    assert [text[a:b] for a, b in word_positions(text)] == text.split()
    assert check_words([text, [text]], whole={"Dr."}) == [TEXTS[text].split(), [text]]  # given words stay


@pytest.mark.parametrize("text", TEXTS)
def test_the_exported_script_splits_alike(text: str):
    code = (SCRIPTS / "run_words.txt").read_text(encoding="utf-8")
    known = {"ABOUT": {"whole_words": ["Dr."]}, "re": re}
    exec(re.search(r"^MARKS = .*$", code, re.MULTILINE)[0], known)
    exec(code[code.index("def split(") : code.index("for text in sys.argv")], known)
    assert known["split"](text) == TEXTS[text].split()
    assert set(known["MARKS"]) == PUNCTUATION
    known["ABOUT"]["whole_words"] = None
    assert known["split"](text) == text.split()


def test_training_words_say_what_keeps_its_marks():
    apart = [["Dr.", "Who", "met", "Bo", ",", "in", "Bath", "."], ["in", "Bath,", "and", "Bath", "."]]
    assert words_with_punctuation(apart) == ["Dr."]  # "Bath," is rarer than "Bath"
    assert words_with_punctuation([["Dr.", "Who", "met", "Bo,", "in", "Bath."]]) is None
    assert words_with_punctuation([["no", "marks"]]) == []


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


def read(file: Path, text: str, **options):
    """The data of a file with this text; the words and the tags of its split."""
    file.write_text(text)
    data = load_tagged(file, **options)
    return data, (data.splits["train"].words, data.splits["train"].tags)


def test_a_blank_in_place_of_the_tab_is_read_and_said(tmp_path: Path):
    file = tmp_path / "a.conll"
    data, found = read(file, "Ann\tB-x\nMill  O\n\nok\tO\nsoap I-x\nbar\tO\n\nin New York\tB-x\ncame\tO\n")
    words = [["Ann", "Mill"], ["ok", "soap", "bar"], ["in New York", "came"]]
    assert found == (words, [["B-x", "O"], ["O", "I-x", "O"], ["B-x", "O"]])
    assert data.messages == ("2 lines with a blank in place of the tab were split at blanks (rows 2, 5)",)
    for line in ("Rome is far", "New York"):  # no tag, but a word
        with pytest.raises(DataError, match="line 2: 1 column where"):
            read(file, f"Ann\tB-x\n{line}\n\nok\tO\n")


TREEBANK = """# sent_id = 1
# text = Don't go.
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No
1\tDo\tdo\tAUX\t_\t_\t0\troot\t_\t_
2\tn't\tnot\tPART\t_\t_\t1\tadvmod\t_\t_
2.1\tyou\tyou\tPRON\t_\t_\t_\t_\t_\t_
3\tgo\tgo\tVERB\t_\t_\t1\txcomp\t_\tSpaceAfter=No
4\t.\t.\tPUNCT\t_\t_\t1\tpunct\t_\t_

"""


@pytest.mark.parametrize("ending", ["conllu", "conll", "iob", "iob2", "bio", "bioes", "txt"])
def test_a_treebank_is_known_by_what_stands_there(tmp_path, ending):
    """It has its words and universal tags, or the columns that are named."""
    file = tmp_path / f"t.{ending}"
    data, found = read(file, TREEBANK * 3)
    assert found == ([["Do", "n't", "go", "."]] * 3, [["AUX", "PART", "VERB", "PUNCT"]] * 3)
    said = f"t.{ending}: column 1 counts the words, so words are column 2 and tags column 4"
    assert ending == "conllu" or data.messages == (said,)
    assert detect_kind(file) == "tags"
    named, found = read(file, TREEBANK * 3, words_column="3", tags_column="8")
    assert found == ([["do", "not", "go", "."]] * 3, [["root", "advmod", "xcomp", "punct"]] * 3)
    assert named.messages == ()


@pytest.mark.parametrize("between", ["\t", " ", "\t_\t_\t_\t_\t_\t_\t"])
@pytest.mark.parametrize("first", [0, 1])
def test_other_columns_behind_a_counter(tmp_path, between, first):
    """Ten of them too, whose last has spans."""
    rows = [("Ann", "NNP", "B-per"), ("saw", "VBD", "O"), ("Rome", "NNP", "B-loc")]
    lines = [f"{i}{between[0]}{a}{between}{b}{between[0]}{c}" for i, (a, b, c) in enumerate(rows, first)]
    _, found = read(tmp_path / "t.conll", "\n".join([*lines, "", lines[0], ""]))
    assert found == ([["Ann", "saw", "Rome"], ["Ann"]], [["B-per", "O", "B-loc"], ["B-per"]])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1\tO\n2\tB-n", [["1", "2"]]),  # two columns
        ("1\tCD\tO\n\n1\tCD\tB-n", [["1"], ["1"]]),  # one word per sentence
        ("7\tCD\tO\n2\tCD\tB-n", [["7", "2"]]),  # numbers that do not count
        ("3.5\tB-n\ngrams\tO\n\n7-8\tB-n\npm\tO\n", [["3.5", "grams"], ["7-8", "pm"]]),
    ],
)
@pytest.mark.parametrize("ending", ["conll", "conllu"])
def test_numbers_that_are_words_stay_words(tmp_path, text, words, ending):
    if ending == "conll" or "." in text:
        assert read(tmp_path / f"t.{ending}", text)[1][0] == words


SENTENCES = [("Ann", "B-per"), ("saw", "O"), ("Rome", "B-loc")], [("Bo", "B-per"), ("left", "O")]
COUNTED = ([["Ann", "saw", "Rome"], ["Bo", "left"]], [["B-per", "O", "B-loc"], ["B-per", "O"]])


@pytest.mark.parametrize("between", ["", "X\t", "X\tY\t"])
@pytest.mark.parametrize("ending", ["conll", "conllu", "iob"])
def test_fewer_columns_behind_a_counter_with_comments_and_words_of_several_parts(tmp_path, ending, between):
    lines = []
    for sentence in SENTENCES:
        lines += ["# sent_id = 1", "# a remark", f"1-2\tno\t{between}_"]
        lines += [f"{i}\t{word}\t{between}{tag}" for i, (word, tag) in enumerate(sentence, 1)]
        lines += [f"2.1\tghost\t{between}O", ""]
    data, found = read(tmp_path / f"t.{ending}", "\n".join(lines))
    assert found == COUNTED
    said = f"t.{ending}: column 1 counts the words, so words are column 2 and tags the last one"
    assert data.messages == (said,)
    assert said in [f.message for f in examine_tagged(data).findings]


@pytest.mark.parametrize("numbers", ["123 45", "012 34", "789 23", "123 12", "1231 2"])
@pytest.mark.parametrize("ending", ["conll", "conllu", "txt"])
def test_a_counter_goes_on_through_the_file(tmp_path, ending, numbers):
    counters = iter(numbers.replace(" ", ""))
    text = "\n\n".join(
        "\n".join(f"{next(counters)}\t{word}\t{tag}" for word, tag in sentence) for sentence in SENTENCES
    )
    if numbers == "1231 2":  # no empty line: a sentence ends where the count begins again
        text = text.replace("\n\n", "\n")
    assert read(tmp_path / f"t.{ending}", text)[1] == COUNTED


def test_a_file_without_empty_lines_is_one_sentence_and_the_doctor_says_so(tmp_path):
    file = tmp_path / "t.conll"
    file.write_text("Ann\tB-per\nsaw\tO\nRome\tB-loc\n" * 19)
    data = load_tagged(file)
    assert [len(words) for words in data.splits["train"].words] == [57]
    (found,) = [f for f in examine_tagged(data).findings if f.code == "one-sentence"]
    said = "t.conll: all 57 words are one sentence, since no empty line ends a sentence: put an empty line"
    assert (found.severity, found.sentence) == ("warning", f"{said} after each sentence")
    file.write_text("Ann\tB-per\nsaw\tO\nRome\tB-loc\n\n" * 19)
    data = load_tagged(file, limit=1)
    assert len(data.splits["train"]) == 1
    assert data.files_without_empty_lines == ()


@pytest.mark.parametrize(
    "line", ["{tag}\t{word}", "{tag}\tNN\t{word}", "{tag} {word} NN", "{i}\t{tag}\t{word}"]
)
def test_columns_that_are_swapped_are_named(tmp_path, line):
    file, sentences = tmp_path / "t.conll", []
    for sentence in SENTENCES:
        sentences.append("\n".join(line.format(i=i, word=w, tag=t) for i, (w, t) in enumerate(sentence, 1)))
    file.write_text("\n\n".join(sentences))
    words, tags = (1 + line.replace("\t", " ").split().index(name) for name in ("{word}", "{tag}"))
    for need in (True, False):
        with pytest.raises(DataError, match=f"column {tags} has tags .B-loc, B-per, O. where words") as error:
            load_tagged(file, need_tags=need)
        assert f"Set words_column={words} and tags_column={tags}" in str(error.value)
    split = load_tagged(file, words_column=str(words), tags_column=str(tags)).splits["train"]
    assert (split.words, split.tags) == COUNTED


def test_kinds_that_differ_in_case_are_two_and_the_doctor_says_so(tmp_path):
    rows = [(["Ann", "Lee"], ["B-PER", "I-PER"]), (["Bo"], ["B-Per"]), (["Rome"], ["B-LOC"])]
    file = tmp_path / "t.jsonl"
    file.write_text("".join(json.dumps({"tokens": a, "tags": b}) + "\n" for a, b in rows))
    found = {f.code: f for f in examine_tagged(load_tagged(file)).findings}["twin-kinds"]
    said = "kinds whose names differ only in case or white space: 'PER' and 'Per'"
    assert (found.severity, found.message, found.count) == ("warning", said, 1)
    file.write_text(file.read_text().replace("Per", "PER"))
    assert "twin-kinds" not in {f.code for f in examine_tagged(load_tagged(file)).findings}


def spans_file(folder: Path, *rows: tuple[object, object], key: str = "label") -> Path:
    file = folder / "t.jsonl"
    file.write_text("".join(json.dumps({"id": 1, "text": text, key: own}) + "\n" for text, own in rows))
    return file


@pytest.mark.parametrize("key", ["label", "labels"])
@pytest.mark.parametrize("names", [None, ("start", "end"), ("start_offset", "end_offset")])
def test_spans_by_character_become_tags_of_words(tmp_path, key, names):
    rows = [
        ("nobody came", []),
        ("Ann Lee, of New York.", [[12, 20, "LOC"], [0, 7, "PER"]]),
        ("Zoë 🙂 met Dr. Bo", [[0, 3, "PER"], [10, 16, "PER"]]),
    ]
    if names:
        named = lambda own: [dict(zip((*names, "label"), span, strict=True)) for span in own]  # noqa: E731
        rows = [(text, named(own)) for text, own in rows]
    file = spans_file(tmp_path, *rows, key=key)
    data = load_tagged(file)
    words = ["nobody came", "Ann Lee , of New York .", "Zoë 🙂 met Dr . Bo"]
    tags = ["O O", "B-PER I-PER O O B-LOC I-LOC O", "B-PER O O B-PER I-PER I-PER"]
    assert [" ".join(own) for own in data.splits["train"].words] == words
    assert [" ".join(own) for own in data.splits["train"].tags] == tags
    assert data.messages == (f"t.jsonl: {key} has character spans, read as BIO tags of whole words",)
    assert detect_kind(file) == "tags"


@pytest.mark.parametrize(
    ("text", "spans", "said"),
    [
        (
            "Annabel left",
            [[0, 3, "PER"]],
            r"row 2: span \[0, 3, 'PER'\] \('Ann'\) does not begin and end with",
        ),
        (
            "Ann left",
            [[0, 4, "PER"], [0, 8, "X"]],
            r"row 2: span \[0, 8, 'X'\] \('Ann left'\) overlaps anothe",
        ),
        ("Ann left", [[0, 9, "PER"]], r"row 2: \[0, 9, 'PER'\] is not a span of the text. .* 0 to 8"),
        ("Ann left", [[3, 3, "PER"]], "is not a span"),
        ("Ann left", [[3, 4, "PER"]], "does not begin and end with"),
        ("Ann left", ["PER"], "row 2: 'PER' is not a span"),
        ("Ann left", None, "row 2: expected a text and a list of character spans"),
        (["Ann"], [[0, 3, "PER"]], "row 2: expected a text and a list of character spans"),
    ],
)
def test_a_span_that_is_none_of_whole_words_is_refused_with_its_row(tmp_path, text, spans, said):
    file = spans_file(tmp_path, ("Bo came", [[0, 2, "PER"]]), (text, spans))
    with pytest.raises(DataError, match=said):
        load_tagged(file)
    data = load_tagged(file, on_bad_row="skip")
    assert (data.splits["train"].words, [row.row for row in data.rejected]) == ([["Bo", "came"]], [2])


@pytest.mark.parametrize("word", ["--5", "5-", "9" * 5_000, "-" + "9" * 5_000, "٣"])
def test_a_word_that_is_no_number_is_refused(word):
    with pytest.raises(InputError, match="no word"):
        word_index(["the", "dog"], word, ["O", "O"])
