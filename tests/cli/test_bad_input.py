"""Each wrong input: one line that says what, where and the way out; exit code 2; nothing lost or left behind."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from glassformer.data.text import word_tokenizer
from glassformer.families.pretrained import save_pretrained
from glassformer.models.text import TextEncoder as Bert
from glassformer.models.text import TextEncoderConfig as BertConfig
from glassformer.nn.embed import EmbeddingConfig
from glassformer.nn.encoder import EncoderConfig
from glassformer.tasks.build import save_tokenizer

from .tiny import sentences, sets, settings, snapshot, write_csv

GOOD = sentences(20)


def table(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


CSV_LINES = ["text,label", *(",".join(row) for row in GOOD)]


def with_line(number: int, line: bytes) -> bytes:
    """The good table with one line, counted from 1, replaced."""
    lines = [line.encode() for line in CSV_LINES]
    lines[number - 1] = line
    return b"\n".join(lines) + b"\n"


TABLES = {
    "empty text": (with_line(7, b",pos"), ["row 7", "text is empty", "Fill it in"]),
    "NaN label": (with_line(9, b"a film,NaN"), ["row 9", "label is missing"]),
    "no label": (with_line(9, b"a film,"), ["row 9", "label is missing"]),
    "ragged": (with_line(5, b"one, two, three,pos"), ["row 5", "4 fields where the header has 2", "quotes"]),
    "not UTF-8": (with_line(4, b"caf\xe9,pos"), ["line 4", "not UTF-8", "0xe9", "--encoding cp1252"]),
    "UTF-16": ("\n".join(CSV_LINES).encode("utf-16"), ["UTF-16", "--encoding utf-16"]),
    "NUL byte": (with_line(3, b"a\x00b,pos"), ["line 3", "NUL"]),
    "open quote": (with_line(3, b'"a film,pos'), ["never closed"]),
    "no rows": (b"text,label\n", ["no rows"]),
    "no file content": (b"", ["no"]),
    "a class of one": (
        b"text,label\n" + b"".join(b"film %d,neg\n" % i for i in range(9)) + b"a film,pos\n",
        ["reviews.csv, column 'label': class 'pos' has only one example", "test each need one"],
    ),
    "numbers": (
        b"text,label\n" + b"".join(b"film %d,0.%d\n" % (i, i) for i in range(10, 40)),
        ["reviews.csv, column 'label': the labels look like numbers"],
    ),
    "one class only": (
        b"text,label\n" + b"a film,pos\nanother film,pos\n" * 9,
        ["reviews.csv, column 'label': one class only ('pos')"],
    ),
    "column": (
        b"text,labl\n" + b"".join(b"film %d,mood %d\n" % (i, i) for i in range(18)),
        ["no column 'label'", "'labl' holds 18 different values", "--label-column"],
    ),
}


@pytest.mark.parametrize("case", TABLES)
def test_bad_table(case: str, refused, tmp_path: Path):
    content, wanted = TABLES[case]
    path = table(tmp_path / "reviews.csv", content)
    line = refused("train", "--text", path, "--out", "out", *settings())
    for part in ["reviews", *wanted]:
        assert part in line
    assert path.read_bytes() == content
    assert not Path("out").exists()


def test_corrected_table_is_trained_by_the_same_command(refused, ok, tmp_path: Path):
    path = table(tmp_path / "reviews.csv", with_line(7, b",pos"))
    command = ("train", "--text", path, *settings())
    refused(*command)
    write_csv(path, GOOD)
    ok(*command)
    assert Path("runs/reviews/report.html").is_file()


def test_input_errors_found_late_leave_no_folder_either(refused, reviews: Path):
    line = refused("train", "--text", reviews, "--out", "out", *settings("d_model=15"))
    assert "15" in line
    assert not Path("out").exists()


MISNAMED = [
    (["--text", "revews.csv", *settings()], ["no such file", "Did you mean 'reviews.csv'?"]),
    (["--text", "reviews.csv", *settings("text_column=txt")], ["no column 'txt'", "Did you mean 'text'?"]),
    (["--text", "reviews.csv", "--set", "epoch=3"], ["Did you mean 'epochs'?"]),
    (
        ["--text", "reviews.csv", "--model", "all-minilm", "--out", "out"],
        ["'all-minilm'", "all-minilm-l6-v2"],
    ),
    (["europe", "--set", "lrr=1"], ["Did you mean 'lr'?"]),
    (["europe", "--set", "lr=fast"], ["[train] lr", "a number"]),
    (["eurpe"], ["Did you mean 'europe'?"]),
    (["mine.toml"], ["mine.toml", "'epoch'", "Did you mean 'epochs'?"]),
    (["broken.toml"], ["line 2"]),
]


@pytest.mark.parametrize(("words", "wanted"), MISNAMED)
def test_what_is_named_wrongly_is_told_with_the_nearest(words, wanted, refused, reviews, tmp_path: Path):
    table(tmp_path / "mine.toml", '[data]\nsource = "europe"\n[train]\nepoch = 1\n')
    table(tmp_path / "broken.toml", "[train]\nepochs = = 1\n")
    line = refused("train", *words)
    for part in wanted:
        assert part in line
    assert not Path("runs").exists()
    assert not Path("out").exists()


@pytest.mark.parametrize("split", ["validation", "test"])
def test_label_unseen_in_training(split: str, refused, tmp_path: Path):
    write_csv(tmp_path / "data" / "train.csv", GOOD)
    write_csv(tmp_path / "data" / f"{split}.csv", [*sentences(6, seed=1), ("a film", "meh")])
    line = refused("train", "--text", tmp_path / "data", "--out", "out", *settings())
    assert "label 'meh' was not seen in training" in line
    assert "neg, pos" in line


def test_label_unseen_in_training_when_a_run_is_judged_again(refused, run: Path, tmp_path: Path):
    other = write_csv(tmp_path / "other.csv", [*sentences(6, seed=1), ("a film", "meh")])
    before = snapshot(run)
    line = refused("evaluate", run, "--data", other)
    assert "label 'meh' was not seen in training" in line
    assert "other.csv" in line
    assert snapshot(run) == before


def test_output_folder_exists(refused, run: Path, reviews: Path):
    before = snapshot(run)
    line = refused("train", "--text", reviews, "--out", run, *settings())
    assert str(run) in line
    assert "exists" in line
    assert "--resume" in line
    assert snapshot(run) == before


def test_output_is_a_file_or_somebody_elses_folder(refused, reviews: Path, tmp_path: Path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "thesis.txt").write_text("dear", encoding="utf-8")
    for extra in ((), ("--resume",)):
        refused("train", "--text", reviews, "--out", "own", *settings(), *extra)
        assert "is a file" in refused("train", "--text", reviews, "--out", "reviews.csv", *settings(), *extra)
    assert snapshot(tmp_path / "own") == {"thesis.txt": b"dear"}
    assert reviews.read_text(encoding="utf-8").startswith("text,label\n")


def test_output_folder_that_cannot_be_made(refused, reviews: Path):
    line = refused("train", "--text", reviews, "--out", "reviews.csv/below/it", *settings())
    assert "reviews.csv/below/it: the folder cannot be created" in line
    assert "reviews.csv is not a writable folder. Choose another --out" in line


@pytest.mark.parametrize(
    ("setting", "wanted"),
    [
        ("split=tset", "no split 'tset'. Did you mean 'test'?"),
        ("bootstrap=-1", "bootstrap: -1 is out of range"),
        ("maps=-1", "maps: -1 is out of range"),
        ("seed=4294967296", "Use a value from 0 to 4294967295"),
        ("split_seed=-1", "split_seed: -1 is out of range"),
        ("validation_size=nan", "validation_size: nan is out of range. Use a value of at least 0"),
        ("lr=inf", "lr: inf is out of range"),
        ('sentences=["a film", ""]', "evaluate.sentences[1]: the text is empty"),
    ],
)
def test_settings_that_judging_could_not_use_are_found_before_training(
    setting, wanted, refused, reviews: Path
):
    assert wanted in refused("train", "--text", reviews, "--out", "out", *settings(), "--set", setting)
    assert not Path("out").exists()


def test_a_name_leads_to_no_other_folder(refused, reviews: Path):
    wanted = "name: '../elsewhere' cannot be a folder's name. Use letters, or give --out"
    assert wanted in refused("train", "--text", reviews, *settings(), "--set", "name=../elsewhere")
    assert not Path("../elsewhere").exists()


def test_resume_of_another_recipe(refused, run: Path):
    before = snapshot(run)
    line = refused("train", "--resume", "--out", run, "--set", "lr=0.5")
    assert "another recipe" in line
    assert snapshot(run) == before


# --- checkpoints ----------------------------------------------------------------------------------


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A tiny BERT in the Hub's layout, with its tokenizer."""
    tokenizer = word_tokenizer([text for text, _ in GOOD], min_count=1, vocab_size=100)
    embedding = EmbeddingConfig(tokenizer.get_vocab_size(), 16, "learned", 32, 2, norm=True)
    model = Bert(BertConfig(embedding, EncoderConfig(16, 1, 2, 32, "post"), pooling="pooler"))
    folder = tmp_path / "weights"
    folder.mkdir()
    save_pretrained(model, folder)
    save_tokenizer(tokenizer, folder, 32)
    return folder


