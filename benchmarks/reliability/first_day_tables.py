"""The first day with tables: what the data doctor, ``data show`` and ``train`` say of messy ones."""

import shlex
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.reliability import first_day_steps as steps
from benchmarks.reliability.first_day_steps import Step, lines_of_json, raw, small, table, texts

MOODS = ("joy", "anger", "fear", "pride")
HEAD = ("text", "label")
SKIP = ("--on-bad-row", "skip")
LEAKS = ("distinct texts in both", "stand in train and in")  # what the doctor says of texts in two parts


def table_steps(home: Path) -> list[Step]:
    """All of them; the files are made in the folder where one is."""
    return [*columns(), *spellings(), *rows_and_labels(), *kinds_of_files(), *splits(), *refused()]


def train(
    what: str, path: str, *told: str, sets: tuple[str, ...] = (), more: tuple = (), **rest: Any
) -> Step:
    return steps.train("train", what, f"--text {path}", f"{shlex.join(more)} {small(*sets)}", *told, **rest)


doctor = partial(steps.doctor, "data doctor")


def columns() -> list[Step]:
    """Tables under other names than the usual ones."""
    good, two = table("good.csv", HEAD, texts(60)), table("two.csv", ("comment", "emotion"), texts(60))
    body = table("body.csv", ("body", "stars"), texts(60))
    rows = [(i, f"u{i}", t, i % 5, label) for i, (t, label) in enumerate(texts(60))]
    many = table("many.csv", ("id", "user", "utterance", "votes", "emotion"), rows)
    cities = [(t, ("Rome", "Oslo", "Bonn")[i % 3], label) for i, (t, label) in enumerate(texts(60))]
    either = table("either.csv", ("utterance", "city", "emotion"), cities)
    both = table("both.csv", ("text", "label", "category"), [(*row, "a") for row in texts(60)])
    titles = [
        (f"day {i}", f"{t} and it went on for a while", label) for i, (t, label) in enumerate(texts(60))
    ]
    title = table("title.csv", ("headline", "article", "mood"), titles)
    pairs = [(t, f"{t[::-1]} x", label) for t, label in texts(60)]
    pair = table("pairs.csv", ("premise", "hypothesis", "relation"), pairs)
    wide = table(
        "wide.csv", ("id", *HEAD, *(f"c{i}" for i in range(90))), [(1, *r, *range(90)) for r in texts(20)]
    )
    twice = raw("twice.csv", "text,label,text\na,b,c\n")
    headless = table("headless.csv", texts(1)[0], texts(59, 1))
    return [
        doctor("a good table", good, "no text occurs twice", untold=("warning",)),
        doctor("comment, emotion", two, "texts in 'comment', labels in 'emotion'", "2 classes"),
        doctor("two columns with names of one's own", body, "texts in 'body', labels in 'stars'"),
        doctor("five columns", many, "texts in 'utterance', labels in 'emotion'"),
        doctor("a headline beside its article", title, "texts in 'article', labels in 'mood'"),
        doctor("ninety columns", wide, "2 classes"),
        Step("data show: comment, emotion", f"data show {two}", ("labels in 'emotion'", "bad: 30, good: 30")),
        Step("data show: as JSON", f"data show {many} --json", ('"texts": 60', "'utterance'")),
        Step("data doctor: as JSON", f"data doctor {many} --json", ('"code": "columns"', '"fix"')),
        train("comment, emotion", two, "labels in 'emotion'", "12 test|6 test"),
        train("two columns with names of ones own", body, "labels in 'stars'"),
        train("five columns", many, "labels in 'emotion'"),
        doctor("two columns like labels", either, r"several columns could be the label \(city, emotion\)", "--label-column"),
        train("two columns like labels", either, r"could be the label \(city, emotion\)", "label.column", code=2),
        train("two columns like labels and one named", either, sets=("label_column=emotion",)),
        train("columns by name", many, sets=("text_column=utterance", "label_column=votes")),
        train("label beside category", both, "6 test"),
        train("pairs of texts", pair, "pairs of texts, detected by their names: 'premise' and 'hypothesis'", "text.column names one"),
        train("a column that is not there", many, "no column 'utterence'", "'utterance'",
              sets=("text_column=utterence",), code=2),
        train("a column that occurs twice", twice, "'text' occurs twice", "Rename", code=2),
        train("no header", headless, "no column|detected by content", code=0),
    ]  # fmt: skip


