"""Wording, tables, figures and maps, each against what one would work out by hand."""

import base64
import json
import re
import xml.etree.ElementTree as ET
from types import SimpleNamespace

import numpy as np
import pytest

from glassformer.cli.output import abstention_line
from glassformer.config import to_dict
from glassformer.errors import DataError
from glassformer.evaluate.intervals import wilson
from glassformer.explain.alignment import Alignment, save_alignments
from glassformer.explain.render import asset
from glassformer.report import figures, images, numbers, tables, wording
from glassformer.report.html import write_report
from glassformer.report.metrics import compared_metric
from glassformer.tasks.catalog import known_recipe_of, load_recipe

THIN = wording.NARROW_SPACE


def scores(accuracy: float, n: int = 1000, low: float | None = None, high: float | None = None) -> dict:
    return {"n": n, "accuracy": accuracy, "accuracy_interval": low and [low, high]}


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [(0.90612, 2, "90.61"), (1, 1, "100.0"), (0.99999, 1, "99.9"), (0, 1, "0.0"), (0.00001, 1, "<|0.1"),
     (0.9996, 2, "99.96"), (0.5, 0, "50")],
)  # fmt: skip
def test_percentages_never_round_to_all_or_nothing(share, digits, text):
    assert wording.percent(share, digits) == text.replace("|", THIN) + THIN + "%"


def test_numbers_as_a_person_writes_them():
    assert wording.interval([0.902, 0.91]) == f"90.2 to 91.0{THIN}%"
    times = [0.41, 9.96, 59.6, 1143, 7500, 3600, None]
    expected = ["0.4|s", "10|s", "1|min", "19|min 3|s", "2|h 5|min", "1|h", "–"]
    assert [wording.duration(t) for t in times] == [e.replace("|", THIN) for e in expected]
    values = [None, True, 5000, 22_713_986, 1e-4, ["a", 1], {"a": 0.5}, "x", ""]
    expected = ["–", "yes", "5000", "22,713,986", "0.0001", "a, 1", "a: 0.5", "x", "–"]
    assert [wording.plain(v) for v in values] == expected
    assert wording.cut("abc def", 4) == "abc …"


def test_an_interval_holds_its_own_figure():
    low, high = wilson(np.array([135, 0]), np.array([135, 11]))
    assert (high[0], low[1]) == (1, 0)
    assert wording.share_interval(1.0, [float(low[0]), 1.0], 135) == f"at least 97.2{THIN}%"
    assert wording.share_interval(1.0, [1.0, 1.0], 135) == f"at least 97.8{THIN}%"  # as older files have it
    assert wording.share_interval(0.0, [0.0, 0.0], 30) == f"at most 10.0{THIN}%"
    assert wording.share_interval(0.5, [0.4, 0.6], 100) == f"40.0 to 60.0{THIN}%"
    assert wording.bounds(scores(1.0, 135), "macro_f1") == f"at least 97.8{THIN}%"
    assert wording.bounds(scores(0.0, 30), "accuracy") == f"at most 10.0{THIN}%"
    assert compared_metric("accuracy").interval([1.0, 1.0], 1, 1.0, 135) == f"at least 97.8{THIN}%"
    assert compared_metric("accuracy").interval([0.97, 1.0], 1, 0.99, 135) == f"97.0 to 100.0{THIN}%"
    left = {"below": 0.9, "n": 140, "answered": 135, "accuracy": 1.0, "accuracy_interval": [0.978, 1.0]}
    said = f"100.0{THIN}% of them the right one (95 % interval: at least 97.8{THIN}%)"
    assert abstention_line(left).endswith(said)