def bert_settings(*more: str) -> list[str]:
    """As ``settings``, without what belongs to models from scratch only."""
    scratch = ("model=", "d_model=", "num_layers=", "num_heads=", "d_ff=")
    pairs = [pair for pair in settings(*more) if pair != "--set" and not pair.startswith(scratch)]
    return sets(*pairs)


def test_whole_checkpoint_trains(ok, weights: Path, reviews: Path):
    result = ok("train", "--text", reviews, "--model", weights, "--out", "out", *bert_settings())
    assert str(weights) in result.out


def test_checkpoint_with_wrong_tensors(refused, weights: Path, reviews: Path):
    file = weights / "model.safetensors"
    tensors = load_file(file) | {"surprise.weight": torch.zeros(3)}
    save_file(tensors, file)
    before = snapshot(weights)
    line = refused("train", "--text", reviews, "--model", weights, "--out", "out", *bert_settings())
    assert "surprise" in line
    assert str(weights) in line
    assert snapshot(weights) == before
    assert not Path("out").exists()


def test_pickled_weights_are_refused_with_the_way_to_convert(refused, weights: Path, reviews: Path):
    (weights / "model.safetensors").rename(weights / "pytorch_model.bin")
    line = refused("train", "--text", reviews, "--model", weights, "--out", "out", *bert_settings())
    assert "pytorch_model.bin" in line
    assert "save_pretrained" in line