def spellings() -> list[Step]:
    """Quotes, emoji, byte order marks, separators, letters of many scripts."""
    rows = texts(60)
    bom = raw("bom.csv", "\ufefftext,label\r\n" + "".join(f"{t},{label}\r\n" for t, label in rows))
    quoted = [(f'she said "{t}", then\nleft; {i}', label) for i, (t, label) in enumerate(rows)]
    emoji = [(f"{t} {'😀' if label == 'good' else '😡'} naïve — “yes”", label) for t, label in rows]
    tags = [(f"<p>{t}<br /></p> &amp; more", label) for t, label in rows]
    accents = [(f"món số {i} {'ngon lắm' if i % 2 else 'tệ quá'} nhé", MOODS[i % 2]) for i in range(60)]
    mixed = [(t, (label, label.upper(), f"{label.title()} ")[i % 3]) for i, (t, label) in enumerate(rows)]
    japanese = [(f"今日の天気はとても{'良い' if i % 2 else '悪い'}です{i}", MOODS[i % 2]) for i in range(60)]
    formulas = [(f"=1+{i} {t}", label) for i, (t, label) in enumerate(rows)]
    files = {
        "bom": bom,
        "quotes": table("quotes.csv", HEAD, quoted),
        "emoji": table("emoji.csv", HEAD, emoji),
        "semicolons": table("semicolons.csv", HEAD, rows, delimiter=";"),
        "tabs": table("tabs.tsv", HEAD, rows, delimiter="\t"),
        "japanese": table("japanese.csv", ("body", "mood"), japanese),
        "formulas": table("formulas.csv", HEAD, formulas),
    }
    steps = [train(name, path, f"{name}|60|test") for name, path in files.items()]
    steps += [doctor(name, path, "2 classes") for name, path in files.items()]
    html = table("html.csv", HEAD, tags)
    vietnamese, cased = table("vietnamese.csv", HEAD, accents), table("cased.csv", HEAD, mixed)
    steps += [
        doctor("HTML in the texts", html, "hold HTML tags", "clean = 'html'"),
        train("HTML taken out", html, sets=("clean=html",)),
        train("Vietnamese", vietnamese, sets=("strip_accents=false",)),
        train("Vietnamese without accents", vietnamese, "strips accents", "strip_accents=false", sets=("strip_accents=true",)),
        doctor("classes in several spellings", cased, "'BAD'.*and 'bad'", "merge_labels=spelling"),
        train("classes in several spellings merged", cased, "merge_labels: ", "2 classes", sets=("merge_labels=spelling",)),
        train("classes merged by a table", cased, "merge_labels: 'BAD' is 'bad'",
              sets=('merge_labels={"BAD" = "bad", "GOOD" = "good", "Bad" = "bad", "Good" = "good"}',)),
        train("a class that is not there merged", cased, "no class 'Gut'", sets=('merge_labels={"Gut" = "fine"}',), code=2),
        train("merged in an unknown way", cased, "is not a way to merge labels", "spelling", sets=("merge_labels=case",), code=2),
    ]  # fmt: skip
    return steps


