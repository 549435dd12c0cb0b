"""Runs of the two tasks from the command line: folders, figures, reports, verbs, and what is refused."""

from __future__ import annotations

import csv
import json
import shutil

import pytest

from glassformer.cli.app import main
from glassformer.data.text import SPECIAL_TOKENS
from glassformer.explain.alignment import picture as alignment
from glassformer.report.published import headline
from glassformer.tasks.catalog import load_recipe
from glassformer.tasks.load import load
from glassformer.tasks.masked_lm.run import load_corpus

pytest.importorskip("sacrebleu")

SMALL = ["d_model=16", "num_layers=1", "num_heads=2", "d_ff=16", "epochs=1", "precision=fp32", "threads=1"]


def settings(*more):
    return [word for pair in (*SMALL, *more) for word in ("--set", pair)]


def pairs(path, n=40, header=("en", "de")):
    words = {"dog": "Hund", "cat": "Katze", "bird": "Vogel", "horse": "Pferd"}
    adjectives = {"small": "kleine", "old": "alte", "<b>red</b>": "rote"}
    rows = [
        (f"the {a} {w} number {i}", f"das {b} {v} Nummer {i}")
        for i in range(n)
        for a, b in adjectives.items()
        for w, v in words.items()
    ][:n]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def translated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("translation")
    data = pairs(folder / "pairs.csv")
    run = folder / "run"
    code = main(
        [
            "train",
            "multi30k-transformer",
            "--data",
            str(data),
            "--out",
            str(run),
            *settings("test_size=8", "validation_size=4", "vocab_size=300", "maps=2"),
        ]
    )
    assert code == 0
    return run


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    run = tmp_path_factory.mktemp("masked") / "run"
    assert main(["train", "europe-mlm", "--out", str(run), *settings("limit=300", "validation_size=30")]) == 0
    return run


def test_a_translation_run_has_its_files_and_both_searches(translated):
    metrics = json.loads((translated / "metrics.json").read_text())
    assert metrics["judged"] == "test"
    score, form = headline(metrics) or (None, "")
    assert (score, form.format(31.25)) == (metrics["scores"]["test"]["beam"]["bleu"], "31.2 BLEU")
    for split, n in (("validation", 4), ("test", 8)):
        for search, width in (("greedy", 1), ("beam", 5)):
            scores = metrics["scores"][split][search]
            assert scores["n"] == n
            assert scores["width"] == width
            assert 0 <= scores["bleu"] <= 100
            assert "tok:13a" in scores["signatures"]["bleu"]
            assert "tok:none" in scores["signatures"]["bleu_tokenised"]
    rows = table(translated / "translations.csv")
    assert len(rows) == 8
    assert set(rows[0]) == {"source", "reference", "greedy", "beam"}
    examples = json.loads((translated / "alignments.json").read_text())["examples"]
    assert len(examples) == 2
    assert len(examples[0]["weights"]) == len(examples[0]["target"])
    page = (translated / "report.html").read_text()
    assert "<b>red</b>" not in page
    assert page.count('role="img" aria-label="Alignment') == 2
    assert page.count('<figure class="alignment">') == 2
    assert "more</summary>" not in page  # from the third on they are folded away
    assert sum(block["parameters"] for block in metrics["architecture"]) == metrics["parameters"]
    assert "source tokens [M]" in page
    assert "The training loss has label smoothing in it, the validation loss has not." in page
    assert "training pairs" not in page
    assert page.count('aria-label="From input to output') == 2
    assert (translated / "history.jsonl").read_text().count("\n") > 1