@pytest.mark.parametrize("verb", ["evaluate", "predict"])
def test_flipped_byte_in_the_weights(verb: str, refused, run: Path):
    file = run / "model" / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    before = snapshot(run)
    line = refused(verb, run, *(["a film"] if verb == "predict" else []))
    assert "model.safetensors" in line
    assert "damaged" in line
    assert snapshot(run) == before


def test_no_run_and_unfinished_run(refused, run: Path, tmp_path: Path):
    for verb, rest in (("evaluate", []), ("predict", ["a film"])):
        assert "no such run folder" in refused(verb, "nowhere", *rest)
    (run / "model").rename(tmp_path / "elsewhere")
    assert f"train --resume --out {run}" in refused("evaluate", run)


# --- the command line itself ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "wanted"),
    [
        (["nope"], "nope"),
        (["evaluate"], "RUN"),
        (["evaluate", "run", "--jason"], "--jason"),
        (["train", "europe", "--set", "epochs"], "no '='"),
        (["train"], "europe"),
        (["train", "europe", "--text", "reviews.csv"], "both"),
        (["train", "--text", "reviews.csv", "--data", "imdb"], "both"),
        (["train", "--resume", "--out", "nowhere"], "no such run folder"),
        (["data", "doctor", "europe", "--max-length", "x"], "--max-length"),
    ],
)
def test_usage_errors(argv: list[str], wanted: str, refused):
    assert wanted in refused(*argv)