def test_the_verdict_claims_no_more_than_the_intervals_allow():
    assert "906 of 1,000 test texts" in wording.verdict(scores(0.906), "test")
    assert f"is at least 99.70{THIN}%." in wording.verdict(scores(1.0), "test")
    assert wording.bounds(scores(1.0, n=100, low=1.0, high=1.0), "accuracy") == f"at least 97.0{THIN}%"
    assert wording.bounds(scores(0.9, n=100, low=0.8, high=0.95), "accuracy") == f"80.0 to 95.0{THIN}%"
    rare = scores(1.0, n=100, low=1.0, high=1.0) | {"macro_f1_interval": [0.81, 1.0]}
    assert wording.bounds(rare, "macro_f1") == f"at least 81.0{THIN}%"
    simple = {"weak": scores(0.7, low=0.68, high=0.72), "strong": scores(0.9, low=0.89, high=0.91)}
    overlap = wording.compare_with_baselines(scores(0.906, low=0.9, high=0.912), simple)
    assert "0.60 points above the best simple model, strong" in overlap
    assert "does not settle" in overlap
    high = scores(0.95, low=0.94, high=0.96)
    clear = wording.compare_with_baselines(high, simple)
    assert clear == "That is 5.00 points above the best simple model, strong."
    low = scores(0.8, low=0.79, high=0.81)
    worse = wording.compare_with_baselines(low, simple)
    assert "10.00 points below" in worse
    assert "simpler and faster model is better" in worse
    still = {"epochs": 3, "before": 1.92, "after": 1.71}
    unfinished = wording.compare_with_baselines(low, simple, still_learning=still)
    assert "simpler" not in unfinished.partition("strong")[2]
    assert "from 1.920 to 1.710, and --set epochs=6 or a higher lr may give a better model" in unfinished
    rated = wording.compare_with_baselines(low, simple, still_learning=still | {"lr": 1.2e-4})
    assert "--set epochs=6 or --set lr=0.00024 may give a better model" in rated
    assert wording.ended_too_early(unfinished, still) == wording.ended_too_early(clear, None) == ""
    assert "--set epochs=6" in wording.ended_too_early(clear, still)  # ahead, and not at its best
    assert "--set epochs=6" in wording.verdict_of({"test": scores(0.9), "still_learning": still})
    assert wording.compare_with_baselines(high, simple, still_learning=still) == clear
    assert wording.compare_with_baselines(scores(0.9), {}) == ""
    same = "The best simple model, strong, does as well."
    assert wording.compare_with_baselines(scores(0.9), simple) == same
    same = wording.compare_with_baselines(scores(1.0), {"x": scores(1.0)})
    assert same == "The best simple model, x, makes no error either."


def test_a_paired_difference_decides_where_it_is_known():
    def beside(ours, theirs, low, high):
        known = {"measure": "accuracy", "value": ours - theirs, "interval": [low, high]}
        simple = {"simple": scores(theirs, low=0.4, high=1) | {"difference": known}}
        return wording.compare_with_baselines(scores(ours, low=0.4, high=1), simple)

    worse = beside(0.69, 0.95, -0.41, -0.11)  # the models' own intervals overlap
    assert "simpler and faster model is better here" in worse
    assert "-41.00 to -11.00 points" in worse
    assert "is not significant" in beside(0.9, 0.89, -0.02, 0.04)
    assert "a significant difference" in beside(0.93, 0.89, 0.01, 0.07)


def test_tags_are_set_back_but_sentences_with_signs_are_not():
    text = wording.faint_tags("good<br />a < b, c > d & <i>e</i>")
    assert text.count('class="tag"') == 3
    assert re.sub(r'<span class="tag">|</span>', "", text) == (
        "good&lt;br /&gt;a &lt; b, c &gt; d &amp; &lt;i&gt;e&lt;/i&gt;"
    )


def test_a_recipes_own_figures_are_shown_only_where_they_apply():
    shipped = load_recipe("europe")
    told = tables.expectation(to_dict(shipped), to_dict(shipped))
    assert told == f"The recipe expects: {shipped.expect}"
    aside = load_recipe("europe", ["threads=3", "seed=7", "maps=0", "checkpoint_every=5"])
    assert tables.expectation(to_dict(aside), to_dict(shipped)) == told
    changed = to_dict(load_recipe("europe", ["epochs=1", "limit=40", "pooling=max"]))
    told = tables.expectation(changed, to_dict(shipped))
    assert "99" not in told, "figures of the recipe as it ships"
    assert "recipe europe were changed" in told
    for change in (
        "data.limit = 40 (recipe: –)",
        "model.pooling = max (recipe: auto)",
        "train.epochs = 1 (recipe: 3)",
    ):
        assert change in told
    older = to_dict(shipped)
    del (
        older["data"]["pair_column"],
        older["train"]["epochs"],
    )  # the first was not known when the run was made
    known = {"data": {"pair_column": shipped.data.pair_column}, "train": {"epochs": None}}
    told = tables.expectation(older, to_dict(shipped), known)
    assert "pair_column" not in told
    assert "train.epochs = – (recipe: 3)" in told, "unset by hand"
    mine = changed | {"name": "mine", "expect": "80 %"}
    assert tables.expectation(mine, None) == "Its recipe file expects: 80 %"
    assert tables.expectation({"name": "europe"}, to_dict(shipped)) == ""
    shown = [key for _, rows in tables.settings(to_dict(shipped), {}) for key, _, _ in rows]
    assert "summary" in shown
    assert "expect" not in shown


