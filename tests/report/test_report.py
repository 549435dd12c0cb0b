"""The whole page: complete, alone, small, and deaf to whatever the data says."""

import base64
import hashlib
import json
import re
import shutil

import pytest

from glassformer.errors import DataError
from glassformer.report import tables
from glassformer.report.html import write_report

from .conftest import Page

ATTACKS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)' x='",
    "</style></script></title><svg onload=alert(1)>",
    "<!-- <iframe src=https://example.org>",
    "{{ 7 * 7 }}{% raw %}<b>",
    "]]><a href=javascript:alert(1)>x</a>\u2028\u2029\\u003c",
    "&lt;script&gt;&#60;script&#62;",
    '=HYPERLINK("https://example.org")\x00\x1b[31m\u202e\ud800',
]
SMALL = {"n": 300, "steps": 60, "layers": 2, "heads": 3}
NINE = tuple(
    f"balance_not_updated_after_a_long_{x}_transfer_by_cheque"
    for x in ["bank", "card", "cash", "coin", "fee", "loan", "top", "web", "wire"]
)


def test_a_full_run_is_told_from_top_to_bottom(make_run):
    path = write_report(make_run())
    metrics = json.loads((path.parent / "metrics.json").read_text())
    page = Page(path)
    assert path.name == "report.html"
    assert path.stat().st_size < 3_000_000
    accuracy = f"{100 * metrics['test']['accuracy']:.2f}\u202f%".replace("\u202f", " ")
    told = "imdb-minilm|of 2,500 test texts, not seen in training|TF-IDF + logistic regression|Attention|22,713,986"
    told += (
        "|Most confident mistakes|distinct texts in both train and test: 123|validation_size|0.693|19 min 3 s"
    )
    for expected in (accuracy, *told.split("|")):
        assert expected in page.words
    # two curves, one certainty chart, the mark, a row of the comparison each, times, bars of the sentences
    assert page.tags["svg"] == 3 + 1 + 3 + 1 + 3
    assert page.tags["article"] == 4
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    targets = {value for _, name, value in page.attributes if name == "href"}
    assert targets <= {f"#{i}" for i in ids}


def test_the_measure_that_chose_the_weights_leads_the_page(make_run):
    run = make_run(classes=("a", "b", "c"), layers=2, heads=3)
    path = run / "metrics.json"
    metrics = json.loads(path.read_text())
    for baseline in metrics["baselines"].values():
        baseline |= {"class_weight": "balanced", "macro_f1_interval": [0.5, 0.6]}
    path.write_text(json.dumps(metrics | {"measure": "macro_f1"}))
    page = Page(write_report(run))
    scores = metrics["test"]
    said = page.words.replace("\u202f", " ")
    share = f"{100 * scores['macro_f1']:.2f} %"
    assert f"Macro-F1 on 2,500 test texts, not seen in training: {share} (95 % interval" in said
    assert "Its macro-F1 is" in said
    assert ", trained with the same class weights" in said
    assert said.index("Macro-F1" + share) < said.index("Accuracy" + f"{100 * scores['accuracy']:.2f} %")
    assert f"weighted F1 {100 * scores['weighted_f1']:.2f} %" in said
    assert f"average precision {scores['average_precision']:.4f}" in said
    assert "each class against the others, their mean" in said
    assert "95 % interval of the macro-F1 over the draw" in said
    assert said.index("ModelMacro-F1")
    assert "of the time, a macro-F1 of" in said
    (run / "config.toml").write_text('name = "x"\n[train]\nmonitor = "macro_f1"\n')
    path.write_text(json.dumps(metrics))
    assert "Macro-F1 on 2,500" in Page(write_report(run)).words  # a run from before the measure was noted


def test_the_architecture_is_drawn_from_what_the_run_noted(make_run):
    folder = make_run(**SMALL)
    metrics = json.loads((folder / "metrics.json").read_text())
    before = Page(write_report(folder)).tags["svg"]
    layer = {"name": "<script>layer", "about": "a & b", "shape": "[N, 7]", "parts": []}
    layer |= {"parameters": 1234, "repeat": 3}
    (folder / "metrics.json").write_text(json.dumps(metrics | {"architecture": [layer]}))
    page = Page(write_report(folder))
    assert page.tags["svg"] == before + 2
    assert "3 × <script>layer" in page.words
    assert "1,234 parameters in all" in page.words
    odd = layer | {"parameters": "many"}
    (folder / "metrics.json").write_text(json.dumps(metrics | {"architecture": [odd]}))
    with pytest.raises(DataError, match=r"metrics\.json: the architecture cannot be drawn"):
        write_report(folder)


