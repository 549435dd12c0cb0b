"""Runs of the two tasks from the command line: folders, figures, reports, verbs, and what is refused."""

import json

import pytest
from tests.cli.tiny import sets
from tests.commands import as_json, ok, refused
from tests.tables import read_csv, write_csv

from glassformer.data.text import SPECIAL_TOKENS
from glassformer.explain.alignment import picture as alignment
from glassformer.tasks.catalog import load_recipe
from glassformer.tasks.load import load
from glassformer.tasks.masked_lm.estimator import load_corpus

pytest.importorskip("sacrebleu")

SMALL = ["d_model=16", "num_layers=1", "num_heads=2", "d_ff=16", "epochs=1", "precision=fp32", "threads=1"]


def settings(*more):
    return sets(*SMALL, *more)


def translate(*words):
    return ok("translate", *words).out


def pairs(path, n=40, header=("en", "de"), more=()):
    words = {"dog": "Hund", "cat": "Katze", "bird": "Vogel", "horse": "Pferd"}
    adjectives = {"small": "kleine", "old": "alte", "<b>red</b>": "rote"}
    rows = []
    for i in range(n):
        for a, b in adjectives.items():
            rows += [(f"the {a} {w} number {i}", f"das {b} {v} Nummer {i}") for w, v in words.items()]
    return write_csv(path, header, [*rows[:n], *more])


@pytest.fixture(scope="module")
def translated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("translation")
    more = settings("test_size=8", "validation_size=4", "vocab_size=300", "maps=2")
    ok("train", "multi30k-transformer", "--data", pairs(folder / "pairs.csv"), "--out", folder / "run", *more)
    return folder / "run"


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    run = tmp_path_factory.mktemp("masked") / "run"
    ok("train", "europe-mlm", "--out", run, *settings("limit=300", "validation_size=30"))
    return run


def test_a_translation_page_draws_its_alignments_and_escapes_its_texts(translated):
    metrics = json.loads((translated / "metrics.json").read_text())
    assert sum(block["parameters"] for block in metrics["architecture"]) == metrics["parameters"]
    for example in json.loads((translated / "alignments.json").read_text())["examples"]:
        assert len(example["weights"]) == len(example["target"])
    page = (translated / "report.html").read_text()
    assert "<b>red</b>" not in page
    assert page.count('role="img" aria-label="Alignment') == 2
    assert "more</summary>" not in page  # from the third on they are folded away
    assert page.count('aria-label="From input to output') == 2


def test_every_verb_takes_pairs_under_any_two_names(translated, tmp_path):
    data, out, run = pairs(tmp_path / "p.csv", 23, ("a", "b")), tmp_path / "out.csv", tmp_path / "run"
    argv = ["train", "multi30k-transformer", "--data", data, "--out"]
    ok(*argv, run, *settings("vocab_size=300", "test_size=3", "maps=0"))
    recipe = load_recipe(str(run / "config.toml"))
    assert (recipe.data.source_column, recipe.data.target_column) == ("a", "b")
    translate(run, data, "--out", out)
    assert [row["text"] for row in read_csv(out)] == [row["a"] for row in read_csv(data)]
    said = ok("evaluate", translated, "--data", data).out  # trained on en and de
    assert f"23 pairs of {data}, a to b" in said
    other = pairs(tmp_path / "q.csv", 3, ("source", "target"))
    out.unlink()
    translate(translated, other, "--out", out)
    assert [row["text"] for row in read_csv(out)] == [row["source"] for row in read_csv(other)]
    assert "no column 'en'" in one_line(*argv, tmp_path / "r", "--set", "source_column=en")


def one_line(*argv):
    line = refused(*argv)
    assert line.count("\n") == 1
    return line


def test_what_is_wrong_is_one_line(translated, masked, tmp_path):
    long = tmp_path / "long.txt"
    long.write_text("the dog\n" + "the cat " * 200 + "\n")
    assert "long.txt, row 2: the text has more than 128 tokens" in one_line("translate", translated, long)
    for data in ("q.csv", "q.parquet"):  # before it says what a file must be
        said = one_line("predict", translated, "--data", data, "--out", data)
        assert "contains a Translator, which predicts no labels. Use glassformer translate" in said
    assert "no [MASK]" in one_line("fill", masked, "paris")
    assert "unknown key 'beem'" in one_line("train", "multi30k-rnn", "--set", "beem=2")


def test_the_corpus_of_imdb_leaves_out_what_stands_in_the_test_set(data_root):
    corpus = load_corpus(load_recipe("imdb-mlm"))
    # 123 distinct texts of train and 266 unlabelled ones stand in the test set, some of them in all three
    assert 266 <= corpus.excluded["test"] <= 266 + 123
    assert len(corpus.validation) == 1000
    assert len(set(corpus.train)) == len(corpus.train)
    assert not set(corpus.train) & set(corpus.validation)
    assert 73_000 < len(corpus.train) + 1000 < 75_000