def test_the_comparison_has_one_scale():
    ours = {"n": 10, "accuracy": 0.9, "accuracy_interval": [0.8, 1.0], "macro_f1": 0.9}
    ours["per_class"] = [{"label": "a", "support": 3}, {"label": "b", "support": 7}]
    baselines = {"x": {"accuracy": 0.6, "accuracy_interval": [0.5, 0.7]}, "failed": {"seconds": 1.0}}
    metrics = {"baselines": baselines, "seconds": {"train": 60}}
    run = SimpleNamespace(measure="accuracy", scores=ours, metrics=metrics)
    table = tables.comparison(run)
    assert [r["name"] for r in table["rows"]] == ["This model", "x", "failed"]
    assert (table["low"], table["high"]) == (pytest.approx(0.425), 1.0)
    assert table["rows"][0]["interval_positions"] == pytest.approx([65.22, 100], abs=0.01)
    assert table["rows"][2]["position"] is None
    guess = {"label": "b", "accuracy": 0.7, "macro_f1": pytest.approx((2 * 0.7 / 1.7 + 0) / 2)}
    assert table["majority"] == guess


def test_settings_that_differ_from_the_defaults_stand_out():
    config = {"name": "n", "train": {"accumulate": 1, "lr": 1e-3, "betas": [0.9, 0.999]}, "mine": {"x": 1}}
    shown = tables.settings(config, known_recipe_of(config).defaults)
    train = [("accumulate", 1, False), ("lr", 1e-3, True), ("betas", [0.9, 0.999], False)]
    assert shown == [("recipe", [("name", "n", True)]), ("train", train), ("mine", [("x", 1, True)])]
    assert tables.changed_settings(shown)[1:] == [("train", train[1:2]), ("mine", [("x", 1, True)])]


def test_nested_figures_become_tables():
    given = {"tokens": {"train": {"n": 5000, "lengths": {"p5": 8}, "cut_share": 0.459}}, "lost_share": 0.25}
    assert tables.statistic_tables(given) == [
        ("tokens", ["n", "lengths p5", "cut_share"], [("train", ["5,000", "8", f"45.9{THIN}%"])]),
        ("lost_share", [""], [("lost_share", [f"25.0{THIN}%"])]),
    ]


def test_a_table_too_wide_for_a_page_is_turned_on_its_side():
    wide = {f"f{i}": i for i in range(7)}
    (name, columns, rows), *_ = tables.statistic_tables({"splits": {"train": wide, "test": wide}})
    assert (name, columns) == ("splits", ["train", "test"])
    assert rows[3] == ("f3", ["3", "3"])
    assert len(rows) == 7
    many = {f"split {i}": {f"f{k}": k for k in range(7)} for i in range(7)}
    assert tables.statistic_tables({"splits": many})[0][1] == [*wide]  # turned it would be as wide


def test_a_note_of_the_doctor_is_as_wide_as_its_list():
    """A rule for paragraphs of class ``note`` once took hold of the findings of that class too."""
    rules = re.findall(r"([^{}]+)\{", re.sub(r"/\*.*?\*/", "", asset("page.css"), flags=re.S))
    selectors = [part.strip() for rule in rules for part in rule.split(",")]
    assert "p.note" in selectors
    assert not [s for s in selectors if s.startswith((".note", ".warning", ".ok"))]


def test_word_vectors_have_the_frame_of_every_page(tmp_path):
    norms = {"mean": 1.0, "min": 0.5, "max": 2.0}
    metrics = {"texts": 5, "words": 31, "vocabulary": 7, "seed": 3, "seconds": {"train": 1.5}}
    metrics |= {"norms": {"before": norms, "after": norms}, "tests": {"likeness": None}}
    metrics |= {"neighbours": {"<b>red</b>": [("blue", 0.5)]}, "analogies": {}}
    history = [{"kind": "step", "step": i, "epoch": 0, "loss": 1 / i} for i in range(1, 12)]
    (tmp_path / "metrics.json").write_text(json.dumps(metrics))
    (tmp_path / "history.jsonl").write_text("".join(json.dumps(one) + "\n" for one in history))
    page = write_report(tmp_path, kind="vectors").read_text(encoding="utf-8")
    assert page.count("<header") == page.count("<main>") == page.count("<footer>") == 1
    assert 'class="brand"' in page
    for heading in ("Tests", "Learning curves", "Norms of the vectors", "Nearest words"):
        assert f"<h2>{heading}</h2>" in page
    assert "<h2>Analogies</h2>" not in page
    assert "<b>red</b>" not in page
    assert page.count('<div class="scroll" tabindex="0"><table>') == 3


