"""The page of runs that give text: its words fit the figures that stand there."""

import json
import re

import pytest

from glassformer.report.html import write_report

STEP = {"kind": "step", "step": 1, "epoch": 0, "loss": 2.0, "lr": 0.1, "tokens": 7, "seconds": 0.5}
VALIDATION = {
    "kind": "evaluation",
    "step": 1,
    "epoch": 0,
    "train_loss": 2.0,
    "train_accuracy": 0.25,
    "best": True,
}
SCORE = {
    "width": 1,
    "n": 3,
    "bleu": 5.0,
    "chrf": 7.0,
    "bleu_tokenised": 6.0,
    "length_ratio": 1.1,
    "sentences_per_second": 11.0,
    "signatures": {},
}


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
        (
            {"task": "translation", "judged": "test", "scores": {"test": {"greedy": SCORE}}},
            True,
            ["reference", "BLEU", "validation loss"],
            ["masked"],
        ),
        ({"task": "translation"}, False, ["reference"], ["BLEU", "validation loss", "masked"]),
        (
            {"task": "masked-lm", "masked": {"loss": 2.0}},
            True,
            ["masked tokens", "validation loss"],
            ["BLEU", "reference"],
        ),
    ],
)
def test_what_accuracy_means_is_said_of_the_task(tmp_path, metrics, held, words, others):
    evaluation = VALIDATION | ({"loss": 2.5, "accuracy": 0.5} if held else {})
    said = learned(tmp_path, metrics, STEP, evaluation)
    assert [word for word in words if word not in said] == []
    assert [word for word in others if word in said] == []


def test_nothing_is_said_of_accuracy_where_none_is_drawn(tmp_path):
    assert "ccuracy" not in learned(tmp_path, {"task": "translation"}, STEP)