def test_nothing_is_loaded_and_only_our_script_may_run(make_run):
    path = write_report(make_run())
    page = Page(path)
    policy = next(v for t, n, v in page.attributes if t == "meta" and n == "content" and "default-src" in v)
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    json_block, script = page.raw["script"]
    assert json.loads(json_block)
    for text in (page.raw["style"][0], script):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "http" not in path.read_text(encoding="utf-8").replace("http-equiv", "")
    names = {name for _, name, _ in page.attributes}
    assert not names & {"src", "style", "srcset", "action"}
    assert not [name for name in names if name.startswith("on")]


@pytest.fixture(scope="module")
def tame(built):
    return Page(write_report(built(**SMALL)))


@pytest.mark.parametrize("attack", ATTACKS)
def test_markup_in_data_stays_text(make_run, attack, tame):
    wild = Page(write_report(make_run(hostile=attack, **SMALL)))
    shapes = [{(tag, name) for tag, name, _ in page.attributes} for page in (tame, wild)]
    assert shapes[1] <= shapes[0]
    of = [{tag: n for tag, n in page.tags.items() if tag not in ("span", "wbr")} for page in (tame, wild)]
    assert of[0] == of[1]
    assert wild.raw["style"] == tame.raw["style"]
    assert wild.raw["script"][1:] == tame.raw["script"][1:]
    visible = attack.split("\u2028")[0].split("\x00")[0]
    assert visible in "".join(wild.text)
    assert not re.search("[\x00\x1b\u202e\ud800]", "".join(wild.text))


def test_metrics_alone_are_enough(make_run):
    folder = make_run()
    scores = json.loads((folder / "metrics.json").read_text())["test"]
    for file in folder.iterdir():
        file.unlink()
    (folder / "metrics.json").write_text(json.dumps({"validation": scores | {"accuracy_interval": None}}))
    page = Page(write_report(folder))
    assert "of 2,500 validation texts" in page.words
    assert "No simple model was trained for comparison." in page.words
    assert "Attention" not in page.words
    assert page.tags["script"] == 1  # that sorts the table of classes


def test_of_many_classes_the_most_confused_are_shown(make_run):
    names = tuple(f"class {i}" for i in range(40))
    run = make_run(classes=names, **SMALL | {"n": 900}, skill=6.0)
    page = Page(write_report(run))
    assert "Most frequent confusions" in page.words
    assert "the other 28 of 40 classes are left out" in page.words
    assert "each class against the others, their mean" in page.words
    scores = json.loads((run / "metrics.json").read_text())["test"]
    matrix = tables.confusion(scores)
    assert (len(matrix["rows"]), matrix["others"]) == (12, 28)
    for row in matrix["rows"]:  # the last cell counts what was taken for a class that is left out
        i = scores["labels"].index(row["label"])
        counts = scores["confusion"][i]
        assert sum(cell["count"] for cell in row["cells"]) == sum(counts)
        assert sum(cell["count"] for cell in row["cells"] if cell["right"]) == counts[i]
    first = tables.confusions(scores)[0]
    assert {first["label"], first["predicted"]} <= {row["label"] for row in matrix["rows"]}


def test_a_page_without_a_matrix_does_not_speak_of_one(make_run):
    run = make_run(classes=tuple(f"c{i}" for i in range(13)), **SMALL)
    metrics = json.loads((run / "metrics.json").read_text())
    assert "confusion matrix" in Page(write_report(run)).words
    scores = metrics["test"]
    support = [sum(row) for row in scores["confusion"]]
    scores["confusion"] = [[n * (i == j) for j in range(13)] for i, n in enumerate(support)]
    (run / "metrics.json").write_text(json.dumps(metrics))
    page = Page(write_report(run))
    assert "confusion matrix" not in page.words
    assert "predicted" not in page.words.split("Each class")[0].split("Confusion matrix and classes")[-1]


def test_classes_stand_worst_first(make_run):
    run = make_run(classes=NINE, **SMALL)
    rows = json.loads((run / "metrics.json").read_text())["test"]["per_class"]
    words = Page(write_report(run)).words.split("Each class")[1].split("Most confident mistakes")[0]
    told = sorted(NINE, key=words.index)
    assert told == [row["label"] for row in sorted(rows, key=lambda row: row["f1"])]
    absent = {"label": "absent", "support": 0, "f1": 0.0}
    assert [row["label"] for row in tables.worst_first([absent, *rows])][-1] == "absent"
    # no name is cut
    assert all(words.count(name) == 1 for name in NINE)


def chromium_page(p, path, said=None, **context):
    """The page in a browser; in ``said`` what it says on the console and in dialogs."""
    args = ["--no-sandbox", "--disable-gpu"]
    browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=args)
    page = browser.new_page(**context)
    if said is not None:
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(dialog.message))
    page.goto(path.as_uri())
    return page