def test_names_from_outside_cannot_steer_the_terminal(refused, tmp_path: Path):
    write_csv(tmp_path / "bad\x1b[31m.csv", [("a", "b"), ("", "b")])
    line = refused("train", "--text", tmp_path / "bad\x1b[31m.csv", *settings())
    assert "\x1b" not in line
    assert "row 3" in line


# --- objects and lists in the place of texts --------------------------------------------------------

VERBS = [
    ["train", "--text", "FILE", "--out", "new", *settings()],
    ["evaluate", "RUN", "FILE"],
    ["calibrate", "RUN", "--data", "FILE"],
    ["predict", "RUN", "FILE"],
    ["predict", "RUN", "FILE", "--out", "answers.csv"],
    ["embed", "RUN", "FILE", "--out", "vectors.npy"],
    ["data", "doctor", "FILE"],
    ["data", "show", "FILE"],
    ["cross-validate", "--text", "FILE", "--out", "new", *settings()],
    ["review-labels", "--text", "FILE", "--out", "new", *settings()],
    ["train", "europe-mlm", "--data", "FILE", "--out", "new"],
]
KINDS = {
    "an object ('en', 'de')": lambda text: {"en": text, "de": text},
    "an object ('en')": lambda text: {"en": text},
    "a list": lambda text: [text],
}


def write(file: Path, make, which) -> Path:
    rows = [
        {"text": make(text) if which(i) else text, "label": label}
        for i, (text, label) in enumerate(sentences(41))
    ]
    if file.suffix == ".parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.Table.from_pylist(rows), file)
    else:
        file.write_text(json.dumps(rows) if file.suffix == ".json" else "\n".join(map(json.dumps, rows)))
    return file


@pytest.mark.parametrize("words", VERBS, ids=lambda words: " ".join(words[:2]))
def test_every_verb_names_file_and_row(refused, run, tmp_path, words):
    for ending in ("jsonl", "json", "parquet"):
        for said, make in KINDS.items():
            for first, which in ((1, lambda i: True), (5, lambda i: i == 4)):
                if ending == "parquet" and first == 5:
                    continue  # a column of it has one kind
                if words[0] == "data" and first == 5:
                    continue  # these count such rows and show the others
                file = write(tmp_path / f"t.{ending}", make, which)
                line = refused(*({"FILE": file, "RUN": run}.get(word, word) for word in words))
                where = (
                    f"t.{ending}, row {first}" if "no row" not in line else "no row can be used; the first"
                )
                assert f"{where}: the text is not a string but {said}" in line
                assert f"t.{ending}" in line
                assert "Write the text instead" in line
    assert not Path("new").exists()


def test_such_rows_are_left_out_where_asked(gf, ok, run, tmp_path):
    file = write(tmp_path / "t.jsonl", KINDS["an object ('en')"], lambda i: i == 4)
    result = gf("evaluate", run, file, "--on-bad-row", "skip", "--json")
    assert json.loads(result.out)["n"] == 40
    result = ok("predict", run, file, "--on-bad-row", "skip", "--json")
    answers = json.loads(result.out)["answers"]
    assert [bool(a.get("error")) for a in answers].count(True) == 1
    assert "not a string but an object ('en')" in answers[4]["error"]
