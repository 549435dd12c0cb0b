"""The first day with a trained model of texts: predict, evaluate, cross-validate, correct labels; pairs; Python."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import glassformer as gf
from benchmarks.reliability.first_day_steps import Step, lines_of_json, raw, settings, small, table, texts
from glassformer.data import load_text_dataset

HEAD = ("comment", "emotion")
SIZES = {"d_model": 8, "num_layers": 1, "num_heads": 2, "d_ff": 13, "epochs": 1, "precision": "fp32"}
TINY = SIZES | {"min_count": 1}
FAST = settings(*(f"{key}={value}" for key, value in SIZES.items()), "vocab_size=120")


def text_steps(home: Path) -> list[Step]:
    """All of them; the first trains the run that the others ask."""
    table("own.csv", HEAD, texts(60))
    begin = [
        Step("train the run", f"train --text own.csv --out run {small()}", ("labels in 'emotion'",)),
        Step("train it again", f"train --text own.csv --out run {small()}", ("--resume",), 2),
    ]
    parts = (predicted, evaluated, corrected, masked, paired, from_python, asked_wrongly)
    return [*begin, *(step for part in parts for step in part())]


def rows_of(path: str) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def shown(path: str, *columns: str) -> Callable[[], str]:
    """The values of some columns of a CSV file, row for row."""
    return lambda: " / ".join(",".join(row.get(name, "(none)") for name in columns) for row in rows_of(path))


def predicted() -> list[Step]:
    raw("three.txt", "a splendid film\n\na dreadful plot\n")
    table(
        "new.csv",
        ("id", "comment", "when", "label"),
        [(i, t, "May", "?") for i, (t, _) in enumerate(texts(9, 80))],
    )
    table("unusual.csv", ("nr", "utterance"), [(i, t) for i, (t, _) in enumerate(texts(5, 90))])
    table("gaps.csv", ("id", "comment"), [(1, "a splendid film"), (2, ""), (3, "a dreadful plot")])
    raw("ragged.csv", "id,comment\n1,a splendid film\n2,so, what\n3,a dreadful plot\n")
    table("two.csv", ("comment", "remark"), [(t, f"{t} and more") for t, _ in texts(5)])
    lines_of_json("new.jsonl", [{"text": t, "tags": ["a"]} for t, _ in texts(3)])
    raw("blank.txt", "\n \n")
    return [
        Step("predict: a sentence", "predict run 'a splendid film'", (r"(good|bad) 0\.\d+ a splendid film",)),
        Step("predict: a text file with an empty line", "predict run three.txt", ("1 row has no answer", r"\(row 2\)")),
        Step("predict: that file as a table", "predict run three.txt --out three-out.csv", ("3 texts",)),
        Step("its rows", shown("three-out.csv", "row", "error"), ("1, / 2,the line is empty / 3,",)),
        Step("predict: a table", "predict run new.csv --out new-answers.csv", ("9 texts",)),
        Step("its own columns", shown("new-answers.csv", "id", "when", "given:label"), (r"0,May,\? / .* 8,May,\?",)),
        Step("predict: the same file again", "predict run new.csv --out new-answers.csv", ("exists",), 2),
        Step("predict: a column of other name", "predict run unusual.csv", ("number 90", "number 94")),
        Step("predict: a column by name", "predict run unusual.csv --text-column utterance", ("number 90",)),
        Step("predict: a column that is not there", "predict run unusual.csv --text-column uterance",
             ("no column 'uterance'", "'utterance'"), 2),
        Step("predict: an empty text", "predict run gaps.csv", ("row 3", "text is empty", "--on-bad-row skip"), 2),
        Step("predict: an empty text marked", "predict run gaps.csv --on-bad-row skip --out gaps-out.csv",
             ("3 texts", "1 row has no answer: the text is empty")),
        Step("the marked row", shown("gaps-out.csv", "id", "error"), ("1, / 2,the text is empty / 3,",)),
        Step("predict: a ragged row", "predict run ragged.csv", ("row 3", "3 fields", "--on-bad-row skip"), 2),
        Step("predict: a ragged row marked", "predict run ragged.csv --on-bad-row skip", ("1 row has no answer",)),
        Step("predict: JSON Lines", "predict run new.jsonl --out j.csv", ("3 texts",)),
        Step("their own keys", shown("j.csv", "tags"), (r'\["a"\]',)),
        Step("predict: two files", "predict run new.csv new.jsonl --out both.csv", ("12 texts",)),
        Step("which file each is from", shown("both.csv", "file", "row"), ("new.csv,2", "new.jsonl,1")),
        Step("predict: one's own table with the answers behind",
             "predict run new.csv --out kept.csv --keep-table", ("9 texts",)),
        Step("its columns", lambda: ",".join(rows_of("kept.csv")[0]), ("^id,comment,when,label,predicted,probability$",)),
        Step("explain: a row of it", "explain run new.csv --row 3 --method occlusion", ("number|splendid|dreadful",)),
        Step("explain: a row that is not there", "explain run new.csv --row 99", ("no row 99. Rows 2 to 10",), 2),
        Step("predict: a file of blank lines", "predict run blank.txt", ("no texts",), 2),
        Step("predict: two columns with usual and other name", "predict run two.csv", ("number 0",)),
        Step("predict: a file that is not there", "predict run newer.csv", ("no such file",), 2),
    ]  # fmt: skip


def evaluated() -> list[Step]:
    table("other.csv", ("remark", "mood"), texts(14, 300))
    table("wrong.csv", HEAD, [*texts(8, 300), ("", "good"), ("a text", ""), ("another", "good")])
    table("meh.csv", HEAD, [*texts(8, 300), ("so so", "meh")])
    table("plain.csv", ("comment",), [(t,) for t, _ in texts(8)])
    table("cased.csv", HEAD, [(t, x.upper()) for t, x in texts(8, 300)])
    return [
        Step("evaluate", "evaluate run", ("accuracy", "precision")),
        Step("evaluate: other data with other names", "evaluate run --data other.csv", ("14 texts of other.csv",)),
        Step("evaluate: bad rows", "evaluate run --data wrong.csv", ("row 10", "text is empty", "--on-bad-row skip"), 2),
        Step("evaluate: bad rows left out", "evaluate run --data wrong.csv --on-bad-row skip",
             ("2 rows left out; the first: wrong.csv, row 10", "9 texts")),
        Step("evaluate: as JSON", "evaluate run --data wrong.csv --on-bad-row skip --json", ('"left_out"',)),
        Step("evaluate: a label not trained", "evaluate run --data meh.csv", ("'meh' was not seen", "bad, good"), 2),
        Step("evaluate: labels in capitals", "evaluate run --data cased.csv",
             (r"another spelling than the model's: 'BAD' as 'bad' \(4\), 'GOOD' as 'good' \(4\)",)),
        Step("evaluate: no labels", "evaluate run --data plain.csv", ("no column 'label'",), 2),
        Step("evaluate: another choice", "evaluate run --on-bad-row mark", ("not a choice",), 2),
        Step("calibrate", "calibrate run", ("temperature",)),
        Step("calibrate: bad rows", "calibrate run --data wrong.csv", ("row 10", "--on-bad-row skip"), 2),
        Step("calibrate: bad rows left out", "calibrate run --data wrong.csv --on-bad-row skip", ("9",)),
        Step("explain", "explain run 'a splendid film' --method occlusion", ("splendid",)),
        Step("report", "report run", ("report.html",)),
        Step("embed: a file with an empty line", "embed run three.txt --out v.npy",
             (r"1 row has no answer: the line is empty \(row 2\)", "2 vectors")),
    ]  # fmt: skip


def corrected() -> list[Step]:
    """Labels reviewed, corrected and given back."""
    rows = [(i, *row) for i, row in enumerate([*texts(60), *((t.upper(), x) for t, x in texts(12))])]
    table("noisy.csv", ("id", *HEAD), rows)
    table("gappy.csv", HEAD, [*texts(60), ("", "good"), ("a text", "")])
    folds = f"--text noisy.csv --folds 2 --out folds {small()}"

    def sides() -> str:
        """Whether each text has the fold of its copy in capitals."""
        plan = json.loads(Path("folds/folds.json").read_text(encoding="utf-8"))["assignment"]
        return f"{sum(plan[i] == plan[60 + i] for i in range(12))} of 12 copies together"

    def edit() -> str:
        """A person puts the first label right, in a spreadsheet."""
        found = rows_of("folds/to_correct.csv")
        found[0]["emotion"] = "good"
        table("folds/to_correct.csv", list(found[0]), [list(row.values()) for row in found])
        return f"{len(found)} rows; {', '.join(found[0])}"

    gappy = "cross-validate --text gappy.csv --folds 2 --out h"
    back = "train --text folds/to_correct.csv"
    return [
        Step("cross-validate", f"cross-validate {folds}", ("72 examples in 2 folds",)),
        Step("cross-validate: a bad row", f"{gappy} {small()}", ("row 62", "--on-bad-row skip"), 2),
        Step("cross-validate: bad rows left out", f"{gappy} --on-bad-row skip {small()}",
             ("2 rows left out", "60 examples in 2 folds", "labels in 'emotion'")),
        Step("copies share a fold", sides, ("12 of 12",)),
        Step("review-labels", "review-labels folds", (f"give it back: glassformer {back}",)),
        Step("correct a label", edit, ("72 rows; review:rank, review:suggested", "id, comment, emotion")),
        Step("review-labels again", "review-labels folds", ("has been edited and stays as it is",)),
        Step("give it back", f"{back} --out again {small()}", ("labels in 'emotion'",)),
        Step("review-labels: no folds", "review-labels run", ("no finished cross-validation",), 2),
    ]  # fmt: skip


def masked() -> list[Step]:
    """One's own masked language model, and a classifier from it."""
    raw("lines.txt", "\n".join(t for t, _ in texts(90)))
    raw("stories.txt", "\n".join(f"{t}. Then {t}!" for t, _ in texts(90)))
    own = f"train --text own.csv --model mlm {settings('epochs=1', 'baselines=false', 'bootstrap=20')}"
    return [
        Step("masked words of lines", f"train europe-mlm --data lines.txt --out mlm {FAST}",
             ("most texts have one sentence: next_sentence=false",)),
        Step("masked words of stories", f"train europe-mlm --data stories.txt --out mlm2 {FAST}",
             ("next sentence accuracy",), untold=("most texts have one sentence",)),
        Step("fill", "fill mlm 'the [MASK] number 3'", (r"0\.\d+",)),
        Step("a classifier from it", f"{own} --out from-mlm", ("positions for 64 tokens: max_length = 64",)),
        Step("predict with it", "predict from-mlm 'a splendid film'", ("good|bad",)),
        Step("predict with the masked model", "predict mlm 'a film'", ("gives no labels", "glassformer fill"), 2),
        Step("a length beyond its positions", f"{own} --set max_length=65 --out x", ("64 positions", "Use 64 or less"), 2),
    ]  # fmt: skip


