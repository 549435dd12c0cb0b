"""Pages of runs that give text, whose words fit the figures that stand there, and of runs that tag words."""

import json
import re
import shutil
from pathlib import Path

import pytest

from glassformer.report.html import write_report
from glassformer.report.tags import css_classes
from glassformer.targets.token_tags import ERRORS

STEP = {"kind": "step", "step": 1, "epoch": 0, "loss": 2.0, "lr": 0.1, "tokens": 7, "seconds": 0.5}
VALIDATION = {"kind": "evaluation", "step": 1, "epoch": 0, "best": True, "train_loss": 2.0}
VALIDATION |= {"train_accuracy": 0.25}
SCORE = {"width": 1, "n": 3, "bleu": 5.0, "chrf": 7.0, "bleu_tokenised": 6.0, "length_ratio": 1.1}
SCORE |= {"sentences_per_second": 11.0, "signatures": {}}
SCORED = {"task": "translation", "judged": "test", "scores": {"test": {"greedy": SCORE}}}
MASKED = {"task": "masked-lm", "masked": {"loss": 2.0}}


def learned(folder, metrics: dict, *history: dict) -> str:
    """What stands over the curves."""
    (folder / "metrics.json").write_text(json.dumps(metrics))
    (folder / "history.jsonl").write_text("".join(json.dumps(record) + "\n" for record in history))
    kind = "masked words" if "masked" in metrics else "translation"
    page = write_report(folder, kind=kind).read_text(encoding="utf-8")
    return re.findall(r"Learning curves</h2>\s*<p[^>]*>(.*?)</p>", page, re.DOTALL)[0]


@pytest.mark.parametrize(
    ("metrics", "held", "words", "others"),
    [
        (SCORED, True, ["reference", "BLEU", "validation loss"], ["masked"]),
        ({"task": "translation"}, False, ["reference"], ["BLEU", "validation loss", "masked"]),
        (MASKED, True, ["masked tokens", "validation loss"], ["BLEU", "reference"]),
    ],
)
def test_what_accuracy_means_is_said_of_the_task(tmp_path, metrics, held, words, others):
    evaluation = VALIDATION | ({"loss": 2.5, "accuracy": 0.5} if held else {})
    said = learned(tmp_path, metrics, STEP, evaluation)
    assert [word for word in words if word not in said] == []
    assert [word for word in others if word in said] == []


def test_nothing_is_said_of_accuracy_where_none_is_drawn(tmp_path):
    assert "ccuracy" not in learned(tmp_path, {"task": "translation"}, STEP)


# --- tags ------------------------------------------------------------------------------------------

KINDS = [f"KIND_OF_A_LONG_NAME_{i:02}" for i in range(32)]


def made_run(folder: Path) -> Path:
    """A run whose kind ``i`` has F1 ``i / 40``; a kind that was only predicted has no examples."""
    own = {
        kind: {"precision": 0.5, "recall": 0.5, "f1": i / 40, "support": 7 * (i > 0), "found": 3}
        for i, kind in enumerate(KINDS)
    }
    none = dict.fromkeys(ERRORS, 0)
    scores = {"n": 11, "words": 97, "entities": 217, "accuracy": 0.5, "precision": 0.5, "recall": 0.5}
    scores |= {"entity_f1": 0.5, "macro_f1": 0.5, "by_kind": own, "confusions": [[*KINDS[:2], 3]]}
    scores |= {"errors": none, "errors_by_kind": dict.fromkeys(KINDS, none)}
    span = {"text": "Ann", "start": 0, "end": 3, "kind": "other", "probability": 0.7}
    sentence = {"text": "Ann left", "spans": [span]}
    words = [f"word{i}" for i in range(32)]
    spans = [[kind, i, i + 1] for i, kind in enumerate(KINDS)]
    example = {"words": words, "true": spans, "predicted": [[*s, 0.9] for s in spans[:-1]], "where": "row 2"}
    metrics = {"task": "token-tagging", "test": scores, "judged": "test", "sentences": [sentence]}
    (folder / "metrics.json").write_text(json.dumps(metrics))
    (folder / "spans.json").write_text(json.dumps({"examples": [example]}))
    return folder


def test_32_kinds_look_different():
    looks = css_classes([*KINDS[::-1], KINDS[0]])
    assert list(looks) == KINDS
    assert len(set(looks.values())) == 32
    assert (looks[KINDS[0]], looks[KINDS[8]], looks[KINDS[31]]) == ("k0 l0", "k0 l1", "k7 l3")


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_the_page_in_a_browser(tmp_path):
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    path = write_report(made_run(tmp_path), kind="tags")
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 400, "height": 800})
        page.goto(path.as_uri())
        legend = page.locator("#spans .kinds .span")
        assert legend.all_inner_texts() == [*KINDS, "other"]  # with what only a sentence of one's own has
        line = "(e) => { const s = getComputedStyle(e); return s.borderBottomStyle + s.borderBottomColor }"
        assert len({legend.nth(i).evaluate(line) for i in range(32)}) == 32
        missed = page.locator("#spans .span.missed")
        assert missed.inner_text() == f"word31missed: {KINDS[31]}"
        assert missed.evaluate(line) == legend.nth(31).evaluate(line)
        kinds = page.locator("table.sortable tbody th")
        assert kinds.all_inner_texts() == [*KINDS[1:], KINDS[0]]
        assert page.evaluate("document.documentElement.scrollWidth") == 400
        page.get_by_role("button", name="Kind", exact=True).click()
        assert kinds.all_inner_texts() == KINDS
        assert page.locator("table.sortable tfoot th").inner_text() == "all"
        browser.close()