def test_alignments_have_a_frame_and_keep_their_size(tmp_path):
    one = Alignment(["a", "dog"], ["ein", "Hund"], np.eye(2, dtype=np.float32), "ein <i>Hund", "a dog")
    page = save_alignments([one, one], tmp_path / "a.html").read_text(encoding="utf-8")
    assert page.count("<header") == page.count("<footer>") == page.count('class="block"') == 1
    assert page.count('<figure class="alignment">') == 2
    assert "<i>" not in page
    assert ".alignment svg { width: auto;" in asset("page.css")


def test_many_alignments_are_folded_away(tmp_path):
    example = {"source": ["a", "dog"], "target": ["ein", "Hund"], "weights": [[1, 0], [0, 1]]}
    example |= {"text": "a dog", "translation": "ein Hund"}
    said = [{"text": "a dog", "translation": "ein Hund"}]
    (tmp_path / "metrics.json").write_text(json.dumps({"task": "translation", "sentences": said}))
    (tmp_path / "alignments.json").write_text(json.dumps({"examples": [example] * 5}))
    page = write_report(tmp_path, kind="translation").read_text(encoding="utf-8")
    open_ones, folded = page.split("<summary>3 more</summary>")
    assert [part.count('<figure class="alignment">') for part in (open_ones, folded)] == [2, 3]
    assert page.count("<footer>") == page.count('class="brand"') == 1
    # A sentence beside its translation has half the width, not the column of a label with its bar.
    assert '<ul class="own said">' in page
    assert ".own.said p { display: block;" in asset("page.css")


