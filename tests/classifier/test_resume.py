"""``fit`` killed and resumed: the same bits, or a refusal that names what differs."""

import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from tests.stopping import StopAt, same, stopped_and_resumed, without_clock

from glassformer.checkpoints.files import temporary_name
from glassformer.errors import CheckpointError

NOISY = {"dropout": 0.2, "attention_dropout": 0.1, "head_dropout": 0.1, "word_dropout": 0.1, "average": 0.9,
         "label_smoothing": 0.1, "class_weight": "balanced", "accumulate": 2, "checkpoint_every": 1,
         "evaluate_every": 3, "early_stopping": 4, "monitor": "loss"}  # fmt: skip


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_resume_gives_the_same_bits(small, data, held, tmp_path, precision):
    """Killed again and again, at any step: inside an epoch, at its end, after an evaluation."""

    def make():
        return small(precision=precision, **NOISY)

    whole = make().fit(*data, validation=held)
    steps = [r["step"] for r in whole.history_ if r["kind"] == "step"]
    assert len(steps) > 20
    folder, stops = tmp_path / "checkpoints", (1, 2, 3, 7, 8, 15, 20)
    clf = stopped_and_resumed(make(), *data, folder=folder, at=stops, validation=held)
    assert without_clock(clf.history_) == without_clock(whole.history_)
    assert same(clf, whole)
    assert clf.best_step_ == whole.best_step_
    again = make().fit(*data, validation=held, checkpoints=folder, resume=True)  # nothing is left to do
    assert same(again, whole)


def test_without_resume_checkpoints_of_another_run_are_refused_and_kept(small, data, tmp_path):
    folder = tmp_path / "checkpoints"
    first = small(epochs=1, seed=1).fit(*data, checkpoints=folder)
    kept = sorted(path.name for path in folder.iterdir())
    with pytest.raises(CheckpointError, match="has checkpoints"):
        small(epochs=1).fit(*data, checkpoints=folder)
    assert sorted(path.name for path in folder.iterdir()) == kept
    assert same(small(epochs=1, seed=1).fit(*data, checkpoints=folder, resume=True), first)


def refusal(clf, folder, texts, labels, **options):
    with pytest.raises(CheckpointError) as caught:
        clf.fit(texts, labels, checkpoints=folder, resume=True, **options)
    return str(caught.value)


@pytest.fixture(scope="module")
def begun(small, data, held, tmp_path_factory):
    """A run that was stopped after step 5."""
    folder = tmp_path_factory.mktemp("begun")
    with pytest.raises(KeyboardInterrupt):
        small(epochs=3, checkpoint_every=5).fit(
            *data, validation=held, checkpoints=folder, callbacks=[StopAt(6)]
        )
    return SimpleNamespace(
        folder=folder, make=lambda **changes: small(**{"epochs": 3, "checkpoint_every": 5} | changes)
    )


OTHER = {
    "max_length": 12, "tokenizer": "wordpiece", "clean": "words", "lowercase": False, "strip_accents": True,
    "vocab_size": 20_000, "min_count": 2, "add_special_tokens": False, "pooling": "max", "head": "mlp",
    "head_hidden": 5, "head_dropout": 0.1, "dropout": 0.1, "attention_dropout": 0.1, "stochastic_depth": 0.1,
    "d_model": 22, "num_layers": 2, "num_heads": 7, "d_ff": 13, "norm": "post", "activation": "relu",
    "positions": "learned", "final_norm": False, "embedding_norm": True, "zero_init": True, "embedding_std": 0.1,
    "epochs": 4, "lr": 1e-3, "optimizer": "adam", "weight_decay": 0.5, "betas": (0.5, 0.9), "schedule": "cosine",
    "warmup": 0.5, "layer_decay": 0.5, "embedding_lr": 5.0, "batch_size": 7, "batch_tokens": 40, "length_window": 0,
    "accumulate": 2, "clip": 0.1, "label_smoothing": 0.3, "class_weight": "balanced", "word_dropout": 0.3,
    "average": 0.9, "early_stopping": 3, "monitor": "loss", "keep_best": False, "evaluate_every": 3, "seed": 1,
    "precision": "bf16", "model": "encoder-small",
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER)
def test_resume_refuses_another_setting_and_names_it(begun, data, held, name):
    """Where the ids differ too, the setting is named that makes them differ, not the data."""
    said = refusal(begun.make(**{name: OTHER[name]}), begun.folder, *data, validation=held)
    assert f"was made with {name} = " in said
    assert "step-00000005" in said


@pytest.mark.parametrize("changes", [{"checkpoint_every": 1}, {"verbose": 0}, {"device": "cpu"}])
def test_resume_takes_settings_that_change_no_bit(begun, data, held, changes, tmp_path):
    whole = begun.make().fit(*data, validation=held)
    clf = begun.make(**changes)
    folder = tmp_path / "copy"
    shutil.copytree(begun.folder, folder)
    clf.fit(*data, validation=held, checkpoints=folder, resume=True)
    assert same(clf, whole)


def other_texts(texts, labels):
    return [texts[0] + " film", *texts[1:]], labels


def other_order(texts, labels):
    return texts[::-1], labels[::-1]


def other_labels(texts, labels):
    return texts, [labels[1], labels[0], *labels[2:]]


def fewer(texts, labels):
    return texts[:-1], labels[:-1]


@pytest.mark.parametrize("change", [other_texts, other_order, other_labels, fewer])
def test_resume_refuses_other_data(begun, data, held, change):
    assert "was made with other training data" in refusal(
        begun.make(), begun.folder, *change(*data), validation=held
    )


@pytest.mark.parametrize("kind", ["other validation", "no validation", "sample weights"])
def test_resume_refuses_other_validation_data_and_weights(begun, data, held, kind, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(begun.folder, folder)
    options = {
        "other validation": {"validation": (held[0], held[1][1:] + held[1][:1])},
        "no validation": {},
        "sample weights": {"validation": held, "sample_weight": np.linspace(0.1, 2, 101)},
    }[kind]
    assert "was made with" in refusal(begun.make(), folder, *data, **options)


def test_resume_of_nothing_starts_anew(small, data, tmp_path):
    clf = small(epochs=1).fit(*data, checkpoints=tmp_path / "none", resume=True)
    assert same(clf, small(epochs=1).fit(*data))


def test_resume_after_a_kill_in_the_middle_of_the_first_save(small, data, tmp_path):
    half = temporary_name(tmp_path / "step-00000001")
    half.mkdir()
    (half / "state.safetensors").write_bytes(b"half of it")
    clf = small(epochs=1).fit(*data, checkpoints=tmp_path, resume=True)
    assert same(clf, small(epochs=1).fit(*data))


def test_resume_where_every_checkpoint_is_damaged(small, data, tmp_path):
    small(epochs=1).fit(*data, checkpoints=tmp_path / "c")
    for file in (tmp_path / "c").rglob("state.safetensors"):
        file.write_bytes(file.read_bytes()[:-1])
    assert "none of 1 checkpoints is complete" in refusal(small(epochs=1), tmp_path / "c", *data)
