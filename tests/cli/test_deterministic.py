"""``glassformer train --deterministic``: what it sets, and that on a CPU it changes no bit."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from glassformer.runtime import be_deterministic

from .every import VIT
from .tiny import pictures, sets, settings

NOISY = ("dropout=0.2", "epochs=2", "checkpoint_every=0")


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """These settings are of the whole process: they must not reach other tests."""
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    torch.backends.cudnn.benchmark = True
    yield
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.benchmark = False
    os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)


def in_force() -> tuple[bool, bool, str | None]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.cudnn.benchmark,
        os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
    )


def outcome(run: Path) -> tuple[bytes, list[dict], str]:
    """Weights, history without the clock, and the answers to the held-out examples."""
    history = [json.loads(line) | {"seconds": 0} for line in (run / "history.jsonl").read_text().splitlines()]
    return (run / "model" / "model.safetensors").read_bytes(), history, (run / "predictions.csv").read_text()


def test_texts_end_the_same_with_it(ok, reviews: Path):
    command = ["train", "--text", reviews, *settings(*NOISY, "word_dropout=0.2")]
    ok(*command, "--out", "plain")
    assert in_force() == (False, True, None)
    ok(*command, "--out", "same", "--deterministic")
    assert in_force() == (True, False, ":4096:8")
    assert outcome(Path("same")) == outcome(Path("plain"))


def test_pictures_end_the_same_with_it(ok, tmp_path: Path):
    more = ("augment=light", "mix=both", "baselines=false", "robustness=false")
    images = pictures(tmp_path / "pictures", {"dark": 12, "light": 12})
    command = ["train", "--images", images, *sets(*VIT, *more, *NOISY)]
    ok(*command, "--out", "plain")
    ok(*command, "--out", "same", "--deterministic")
    assert in_force() == (True, False, ":4096:8")
    assert outcome(Path("same")) == outcome(Path("plain"))


def test_an_operation_without_such_a_form_is_named():
    be_deterministic()
    x = torch.zeros(5)
    with pytest.raises(RuntimeError, match="put_ does not have a deterministic implementation"):
        x.put_(torch.tensor([1, 1]), torch.tensor([2.0, 3.0]))


def test_the_user_s_own_workspace_stays(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    be_deterministic()
    assert in_force() == (True, False, ":16:8")