def rows_and_labels() -> list[Step]:
    """Empty, doubled and wrong rows; classes of one, of 40 %, of 60 names; numbers and lists for labels."""
    rows = texts(60)
    holes = table(
        "holes.csv", HEAD, [*rows, ("", "good"), ("  ", "bad"), ("a lone text", ""), ("another", "nan")]
    )
    ragged = raw("ragged.csv", "text,label\n" + "".join(f"{t},{x}\n" for t, x in rows) + "one, two,three\n")
    doubled = [
        *rows,
        *[(t.upper(), x) for t, x in rows[:20]],
        *[(f"{t} !", x) for t, x in rows[20:30]],
        *rows[:9],
    ]
    torn = [*rows, (rows[0][0], "bad"), (rows[2][0], "bad")]
    sixty = [(f"a text on topic {i % 60} of day {i}", f"topic {i % 60}") for i in range(360)]
    forty = [(f"text {i} of the day is here", MOODS[0 if i % 5 < 2 else 1 + i % 3]) for i in range(100)]
    lone = [*rows, ("a text alone of its kind", "odd")]
    scores = [(t, f"{i / 7:.2f}") for i, (t, _) in enumerate(rows)]
    stars = [(t, 1 + i % 5) for i, (t, _) in enumerate(rows)]
    several = [(t, ("joy", "fear", "joy|fear")[i % 3]) for i, (t, _) in enumerate(rows)]
    lists = [{"text": t, "labels": ["joy", "fear"][: 1 + i % 2]} for i, (t, _) in enumerate(rows)]
    signs = [*rows, ("!!!", "good"), ("...", "bad"), ("ok", "good"), ("no", "bad")]
    huge = [(t if i else "word " * 40_000, x) for i, (t, x) in enumerate(rows)]
    skewed = [(f"text {i} is long enough", "rare" if i % 25 == 0 else "usual") for i in range(200)]
    d, lo = table("doubled.csv", HEAD, doubled), table("lone.csv", HEAD, lone)
    sc, li = table("scores.csv", HEAD, scores), lines_of_json("lists.jsonl", lists)
    se, hu = table("several.csv", HEAD, several), table("huge.csv", HEAD, huge)
    sk, fo = table("skewed.csv", HEAD, skewed), table("forty.csv", HEAD, forty)
    si, to = table("sixty.csv", HEAD, sixty), table("torn.csv", HEAD, torn)
    return [
        doctor("empty rows", holes, "4 rows cannot be used", r"the text is empty \(2: ", r"the label is missing \(2: ", "on-bad-row"),
        train("empty rows", holes, "row 62", "text is empty", "--on-bad-row skip", code=2),
        train("empty rows left out", holes, "4 rows left out", more=SKIP),
        doctor("a ragged row", ragged, "fields where the header has", "row 62"),
        train("a ragged row", ragged, "3 fields where the header has 2", "double quotes", code=2),
        train("a ragged row left out", ragged, "1 row left out", more=SKIP),
        doctor("repeated texts", d, "repeat an earlier one", r"2 times \(rows \d+, \d+\): the", "drop_duplicates=true"),
        train("repeated texts share a side", d, "7 of 83 texts", untold=LEAKS),
        train("repeated texts dropped", d, "drop_duplicates: 29 of 99 of train left out", sets=("drop_duplicates=true",)),
        doctor("two labels for a text", to, "different labels: 2", "bad and good", "review-labels"),
        doctor("a class of one", lo, "classes with one example: 1", "'odd'", "add examples of it"),
        train("a class of one", lo, "'odd' has one", "Add examples", code=2),
        doctor("a class of 40 %", fo, "4 classes", "scores 40.0%"),
        train("a class of 40 %", fo),
        doctor("60 classes", si, "60 classes"),
        train("60 classes", si, "60|test"),
        doctor("a class of 4 %", sk, "warning", "always answering 'usual' scores 96.0%", "class_weight=balanced"),
        train("a class of 4 % weighed", sk, sets=("class_weight=balanced",)),
        doctor("numbers for labels", sc, "look like numbers|holds 60 different values|no labels",
               untold=("merge_labels", "classes with one example")),
        train("numbers for labels", sc, "look like numbers", "[Bb]in them into a few classes", code=2),
        train("stars for labels", table("stars.csv", ("review", "stars"), stars), "labels in 'stars'"),
        doctor("several labels in a cell", se, "several labels per example", "'joy\\|fear'", "label.separator"),
        doctor("lists for labels", li, "label-sets", "1.50 labels per example", "60 examples with 'joy' to 30 with 'fear'"),
        train("lists for labels", li, "49 train, 5 validation, 6 test", "micro-F1"),
        train("one class", table("one.csv", HEAD, [(t, "good") for t, _ in rows]), "one class only", code=2),
        doctor("one class", "one.csv", "one class only"),
        doctor("signs for texts", table("signs.csv", HEAD, signs), "without a letter or digit: 2", "fewer than 3 words"),
        doctor("a text of 40,000 words", hu, "2 classes"),
        train("a text of 40,000 words", hu, "longer than 24 tokens and were cut|exceed 24 tokens"),
        train("a label of its own for each row", table("own.csv", HEAD, [(t, t[:20]) for t, _ in rows]),
              "has one|different values|of them with one", code=2),
        train("no labels", table("none.csv", ("text",), [(t,) for t, _ in rows]), "no column 'label'", code=2),
        doctor("no labels", "none.csv", "no text occurs twice"),
        train("four rows", table("four.csv", HEAD, texts(4)), "cannot|part of|one", code=2),
    ]  # fmt: skip