def steps(n: int, epochs: int = 3) -> list[dict]:
    return [{"step": i + 1, "epoch": i * epochs // n, "loss": 1 / (i + 1)} for i in range(n)]


EVALUATIONS = [
    {"step": 10 * k, "loss": 0.5, "accuracy": 0.9, "train_accuracy": None, "best": k == 2} for k in (1, 2, 3)
]


@pytest.mark.parametrize(
    "svg",
    [
        figures.loss_curves(steps(3000), EVALUATIONS),
        figures.loss_curves(steps(1), []),
        figures.loss_curves([], EVALUATIONS[:1]),
        figures.accuracy_curves(steps(30), EVALUATIONS),
        figures.accuracy_curves([], EVALUATIONS[:1]),
        figures.calibration_chart([0] * 15 + [3, 5, 8, 20, 90], [0] * 15 + [1, 3, 6, 17, 89]),
        figures.calibration_chart([0] * 19 + [7], [0] * 19 + [7]),
    ],
)
def test_figures_are_shapes_in_the_page_s_own_colours(svg):
    root = ET.fromstring(svg)
    assert root.tag == "svg"
    assert root.get("aria-label")
    names = {name for element in root.iter() for name in element.keys()}  # noqa: SIM118
    assert "style" not in names
    colours = set(re.findall(r'(?:fill|stroke)="([^"]+)"', svg))
    assert colours <= {"none", *(f"var(--{v})" for v in figures.VARIABLES.values())}
    ids = {element.get("id") for element in root.iter()}
    assert set(re.findall(r'(?:href="|url\()#([\w.-]+)', svg)) <= ids
    assert "http" not in svg
    assert len(svg) < 60_000
    assert svg.count("nan") == 0


def test_the_certainty_chart_counts_what_was_answered():
    bins = [0, 3, 5, 7]
    assert ">texts<" in figures.calibration_chart(bins, bins)
    assert ">pictures<" in figures.calibration_chart(bins, bins, "pictures")


@pytest.mark.parametrize(("scale", "gap"), [("linear", numbers.DIFFERENCE), ("log", "predicted / true")])
def test_residuals_on_a_log_scale_are_ratios(scale, gap):
    true = np.linspace(1.0, 900.0, 31)
    predicted = true * np.linspace(0.7, 1.6, 31)
    assert f">{gap}<" in numbers.residual_chart(true, predicted, scale)
    assert ">predicted<" in numbers.scatter(true, predicted, 0.2, scale)


def test_long_lines_are_thinned_to_means():
    thin = figures._downsample(np.arange(10_000.0))
    assert len(thin) == figures.MAX_POINTS
    assert thin.mean() == pytest.approx(4999.5)


def example(**changes) -> dict:
    given = {
        "text": "unbelievable, yes and more", "label": "pos", "predicted": "pos", "probability": 0.75,
        "tokens": ["[CLS]", "un", "##believ", "##able", ",", "yes", "[SEP]"],
        "offsets": [[0, 0], [0, 2], [2, 8], [8, 12], [12, 13], [14, 17], [0, 0]],
        "cls_rows": [[[0.4, 0.1, 0.1, 0.1, 0.05, 0.15, 0.1]] * 2] * 3, "rollout": None,
    }  # fmt: skip
    return given | changes


def test_pieces_of_a_word_are_added_up_and_special_tokens_stand_apart():
    (one,), left_out = images.attention_views([example()])
    assert left_out == 0
    assert [(p.before, p.text, p.shade, p.special) for p in one.pieces] == [
        ("", "[CLS]", "h10", True),
        (" ", "unbelievable", "h8", False),
        ("", ",", "h1", False),
        (" ", "yes", "h4", False),
        (" ", "[SEP]", "h2", True),
    ]
    assert one.unread == "and more"
    assert one.caption == f"[CLS] 40{THIN}% · [SEP] 10{THIN}% · words 50{THIN}%"
    assert one.data["special"] == [0, 4]
    assert one.data["shape"] == [3, 2, 5]
    sent = (np.frombuffer(base64.b64decode(one.data["rows"]), np.uint8) / 255.0) ** 2
    assert sent.reshape(3, 2, 5)[1, 1] == pytest.approx([0.4, 0.3, 0.05, 0.15, 0.1], abs=0.004)
    assert (one.data["pairs"], one.data["flow"]) == ("", "")


def test_maps_between_words():
    """Rows of pieces are averaged, columns added up; what is decoded still sums to 1."""
    maps = np.random.default_rng(3).dirichlet(np.ones(7), (3, 2, 7))
    rows = maps[:, :, 0]
    (one,), _ = maps_of(maps, rows)
    pairs = (np.frombuffer(base64.b64decode(one.data["pairs"]), np.uint8) / 255.0) ** 2
    pairs = pairs.reshape(3, 2, 5, 5)
    group = np.array([[1, 0, 0, 0, 0, 0, 0], [0, 1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 0, 1, 0],
                      [0, 0, 0, 0, 0, 0, 1.0]])  # fmt: skip
    expected = (group / group.sum(1, keepdims=True)) @ maps @ group.T
    np.testing.assert_allclose(pairs, expected, atol=0.02)
    assert one.data["pairHeads"] == 2


def test_maps_too_large_are_kept_as_a_mean_or_not_at_all():
    given = np.random.default_rng(3).dirichlet(np.ones(7), (3, 2, 7))
    kept = []
    for limit in (2_000_000, 150, 20):
        view = images._view(example(maps=images.encode(given)), limit)
        kept.append(view.data["pairHeads"])
    assert kept == [2, 1, 0]


def maps_of(given, rows):
    return images.attention_views([example(maps=images.encode(given), cls_rows=rows.tolist())])


def test_maps_beyond_the_page_s_size_are_counted(monkeypatch):
    monkeypatch.setattr(images, "MAX_PAYLOAD", 100)
    ready, left_out = images.attention_views([example()] * 5)
    assert (len(ready), left_out) == (2, 3)


def test_maps_that_do_not_fit_are_numbered():
    wrong = {"tokens": ["[CLS]"], "offsets": [[0, 99]] * 7, "rollout": [0.5], "cls_rows": [0.1], "text": None}
    for key, value in (wrong | {"maps": "AAAA"}).items():
        with pytest.raises(DataError, match=r"maps\.json: example 2"):
            images.attention_views([example(), example(**{key: value})])


@pytest.mark.parametrize(
    ("named", "shown"),
    [
        ("minilm", "minilm"),
        ("sentence-transformers/all-mpnet-base-v2", "sentence-transformers/all-mpnet-base-v2"),
        ("/data/weights/all-mpnet-base-v2", "all-mpnet-base-v2"),
        ("../weights/dinov2/", "dinov2"),
        (None, None),
    ],
)
def test_a_model_from_a_folder_has_the_folders_name(named, shown):
    assert wording.model_name({}, named) == shown
    assert wording.model_name({"tried": [{"model": named, "chosen": True}]}, "auto") == (shown or None)
