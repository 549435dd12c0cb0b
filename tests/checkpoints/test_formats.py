"""Checkpoints that earlier versions wrote go on; those of a later version are refused, not passed over.

``formats/N`` was written by ``write`` when ``state.json`` had format N. Such a folder is never written again: when the
format changes, a new one is added beside it.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from glassformer.checkpoints.files import verify_folder
from glassformer.checkpoints.native import list_states, load_state, save_state
from glassformer.data.batching import BatchSettings
from glassformer.data.text import TokenTable
from glassformer.errors import NewerFormatError
from glassformer.families.bert import bert
from glassformer.models.text import TextEncoder as Bert
from glassformer.tasks.text_classification.recipe import TextFitConfig
from glassformer.train.loop import TextStream, count_steps, run
from glassformer.train.objectives import Classification
from glassformer.train.optim import MixedPrecisionOptimizer
from glassformer.train.state import Training

FORMATS = Path(__file__).parent / "formats"
STEP, TOTAL, BEST = 5, 12, 4


def begin() -> tuple[Training, tuple]:
    """A training of prime sizes with all that a checkpoint can hold; and what the loop takes beside it."""
    sizes = {"epochs": 3, "batch_size": 3, "batch_tokens": 0, "accumulate": 1, "evaluate_every": 2}
    rates = {"lr": 1e-2, "average": 0.9, "warmup": 0.06, "weight_decay": 0.1, "early_stopping": 5}
    config = TextFitConfig(**sizes, **rates, precision="fp32")
    torch.manual_seed(config.seed)
    model = Bert(bert(7, 3, 1, 1, 5, 11, 0.3, head="classification", num_labels=2, init_std=0.2))
    rng = np.random.default_rng(5)
    starts = np.arange(0, 11 * 13, 11, dtype=np.int64)
    table = TokenTable(rng.integers(0, 7, starts[-1]).astype(np.int32), starts, None, np.zeros(12, bool))
    settings = BatchSettings(config.batch_size, config.batch_tokens, config.length_window)
    stream = TextStream(table, settings, config.accumulate, config.seed, torch.device("cpu"))
    optimizer = MixedPrecisionOptimizer(model, config, torch.float32)
    training = Training(model, optimizer, config, count_steps(stream, config.epochs))
    training.fingerprint = {"lr": 1e-2, "data_sha256": "5e1f"}

    def evaluate() -> dict[str, float]:
        better = training.step <= BEST
        return {"loss": 0.7, "accuracy": training.step / 10 if better else 0.1, "macro_f1": 0.5}

    return training, (stream, Classification(rng.integers(0, 2, 12)), evaluate)


def write(folder: Path) -> None:
    """The folder of a format: the checkpoint of step 5, and what the training did at all of its 12 steps."""
    training, loop = begin()
    for info in run(training, *loop):
        if info.step == STEP:
            training.save(folder / "checkpoints")
    losses = [record["loss"] for record in training.history if record["kind"] == "step"]
    (folder / "losses.json").write_text(json.dumps(losses) + "\n", encoding="utf-8")


@pytest.mark.parametrize("folder", sorted(FORMATS.iterdir()), ids=lambda p: f"format {p.name}")
def test_a_checkpoint_of_every_format_goes_on(folder, tmp_path):
    shutil.copytree(folder / "checkpoints", tmp_path / "checkpoints")
    wanted = json.loads((folder / "losses.json").read_text(encoding="utf-8"))
    training, loop = begin()
    found = training.load(tmp_path / "checkpoints")
    assert not found.skipped
    assert (training.step, training.epoch, training.cursor, training.total_steps) == (STEP, 1, 1, TOTAL)
    assert (training.best_score, training.best_step, training.bad_evaluations) == (0.4, BEST, 0)
    assert training.best_weights is not None
    assert training.optimizer.average is not None
    steps = list(run(training, *loop))
    assert [info.step for info in steps] == list(range(STEP + 1, TOTAL + 1))
    history = [record for record in training.history if record["kind"] == "step"]
    assert [record["step"] for record in history] == list(range(1, TOTAL + 1))
    # Weights, moments, schedule, sampler and dropout all decide these; other processors round otherwise.
    assert [record["loss"] for record in history] == pytest.approx(wanted, rel=1e-3)
    assert [r["accuracy"] for r in training.history if r["kind"] == "evaluation"] == [
        0.2, 0.4, 0.1, 0.1, 0.1, 0.1,
    ]  # fmt: skip


def test_what_is_written_today_is_the_newest_format_here(tmp_path):
    training, loop = begin()
    next(run(training, *loop))
    training.save(tmp_path)
    [(_, path)] = list_states(tmp_path)
    assert str(verify_folder(path)["extra"]["format"]) == max(p.name for p in FORMATS.iterdir())


@pytest.mark.parametrize("what", ["manifest", "state"])
def test_a_later_format_is_refused_and_nothing_older_taken_instead(tmp_path, what, monkeypatch):
    for step in (10, 20):
        if step == 20:
            where = "files.MANIFEST_FORMAT" if what == "manifest" else "native.STATE_FORMAT"
            monkeypatch.setattr(f"glassformer.checkpoints.{where}", 7)
        save_state(tmp_path, step, {"w": torch.ones(3)}, {"step": step})
    monkeypatch.undo()
    with pytest.raises(
        NewerFormatError, match=r"00020.*has format 7; this version reads .*update glassformer"
    ):
        load_state(tmp_path)
    assert [step for step, _ in list_states(tmp_path)] == [10, 20]
    training, _ = begin()
    with pytest.raises(NewerFormatError):
        training.load(tmp_path)