def kinds_of_files() -> list[Step]:
    """JSON Lines, JSON, Parquet, text files, and what is none of them."""
    rows = texts(60)
    records = [{"text": t, "label": x} for t, x in rows]
    jsonl = lines_of_json("a.jsonl", [*records, {"text": "no label here"}])
    broken = raw(
        "broken.jsonl", Path(lines_of_json("b.jsonl", records)).read_text(encoding="utf-8") + "{oops\n"
    )
    array = raw("a.json", "[" + ",".join(f'{{"text": "{t}", "label": "{x}"}}' for t, x in rows) + "]")
    pq.write_table(pa.table({"body": [t for t, _ in rows], "mood": [x for _, x in rows]}), "a.parquet")
    raw("sheet.xlsx", b"PK\x03\x04")
    raw("plain.txt", "\n".join(t for t, _ in rows))
    for t, x in rows:
        raw(f"folder/{x}/{t.split()[3]}.txt", t)
    return [
        train("JSON Lines with a key missing", jsonl, "row 61|no 'label'", code=2),
        train("JSON Lines with a key missing left out", jsonl, "1 row left out", more=SKIP),
        doctor("JSON Lines with a broken line", broken, "not JSON", "1 row cannot be used"),
        train("JSON Lines with a broken line", broken, "not JSON", code=2),
        train("an array of JSON", array),
        train("Parquet with names of ones own", "a.parquet", "labels in 'mood'"),
        train("a folder of texts", "folder"),
        doctor("a folder of texts", "folder", "2 classes"),
        train("a spreadsheet", "sheet.xlsx", "'.xlsx' are not read", r"\.csv", code=2),
        train("plain text without labels", "plain.txt", "one text in each line, without labels", code=2),
        doctor("plain text", "plain.txt", "no text occurs twice"),
        train("a file that is not there", "godo.csv", "no such file", "'good.csv'", code=2),
        doctor("a name that is none", "imbd", "Did you mean 'imdb'", code=2),
    ]