def test_a_long_text_to_judge_is_cut_and_counted(tmp_path):
    more = [(f"{'the old dog ' * 40}{i}", f"der alte Hund {i}") for i in range(20)]
    data, run = pairs(tmp_path / "pairs.csv", more=more), tmp_path / "run"
    sentences = f'sentences=["{"the small cat " * 60}"]'
    given = settings("test_size=20", "vocab_size=300", "max_length=40", "maps=2", "beam=2", sentences)
    out = ok("train", "multi30k-transformer", "--data", data, "--out", run, *given).out
    metrics = json.loads((run / "metrics.json").read_text())
    cut, total = metrics["truncated"]["test"]
    assert 0 < cut < total == 20
    assert metrics["scores"]["test"]["beam"]["n"] == 20
    assert f"{cut} of 20 test texts are longer than 40 tokens and were cut there" in out
    assert f"{cut} of 20 source texts are longer" in ok("evaluate", run).out


@pytest.mark.parametrize(
    "words", ["multi30k-rnn beam=0", "multi30k-rnn limit=0", "multi30k-rnn train_size=0", "europe-mlm top=0"]
)
def test_counts_begin_at_one(words, tmp_path):
    recipe, setting = words.split()
    said = one_line("train", recipe, "--out", tmp_path / "r", "--set", setting)
    assert f"{setting.replace('=', ': ')} is out of range" in said
    assert not (tmp_path / "r").exists()


def test_every_word_but_no_special_token_fills_a_mask(masked):
    learner = load(masked)
    words = dict(learner.fill("[MASK] is the capital of France.", 10**6))
    assert len(words) == learner.tokenizer_.get_vocab_size() - len(SPECIAL_TOKENS)
    assert not set(words) & set(SPECIAL_TOKENS)
    assert sum(words.values()) == pytest.approx(1, abs=1e-3)


def test_a_page_shows_what_each_word_was_read_from(translated, tmp_path):
    texts, page, again = ["the small dog", "the <b>red</b> cat"], tmp_path / "map.html", tmp_path / "map.json"
    said = translate(translated, *texts)
    done = ok("translate", translated, *texts, "--align", page)
    assert (done.out, done.err) == (said, f"note: alignments: {page}\n")
    html = page.read_text()
    assert html.count('aria-label="Alignment of') == 2
    assert "<b>red" not in html
    assert "default-src 'none'" in html.replace("&#x27;", "'")
    translate(translated, texts[0], "--align", again)
    told = json.loads(again.read_text())
    assert (told["text"], told["translation"]) == (texts[0], said.splitlines()[0])
    assert len(told["weights"]) == len(told["target"])
    again = str(tmp_path / "again.json")
    rows = [{"text": text, "translation": line} for text, line in zip(texts, said.splitlines(), strict=True)]
    assert as_json("translate", translated, *texts, "--align", again) == {
        "translations": rows,
        "align": again,
    }
    for given, name, wrong in (
        (["a"], "map.html", "the output file exists"),
        (["a"], "a.png", "not .json or .html"),
        (["a"] * 21, "b.html", "21 texts are too many for one file (at most 20)"),
    ):
        assert wrong in one_line("translate", translated, *given, "--align", tmp_path / name)
    drawn = alignment(["<a>"], ["b", "&"], [[0.25], [1.0]])
    assert "<a>" not in drawn
    assert drawn.count("<rect") == 2
    assert 'fill-opacity="0.250"' in drawn


def test_line_n_of_the_translations_belongs_to_line_n_of_the_file(translated, tmp_path):
    texts, out = tmp_path / "texts.txt", tmp_path / "out.csv"
    assert len(translate(translated, "the small dog", "--beam", "2").splitlines()) == 1
    texts.write_bytes("\ufeff\nthe small dog\r\n \r\n\nthe old cat\n\n".encode())
    dog, cat = translate(translated, "the small dog", "the old cat").splitlines()
    assert dog
    assert translate(translated, texts).split("\n") == ["", dog, "", "", cat, "", ""]
    translate(translated, texts, "--out", out)
    assert [row["translation"] for row in read_csv(out)] == ["", dog, "", "", cat, ""]
    texts.write_text("the small dog\n\nthe old cat")  # a last line that does not end
    assert translate(translated, texts).splitlines() == [dog, "", cat]
    assert translate(translated, texts, "the small dog").splitlines() == [dog, cat, dog]


def test_a_translator_that_nothing_judges_says_so(tmp_path):
    run, argv = tmp_path / "run", ["train", "multi30k-transformer", "--data", pairs(tmp_path / "p.csv")]
    done = ok(*argv, "--out", run, *settings("vocab_size=300", "maps=1"))
    assert "no held-out pairs: nothing will evaluate the translations" in done.out
    page = (run / "report.html").read_text()
    assert "No pairs were held out" in page
    assert "The sentences are training pairs: none were held out." in page
    assert "sentences" not in json.loads((run / "metrics.json").read_text())  # those speak of Multi30k