# A matrix may scroll in a box of its own, which is no wider than the page.
WIDER = """() => [...document.querySelectorAll("table, .scroll, .matrix")].filter(
  (e) => (e.classList.contains("matrix") || !e.closest(".matrix")) && (e.scrollWidth > e.clientWidth + 1 || e.getBoundingClientRect().right > innerWidth)).length"""


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
@pytest.mark.parametrize("classes", [NINE[:4], NINE, tuple(f"{NINE[i % 9]}_{i}" for i in range(77))], ids=len)
def test_no_table_is_wider_than_the_page(make_run, classes):
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    path = write_report(make_run(classes=classes, **SMALL | {"n": 700}))
    with playwright.sync_playwright() as p:
        page = chromium_page(p, path, viewport={"width": 400, "height": 800})
        for width in (400, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") == width
            assert page.evaluate(WIDER) == 0
        rows = "[...document.querySelectorAll('table.sortable tbody tr')]"
        column = f"{rows}.map((r) => r.cells[{{}}].textContent)"
        heads = page.locator("table.sortable thead th")
        assert heads.nth(3).get_attribute("aria-sort") == "ascending"
        before = page.evaluate(column.format(0))
        heads.nth(0).get_by_role("button").click()
        names = page.evaluate(column.format(0))
        assert sorted(names) == sorted(before) == sorted(classes)
        in_order = "(n) => n.sort((a, b) => a.localeCompare(b, undefined, {numeric: true}))"
        assert names == page.evaluate(in_order, names)
        assert [heads.nth(i).get_attribute("aria-sort") for i in (0, 3)] == ["ascending", None]
        heads.nth(2).get_by_role("button").focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Enter")
        recalls = [float(cell.split("\u202f")[0]) for cell in page.evaluate(column.format(2))]
        assert recalls == sorted(recalls, reverse=True)
        assert heads.nth(2).get_attribute("aria-sort") == "descending"


def luminance(color):
    parts = [int(part) / 255 for part in re.findall(r"\d+", color)[:3]]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_links_have_the_color_of_the_theme_and_letters_no_serifs(make_run, scheme):
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    with playwright.sync_playwright() as p:
        path = write_report(make_run(**SMALL))
        page = chromium_page(p, path, color_scheme=scheme)
        style = "(e) => { const s = getComputedStyle(e); return [s.color, s.fontFamily] }"
        ground = luminance(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        links = page.locator("a")
        assert links.count() > 5
        for i in range(links.count()):
            color = links.nth(i).evaluate(style)[0]
            light, dark = sorted((luminance(color), ground), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5
            assert color not in ("rgb(0, 0, 238)", "rgb(158, 158, 255)")
        for name in ("body", "blockquote", "figure svg"):
            assert page.locator(name).first.evaluate(style)[1].startswith("system-ui")


def test_an_old_report_is_replaced_only_by_a_whole_one(make_run):
    folder = make_run()
    (folder / "report.html").write_text("old")
    (folder / "history.jsonl").write_text('{"kind": "step"}\n')
    with pytest.raises(DataError, match=r"history\.jsonl: line 1"):
        write_report(folder)
    assert (folder / "report.html").read_text() == "old"
    (folder / "history.jsonl").unlink()
    assert write_report(folder).read_text(encoding="utf-8").startswith("<!doctype html>")
    assert not list(folder.glob("*.tmp"))


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_a_browser_runs_the_attention_view_and_nothing_else(make_run):
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    path = write_report(make_run(hostile="".join(ATTACKS), layers=3, heads=5))
    said = []
    with playwright.sync_playwright() as p:
        page = chromium_page(p, path, said, viewport={"width": 360, "height": 800})
        first = page.locator("article.map blockquote").first
        before, shares = first.inner_html(), page.locator(".shares").first.inner_text()
        page.locator("#grid button").nth(7).click()
        assert page.locator("#layer").input_value() == "1"
        assert page.locator("#head").input_value() == "2"
        assert first.inner_html() != before
        page.select_option("#layer", "-1")
        assert (
            page.locator(".shares").first.inner_text() == shares
        )  # the script's figures equal the page's own
        assert page.evaluate("document.documentElement.scrollWidth") == 360  # nothing sticks out on a phone
        dark = chromium_page(p, path, said, color_scheme="dark")
        light, sheet = (p.evaluate("getComputedStyle(document.body).backgroundColor") for p in (page, dark))
        assert light != sheet
        assert dark.locator(".controls").is_visible()
        dark.emulate_media(media="print")
        assert not dark.locator(".controls").is_visible()
        assert not dark.locator("nav").is_visible()
        figures = dark.locator("figure svg")
        assert figures.count() == 3
        assert all(figures.nth(i).is_visible() for i in range(3))
    assert said == []