def splits() -> list[Step]:
    """Own train, dev and test files."""
    table("mine/train.csv", HEAD, texts(60))
    table("mine/dev.csv", HEAD, texts(12, 100))
    table("mine/test.csv", HEAD, texts(14, 200))
    table("leaky/train.csv", HEAD, texts(60))
    table("leaky/test.csv", HEAD, [*texts(9), *[(t.upper(), x) for t, x in texts(5, 20)]])
    table("loose/train.csv", HEAD, texts(60))
    table("loose/test.csv", HEAD, [(t.upper(), x) for t, x in texts(8, 20)] + texts(6, 300))
    table("unseen/train.csv", HEAD, texts(60))
    table("unseen/test.csv", HEAD, [*texts(8, 300), ("a text", "meh")])
    table("lacking/train.csv", HEAD, [*texts(60), *[(f"so so text {i}", "meh") for i in range(6)]])
    table("lacking/test.csv", HEAD, texts(8, 300))
    table("two/train.csv", HEAD, texts(20))
    table("two/train.tsv", HEAD, texts(20), delimiter="\t")
    Path("nothing").mkdir()
    return [
        train("own train dev and test files", "mine", "60 train, 12 validation, 14 test"),
        train("one of them alone", "mine/train.csv", "dev.csv, test.csv beside train.csv: to use them, give the folder"),
        doctor("own train, dev and test files", "mine", "no text is in both train and test"),
        doctor("test texts in training", "leaky", "distinct texts in both train and test: 9", "drop_duplicates=true"),
        train("test texts in training", "leaky", r"distinct texts in both train and test: \d", "drop_duplicates"),
        train("test texts taken out of training", "leaky", "drop_duplicates: 14 of 60 of train left out",
              sets=("drop_duplicates=true",)),
        doctor("test texts in training but for case", "loose", "do not count: 8", " ~ THE ", untold=(": 0 ",)),
        train("a label that training lacks", "unseen", "'meh' was not seen in training", "known: bad, good", code=2),
        doctor("a class that the test lacks", "lacking", "test lacks 1 of 3 classes"),
        train("two files for one split", "two", "two files for train", "Keep one", code=2),
        train("an empty folder", "nothing", "neither tables nor folders", code=2),
    ]  # fmt: skip


def refused() -> list[Step]:
    """Files that no one can read, and settings that do not fit."""
    rows = "".join(f"{t},{x}\n" for t, x in texts(60))
    raw("latin.csv", b"text,label\n" + rows.encode() + "caf\u00e9 so so,good\n".encode("latin-1"))
    raw("wide16.csv", ("text,label\n" + rows).encode("utf-16"))
    raw("nul.csv", "text,label\n" + rows + "a\0b,good\n")
    raw("open.csv", "text,label\n" + rows + '"never closed,good\n')
    raw("header.csv", "text,label\n")
    raw("zero.csv", "")
    raw("old-run/config.toml", "name = 'old'\n[data]\nsource = 'good.csv'\n")
    raw("old-run/metrics.json", "{}")
    good = "good.csv"
    return [
        train("not UTF-8", "latin.csv", "not UTF-8", "line 62", "--encoding cp1252", code=2),
        train("not UTF-8 and its encoding named", "latin.csv", "61|train", sets=("encoding=cp1252",)),
        Step("evaluate: it knows its encoding", "evaluate runs/not-UTF-8-and-its-encoding-named", ("accuracy",)),
        train("an encoding that is none", "latin.csv", "no encoding 'cp1253x'", "cp1252", sets=("encoding=cp1253x",), code=2),
        doctor("a run for data", "old-run", "is the folder of a run, not of data", "glassformer doctor", code=2),
        Step("doctor: a table for a model", f"doctor {good}", ("is no model", "glassformer data doctor good.csv"), 2),
        Step("doctor: a run", "doctor runs/emoji", ("text-classification, trained on", "2 classes")),
        doctor("not UTF-8", "latin.csv", "1 row cannot be used", "row 62: not UTF-8", "read it with --encoding cp1252", "on-bad-row skip"),
        train("UTF-16", "wide16.csv", "UTF-16", code=2),
        train("a NUL byte", "nul.csv", "NUL", "line 62", code=2),
        train("a quote never closed", "open.csv", "never closed", code=2),
        train("a header alone", "header.csv", "no rows", code=2),
        train("an empty file", "zero.csv", "no", code=2),
        train("a part that no class fits into", good, "a part of", sets=("test_size=70",), code=2),
        train("an unknown key", good, "unknown key 'epoch'", "'epochs'", sets=("epoch=3",), code=2),
        train("another choice for bad rows", good, "is not a choice", more=("--on-bad-row", "drop"), code=2),
        Step("train: the folder is there", f"train --text {good} --out runs/emoji {small()}",
             ("the output folder exists", "--resume"), 2),
        Step("train: go on with what has ended", f"train --text emoji.csv --out runs/emoji --resume {small()}",
             ("test",)),
    ]  # fmt: skip