def paired() -> list[Step]:
    """Pairs of texts."""
    pairs = [(f"the cat number {i} sleeps here", f"die Katze Nummer {i} schläft hier") for i in range(40)]
    table("pairs.csv", ("en", "de"), [*pairs, pairs[0]])
    table("holes.csv", ("source", "target"), [*pairs, ("a text", ""), ("", "ein Text")])
    table("three.csv", ("id", "en", "de"), [(i, *pair) for i, pair in enumerate(pairs)])
    raw("corpus.en", "\n".join(a for a, _ in pairs))
    raw("corpus.de", "\n".join(b for _, b in pairs[:-1]))
    return [
        Step("data doctor: pairs", "data doctor pairs.csv", ("1 of 41 pairs repeat", "length|usual")),
        Step("data doctor: empty sides", "data doctor holes.csv", ("2 of 42 pairs have an empty side",)),
        Step("data show: pairs", "data show three.csv", ("40",)),
        Step(
            "data doctor: files of unequal length",
            "data doctor corpus",
            ("40 lines, but corpus.de has 39",),
            2,
        ),
        Step(
            "a classifier of pairs",
            f"train --text pairs.csv --out x {small()}",
            ("no column|look like texts",),
            2,
        ),
    ]


def from_python() -> list[Step]:
    """The same from Python."""
    x, y = [t for t, _ in texts(24)], [label for _, label in texts(24)]

    def fit(X: Any, y: Any, **settings: Any) -> Callable[[], str]:
        options: dict[str, Any] = TINY | {"max_length": 16} | settings
        return lambda: str(gf.TextClassifier("encoder-mini", **options).fit(X, y).classes_)

    return [
        Step("Python: fit", fit(x, y), ("bad", "good")),
        Step("Python: an empty text", fit([*x[:-1], ""], y), (r"texts\[23\]", "empty"), 2),
        Step("Python: None for a label", fit(x, [*y[:-1], None]), (r"labels\[23\]", "missing"), 2),
        Step("Python: fractions for labels", fit(x, [i / 7 for i in range(24)]), ("fraction",), 2),
        Step("Python: one text", fit("a film", y), ("one string where a list",), 2),
        Step("Python: unequal lengths", fit(x, y[:-1]), ("24 texts but 23 labels",), 2),
        Step("Python: one class", fit(x, ["good"] * 24), ("one class only",), 2),
        Step("Python: a part held out, with copies", fit(x + [t.upper() for t in x], y * 2, validation_fraction=0.2), ("good",)),
        Step("Python: a table of other names", lambda: load_text_dataset("own.csv", need_labels=True).columns, ("comment.*emotion",)),
        Step("Python: bad rows listed", lambda: load_text_dataset("wrong.csv", on_bad_row="skip", need_labels=True).rejected,
             ("row=10", "the text is empty", "row=11")),
        Step("Python: no such model", lambda: gf.TextClassifier("encoder-mimi").fit(x, y),
             ("no model 'encoder-mimi'", "encoder-mini"), 2),
    ]  # fmt: skip


