"""The task word2vec: a recipe becomes a run folder, the verbs that read it, and texts that are left out."""

import json
from dataclasses import replace
from pathlib import Path
from unicodedata import normalize

import pytest

import glassformer as gf
from glassformer.cli.app import main
from glassformer.cli.own_data import choose_recipe
from glassformer.cli.vectors import convert, look_up
from glassformer.data.corpus import countries_sentences
from glassformer.errors import ConfigError, DataError, InputError
from glassformer.tasks.catalog import load_recipe
from glassformer.tasks.run import evaluate_task, relevant_settings, run_task
from glassformer.tasks.word2vec.estimator import load_texts
from glassformer.tasks.word2vec.recipe import CorpusConfig

from ..cli.tiny import sets

SETTINGS = ["dim=13", "epochs=2", "limit=800", 'tests=["countries", "wordsim353"]']


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GLASSFORMER_DATA", raising=False)
        folder = tmp_path_factory.mktemp("vectors") / "run"
        run_task(load_recipe("countries-word2vec", SETTINGS), folder)
    return folder


def test_the_run_says_what_was_not_measured(run):
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["tests"]["countries"]["questions"] == 325
    assert metrics["tests"]["wordsim353"] is None
    assert metrics["norms"]["after"]["mean"] > metrics["norms"]["before"]["mean"]
    page = (run / "report.html").read_text()
    assert "not measured" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_resume_and_refusals(run, tmp_path):
    recipe = load_recipe("countries-word2vec", SETTINGS)
    with pytest.raises(ConfigError, match="the output folder exists"):
        run_task(recipe, run)
    with pytest.raises(ConfigError, match="contains a run of another recipe"):
        run_task(load_recipe("countries-word2vec", [*SETTINGS, "dim=11"]), run, resume=True)
    (tmp_path / "mine.txt").write_text("not of a run")
    with pytest.raises(ConfigError, match="is not a run folder"):
        run_task(recipe, tmp_path, resume=True)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]
    before = gf.Word2Vec.load(run).vectors_
    told_otherwise = replace(recipe, summary="in other words", expect="another figure")  # it changes nothing
    for same in (recipe, told_otherwise):
        run_task(same, run, resume=True)
        assert (gf.Word2Vec.load(run).vectors_ == before).all()
    with pytest.raises(ConfigError, match="a recipe for word2vec has no model"):
        choose_recipe("countries-word2vec", model="lstm")


def test_the_readable_engine_makes_a_run_too(tmp_path):
    settings = [*SETTINGS, "epochs=1", 'tests=["countries"]']
    done = run_task(load_recipe("countries-word2vec-adam", settings), tmp_path / "run")
    assert done.metrics["loss"]
    assert (done.folder / "report.html").is_file()


def test_verbs(run, tmp_path):
    assert len(look_up(run, ["paris"], 3)) == 3
    assert len(look_up(run / "vectors.txt", ["king", "man", "woman"], 2)) == 2
    with pytest.raises(InputError, match="Did you mean 'paris'"):
        look_up(run, ["pariss"])
    cosine = pytest.approx(gf.Word2Vec.load(run).similarity("king", "man"))
    assert look_up(run, ["king", "man"]) == [("man", cosine)]
    for words, said in ((["king", "man", "woman", "queen"], "4 words"), ([], "no word")):
        with pytest.raises(ConfigError, match=said):
            look_up(run, words)
    convert(run, tmp_path / "v.bin")
    assert (gf.Word2Vec.load(tmp_path / "v.bin").vectors_ == gf.Word2Vec.load(run).vectors_).all()
    with pytest.raises(ConfigError, match="exists"):
        convert(run, tmp_path / "v.bin")
    assert evaluate_task(run, log=lambda line: None)["countries"]["questions"] == 325
    folder = tmp_path / "clf"
    gf.TextClassifier("textcnn", epochs=1, min_count=1).fit(["a b c", "d e f"], [0, 1]).save(folder)
    with pytest.raises(InputError, match="not word vectors"):
        gf.Word2Vec.load(folder)