def test_evaluate_and_translate(translated, capsys, tmp_path):
    assert main(["evaluate", str(translated), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["greedy"]["n"] == 8
    assert main(["evaluate", str(translated), "--data", str(pairs(tmp_path / "other.csv", 5))]) == 0
    assert "tok:13a" in capsys.readouterr().out
    assert main(["translate", str(translated), "the small dog", "the old cat", "--beam", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    (tmp_path / "texts.txt").write_text("the small dog\nthe old cat\n")
    out = tmp_path / "out.csv"
    assert main(["translate", str(translated), str(tmp_path / "texts.txt"), "--out", str(out)]) == 0
    assert [row["text"] for row in table(out)] == ["the small dog", "the old cat"]
    more, out = (
        pairs(tmp_path / "more.csv", 3),
        tmp_path / "more-out.csv",
    )  # its columns: en and de, as in training
    assert main(["translate", str(translated), str(more), "--out", str(out)]) == 0
    assert [row["text"] for row in table(out)] == [row["en"] for row in table(more)]


def test_every_verb_takes_pairs_under_any_two_names(translated, capsys, tmp_path):
    data, out, run = pairs(tmp_path / "p.csv", 23, ("a", "b")), tmp_path / "out.csv", tmp_path / "run"
    argv = ["train", "multi30k-transformer", "--data", str(data), "--out", str(run)]
    assert main([*argv, *settings("vocab_size=300", "test_size=3", "maps=0")]) == 0
    recipe = load_recipe(str(run / "config.toml"))
    assert (recipe.data.source_column, recipe.data.target_column) == ("a", "b")
    assert main(["translate", str(run), str(data), "--out", str(out)]) == 0
    assert [row["text"] for row in table(out)] == [row["a"] for row in table(data)]
    capsys.readouterr()
    assert main(["evaluate", str(translated), "--data", str(data)]) == 0  # trained on en and de
    assert f"23 pairs of {data}, a to b" in capsys.readouterr().out
    other = pairs(tmp_path / "q.csv", 3, ("source", "target"))
    out.unlink()
    assert main(["translate", str(translated), str(other), "--out", str(out)]) == 0
    assert [row["text"] for row in table(out)] == [row["source"] for row in table(other)]
    assert "no column 'en'" in refused(capsys, *argv[:-1], tmp_path / "r", "--set", "source_column=en")


def refused(capsys, *argv):
    capsys.readouterr()
    assert main([str(a) for a in argv]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    return line


def test_what_is_wrong_is_one_line(translated, masked, capsys, tmp_path):
    long = tmp_path / "long.txt"
    long.write_text("the dog\n" + "the cat " * 200 + "\n")
    assert "long.txt, row 2: the text has more than 128 tokens" in refused(
        capsys, "translate", translated, long
    )
    assert "holds a MaskedLM, which cannot translate" in refused(capsys, "translate", masked, "a")
    assert "holds a Translator, which cannot fill" in refused(capsys, "fill", translated, "a [MASK]")
    assert "Use glassformer translate" in refused(capsys, "predict", translated, "a")
    for data in ("q.csv", "q.parquet"):  # before it says what a file must be
        said = refused(capsys, "predict", translated, "--data", data, "--out", data)
        assert "holds a Translator, which gives no labels. Use glassformer translate" in said
    assert "Use glassformer fill" in refused(capsys, "predict", masked, "--data", "q.csv")
    assert "no [MASK]" in refused(capsys, "fill", masked, "paris")
    assert "no such run folder" in refused(capsys, "fill", tmp_path / "nowhere", "[MASK]")
    bad = tmp_path / "bad.csv"
    bad.write_text("en,de\na,b\nc,\n")
    line = refused(capsys, "train", "multi30k-rnn", "--data", bad, "--out", tmp_path / "r")
    assert "bad.csv, row 3: column 'de': the text is empty" in line
    assert not (tmp_path / "r").exists()
    assert "unknown key 'beem'" in refused(capsys, "train", "multi30k-rnn", "--set", "beem=2")
    assert "the output folder exists" in refused(capsys, "train", "multi30k-rnn", "--out", translated)


def test_a_masked_run_has_its_figures_and_fills(masked, capsys):
    metrics = json.loads((masked / "metrics.json").read_text())
    assert metrics["texts"] == {"train": 300, "validation": 30}
    assert metrics["masked"]["masked_tokens"] > 20
    masks = metrics["masks"]
    assert masks["chosen"] == masks["masked"] + masks["random"] + masks["kept"]
    assert len(metrics["sentences"][0]["fills"][0]) == 5
    assert "Masked words" in (masked / "report.html").read_text()
    capsys.readouterr()
    assert main(["fill", str(masked), "[MASK] is the capital of [MASK].", "--top", "3"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert main(["evaluate", str(masked), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["masked"]["loss"] == pytest.approx(
        metrics["masked"]["loss"], rel=1e-4
    )


def test_pages_are_written_anew(translated, masked, tmp_path, capsys):
    words = tmp_path / "words"
    assert main(["train", "countries-word2vec", "--set", "epochs=1", "--out", str(words)]) == 0
    for run in (translated, masked, words):
        page = run / "report.html"
        before = page.read_text()
        page.unlink()
        assert main(["report", str(run)]) == 0
        assert page.read_text() == before


def test_a_run_is_fine_tuned_from(masked, capsys, tmp_path):
    code = main(
        [
            "train",
            "europe",
            "--model",
            str(masked / "model"),
            "--out",
            str(tmp_path / "fine"),
            "--set",
            "limit=60",
            "--set",
            "epochs=1",
            "--set",
            "max_length=32",
            "--set",
            "tokenizer=auto",
            "--set",
            "baselines=false",
        ]
    )
    out = capsys.readouterr()
    assert code == 0, out.err
    assert "encoder" in out.out


def test_a_finished_run_resumes_to_itself(masked, tmp_path):
    run = shutil.copytree(masked, tmp_path / "run")
    before = (run / "model" / "model.safetensors").read_bytes()
    assert main(["train", "--resume", "--out", str(run)]) == 0
    assert (run / "model" / "model.safetensors").read_bytes() == before


def test_the_corpus_of_imdb_leaves_out_what_stands_in_the_test_set(data_root):
    corpus = load_corpus(load_recipe("imdb-mlm"))
    # 123 distinct texts of train and 266 unlabelled ones stand in the test set, some of them in all three
    assert 266 <= corpus.excluded["test"] <= 266 + 123
    assert len(corpus.validation) == 1000
    assert len(set(corpus.train)) == len(corpus.train)
    assert not set(corpus.train) & set(corpus.validation)
    assert 73_000 < len(corpus.train) + 1000 < 75_000


def test_an_alignment_picture_escapes_its_tokens():
    picture = alignment(["<a>"], ["b", "&"], [[0.25], [1.0]])
    assert "<a>" not in picture
    assert picture.count("<rect") == 2
    assert 'fill-opacity="0.250"' in picture


def test_a_long_text_to_judge_is_cut_and_counted(tmp_path, capsys):
    data = pairs(tmp_path / "pairs.csv")
    with data.open("a") as file:
        file.writelines(f"{'the old dog ' * 40}{i},der alte Hund {i}\n" for i in range(20))
    run = tmp_path / "run"
    long = "the small cat " * 60
    argv = [
        "train",
        "multi30k-transformer",
        "--data",
        str(data),
        "--out",
        str(run),
        *settings(
            "test_size=20", "vocab_size=300", "max_length=40", "maps=2", "beam=2", f'sentences=["{long}"]'
        ),
    ]
    assert main(argv) == 0, capsys.readouterr().err
    out = capsys.readouterr().out
    metrics = json.loads((run / "metrics.json").read_text())
    cut, total = metrics["truncated"]["test"]
    assert 0 < cut < total == 20
    assert metrics["scores"]["test"]["beam"]["n"] == 20
    assert f"{cut} of 20 test texts are longer than 40 tokens and were cut there" in out
    assert main(["evaluate", str(run)]) == 0
    assert f"{cut} of 20 source texts are longer" in capsys.readouterr().out


@pytest.mark.parametrize("setting", ["beam=0", "maps=-1", "limit=0", "train_size=0", "length_penalty=nan"])
def test_translation_settings_out_of_range(setting, capsys, tmp_path):
    key = setting.partition("=")[0]
    argv = [
        "train",
        "multi30k-rnn",
        "--data",
        pairs(tmp_path / "p.csv"),
        "--out",
        tmp_path / "r",
        "--set",
        setting,
    ]
    assert f"{key} = " in refused(capsys, *argv)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("setting", ["top=0", "limit=-5", "validation_size=-1"])
def test_pretraining_settings_out_of_range(setting, capsys, tmp_path):
    argv = ["train", "europe-mlm", "--out", tmp_path / "r", "--set", setting]
    assert "is out of range" in refused(capsys, *argv)
    assert not (tmp_path / "r").exists()


def test_pretraining_on_a_plain_file(tmp_path, capsys):
    file = tmp_path / "corpus.txt"
    file.write_text("".join(f"Paris is the capital of France {i}\n\n" for i in range(30)))
    run = tmp_path / "run"
    argv = ["train", "europe-mlm", "--data", str(file), "--out", str(run), *settings("validation_size=5")]
    assert main(argv) == 0, capsys.readouterr().err
    assert json.loads((run / "metrics.json").read_text())["texts"] == {"train": 30, "validation": 5}
    assert "one text in each line, without labels" in refused(
        capsys, "train", "--text", file, "--out", tmp_path / "r"
    )


def test_every_word_but_no_special_token_fills_a_mask(masked):
    learner = load(masked)
    words = dict(learner.fill("[MASK] is the capital of France.", 10**6))
    assert len(words) == learner.tokenizer_.get_vocab_size() - len(SPECIAL_TOKENS)
    assert not set(words) & set(SPECIAL_TOKENS)
    assert sum(words.values()) == pytest.approx(1, abs=1e-3)


def test_explain_says_which_verb_a_run_is_for(translated, masked, capsys):
    assert "Use glassformer translate" in refused(capsys, "explain", translated, "a dog")
    assert "Use glassformer fill" in refused(capsys, "explain", masked, "a dog")


def test_a_page_shows_what_each_word_was_read_from(translated, capsys, tmp_path):
    capsys.readouterr()
    texts = ["the small dog", "the <b>red</b> cat"]
    assert main(["translate", str(translated), *texts]) == 0
    said = capsys.readouterr().out
    page = tmp_path / "map.html"
    assert main(["translate", str(translated), *texts, "--align", str(page)]) == 0
    assert capsys.readouterr() == (said, f"note: what each word was read from: {page}\n")
    html = page.read_text()
    assert html.count('aria-label="Alignment of') == 2
    assert "<b>red" not in html
    assert "default-src 'none'" in html.replace("&#x27;", "'")
    assert main(["translate", str(translated), texts[0], "--align", str(tmp_path / "map.json")]) == 0
    told = json.loads((tmp_path / "map.json").read_text())
    assert (told["text"], told["translation"]) == (texts[0], said.splitlines()[0])
    assert len(told["weights"]) == len(told["target"])
    again = str(tmp_path / "again.json")
    capsys.readouterr()
    assert main(["translate", str(translated), *texts, "--align", again, "--json"]) == 0
    rows = [{"text": text, "translation": line} for text, line in zip(texts, said.splitlines(), strict=True)]
    assert json.loads(capsys.readouterr().out) == {"translations": rows, "align": again}
    assert "the output file exists" in refused(capsys, "translate", translated, "a", "--align", page)
    assert "not .json or .html" in refused(
        capsys, "translate", translated, "a", "--align", tmp_path / "a.png"
    )
    assert "21 texts, at most 20" in refused(
        capsys, "translate", translated, *["a"] * 21, "--align", tmp_path / "b.html"
    )


def test_line_n_of_the_translations_belongs_to_line_n_of_the_file(translated, capsys, tmp_path):
    capsys.readouterr()
    texts, out = tmp_path / "texts.txt", tmp_path / "out.csv"
    texts.write_bytes("\ufeff\nthe small dog\r\n \r\n\nthe old cat\n\n".encode())
    assert main(["translate", str(translated), "the small dog", "the old cat"]) == 0
    dog, cat = capsys.readouterr().out.splitlines()
    assert dog
    assert main(["translate", str(translated), str(texts)]) == 0
    assert capsys.readouterr().out.split("\n") == ["", dog, "", "", cat, "", ""]
    assert main(["translate", str(translated), str(texts), "--out", str(out)]) == 0
    assert [row["translation"] for row in table(out)] == ["", dog, "", "", cat, ""]
    texts.write_text("the small dog\n\nthe old cat")  # a last line that does not end
    capsys.readouterr()
    assert main(["translate", str(translated), str(texts)]) == 0
    assert capsys.readouterr().out.splitlines() == [dog, "", cat]
    assert main(["translate", str(translated), str(texts), "the small dog"]) == 0
    assert capsys.readouterr().out.splitlines() == [dog, cat, dog]


def test_a_translator_that_nothing_judges_says_so(capsys, tmp_path):
    run = tmp_path / "run"
    argv = ["train", "multi30k-transformer", "--data", str(pairs(tmp_path / "p.csv")), "--out", str(run)]
    assert main([*argv, *settings("vocab_size=300", "maps=1")]) == 0
    assert "no held-out pairs: nothing will judge the translations" in capsys.readouterr().out
    page = (run / "report.html").read_text()
    assert "No pairs were held out" in page
    assert "The sentences are training pairs: none were held out." in page
    assert "sentences" not in json.loads((run / "metrics.json").read_text())  # those speak of Multi30k