def asked_wrongly() -> list[Step]:
    """Commands that do not fit."""
    raw("tags.conll", "a O\n")
    no_run, own = ("no such run folder", "Did you mean 'run'"), "train --text own.csv"
    return [
        Step("no such run", "predict runs/nowhere 'a film'", ("no such run folder", "--out|Did you mean"), 2),
        Step("evaluate no run", "evaluate own.csv", ("no such run folder",), 2),
        Step("nothing to label", "predict run", ("nothing to read", "Give a TEXT, a FILE"), 2),
        Step("a run misspelled", "predict rnu 'a film'", no_run, 2),
        Step("go on with a run that is none", "train --resume --out rnu", no_run, 2),
        Step("go on with other settings", f"{own} --out run --resume {small('epochs=7')}",
             ("another recipe", "train.epochs is 1 there and 7 here"), 2),
        Step("a setting without its option", f"{own} epochs=3", ("--set epochs=3",), 2),
        Step("tags in the place of labeled texts", "train --text tags.conll", ("wnut17-minilm --data tags.conll",), 2),
        Step("explain a file with an empty text", "explain run gaps.csv", ("row 3", "text is empty"), 2,
             ("--on-bad-row",)),
        Step("compare runs that were judged on different examples", "compare run again",
             ("different examples: \\d+ and \\d+, \\d+ of them the same",), 2, ("Traceback",)),
        Step("a rate that is far too high", f"{own} --out wild {small('lr=900')}", ("lr = 900 is .* times the usual",), 1),
        Step("no recipe", "train", ("no recipe is given",), 2),
        Step("a recipe and a file", "train europe --text own.csv", ("both",), 2),
        Step("a verb that is none", "trian", ("No such command", "train|help"), 2),
    ]  # fmt: skip