def test_sentences_from_a_file(tmp_path):
    file = tmp_path / "corpus.txt"
    file.write_text("The King, and<br />the Queen!\n\nDon't go.\n", encoding="utf-8")
    found = load_texts(CorpusConfig(source=str(file))).sentences
    assert found == [["the", "king", "and", "the", "queen"], ["don't", "go"]]
    found = load_texts(CorpusConfig(source=str(file), lowercase=False, punctuation=True)).sentences
    assert found == [["The", "King", ",", "and", "the", "Queen", "!"], ["Don't", "go", "."]]
    assert len(load_texts(CorpusConfig(source=str(file), limit=1)).sentences) == 1
    assert len(load_texts(CorpusConfig(source="countries")).sentences) == len(countries_sentences())
    file.write_text(normalize("NFD", "Hôm nay trời đẹp"))
    assert load_texts(CorpusConfig(source=str(file))).sentences == [["hôm", "nay", "trời", "đẹp"]]
    file.write_text("...\n")
    with pytest.raises(DataError, match="no text has a word"):
        load_texts(CorpusConfig(source=str(file)))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ('tests=["countrys"]', "no test 'countrys'.*Did you mean 'countries'"),
        ('analogies=["king man"]', "'king man' is not an analogy.*three words"),
        ("limit=-3", "limit: -3 is out of range"),
        ("tests=countries", r'a list such as \["one", "two"\]'),
    ],
)
def test_what_cannot_be_judged_is_said_before_training(setting, message, tmp_path):
    with pytest.raises(InputError, match=message):
        run_task(load_recipe("countries-word2vec", [*SETTINGS, setting]), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_words_without_a_vector_are_said(tmp_path):
    said: list[str] = []
    words = ['neighbours=["king", "zebra"]', 'analogies=["king man yak"]']
    settings = [*SETTINGS, "epochs=1", "tests=[]", *words]
    done = run_task(load_recipe("countries-word2vec", settings), tmp_path / "run", log=said.append)
    assert "left out, because they have no vector: zebra, yak" in said
    assert set(done.metrics["neighbours"]) == {"king"}


def test_another_test_of_a_run(run, tmp_path):
    with pytest.raises(ConfigError, match="no test 'nope'"):
        evaluate_task(run, "nope", log=lambda line: None)
    mine = tmp_path / "mine.tab"
    mine.write_text("first\tsecond\tscore\nking\tqueen\t9\nparis\tfrance\t8\nking\teuro\t1\n")
    assert evaluate_task(run, str(mine), log=lambda line: None)[str(mine)]["known"] == 3


def test_load_gives_word_vectors_back(run, tmp_path, capsys):
    assert type(gf.load(run)) is gf.Word2Vec
    assert (gf.load(run / "model").vectors_ == gf.Word2Vec.load(run).vectors_).all()
    out = tmp_path / "v.txt"
    assert main(["vectors", str(run), "king", "--out", str(out)]) == 2
    assert "words and --out at once" in capsys.readouterr().err
    assert not out.exists()
    assert main(["vectors", str(run), "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"out": str(out)}
    assert (gf.Word2Vec.load(out).vectors_ == gf.Word2Vec.load(run).vectors_).all()


def test_what_decides_a_run():
    quiet, loud, other = (load_recipe("europe", [key]) for key in ("verbose=0", "verbose=1", "lr=0.5"))
    assert relevant_settings(quiet) == relevant_settings(loud) != relevant_settings(other)


# --- texts that also stand in a test set: left out, counted and said -----------------------------------

TRAIN = ["the king and the queen", "a fine film", "Café <br />du monde!", "a bad film", "a fine film"]
TRAIN += ["le café"]
TEST = ["A fine  film", "nothing else", normalize("NFD", "café du monde!"), "a bad film"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with a table of each split; a text of train stands in test, three more do once they are cleaned."""
    folder = tmp_path / "reviews"
    folder.mkdir()
    for split, texts in (("train", TRAIN), ("test", TEST), ("validation", ["the king and the queen"])):
        rows = (json.dumps({"text": text}) + "\n" for text in texts)
        (folder / f"{split}.jsonl").write_text("".join(rows), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("options", "left", "excluded"),
    [
        ({}, 6, {}),
        ({"exclude": ("test",)}, 2, {"test": 4}),
        ({"exclude": ("test",), "lowercase": False}, 5, {"test": 1}),
        ({"exclude": ("test", "validation", "test")}, 1, {"test": 4, "validation": 1}),
        ({"exclude": ("unsupervised",)}, 6, {}),
        ({"exclude": ("test",), "splits": ("validation",)}, 1, {"test": 0}),
        ({"exclude": ("validation",), "splits": ("train", "validation")}, 5, {"validation": 2}),
    ],
)
def test_what_is_left(options, left, excluded, source):
    found = load_texts(CorpusConfig(source=str(source), **options))
    assert len(found.sentences) == left
    assert found.excluded == excluded


def test_the_excluded_split_is_whole_whatever_the_limit(source):
    (source / "train.jsonl").write_text('{"text": "a bad film"}\n{"text": "a good film"}\n')
    found = load_texts(CorpusConfig(source=str(source), exclude=("test",), limit=3))
    assert found.sentences == [["a", "good", "film"]]
    assert found.excluded == {"test": 1}


def test_a_single_file_has_nothing_to_exclude(tmp_path):
    bodies = {"t.txt": "a fine film\na bad one\n", "t.csv": "text,label\na fine film,1\na bad one,0\n"}
    for name, body in bodies.items():
        (tmp_path / name).write_text(body)
        found = load_texts(CorpusConfig(source=str(tmp_path / name), exclude=("test",)))
        assert found.sentences == [["a", "fine", "film"], ["a", "bad", "one"]]
        assert found.excluded == {}


def test_when_nothing_is_left_the_way_out_is_right(source, tmp_path, capsys):
    with pytest.raises(DataError, match=r"no text is left: each one is also in test\..*exclude=\[\]"):
        load_texts(CorpusConfig(source=str(source), splits=("test",), exclude=("test",)))
    small = sets('splits=["test"]', "min_count=1", "tests=[]", "epochs=1", "dim=3")
    command = ["train", "imdb-word2vec", "--data", str(source), *small, "--out", str(tmp_path / "run")]
    assert main(command) == 2
    assert "no text is left" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert main([*command, "--set", "exclude=[]"]) == 0
    assert "were left out" not in capsys.readouterr().out


def test_a_name_that_is_no_split(source):
    with pytest.raises(ConfigError, match=r"data\.exclude: no split is called 'tset'\. Did you mean 'test'"):
        load_texts(CorpusConfig(source=str(source), exclude=("tset",)))


def test_the_run_says_how_many(source, tmp_path):
    said: list[str] = []
    keys = [f"source={source}", "min_count=1", "tests=[]", "epochs=1", "dim=3"]
    recipe = load_recipe("imdb-word2vec", [*keys, 'splits=["train"]'])
    assert recipe.data.exclude == ("test",)
    run = run_task(recipe, tmp_path / "run", log=said.append)
    assert "texts that are also in test, left out: 4" in said
    assert run.metrics["excluded"] == {"test": 4}
    assert run.metrics["texts"] == 2
    assert "Texts that are also in test, left out: 4." in run.report.read_text()
    metrics = json.loads((run.folder / "metrics.json").read_text())
    del metrics["excluded"]  # as earlier versions wrote it
    (run.folder / "metrics.json").write_text(json.dumps(metrics))
    assert main(["report", str(run.folder)]) == 0
    assert "were left out" not in run.report.read_text()


@pytest.mark.slow
def test_the_reviews_of_imdb_that_stand_in_its_test_set(data_root):
    found = load_texts(load_recipe("imdb-word2vec").data)
    assert found.excluded["test"] >= 266 + 123  # that many distinct texts, unlabelled and of train
    assert len(found.sentences) + found.excluded["test"] == 75_000
