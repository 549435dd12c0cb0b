"""Benchmarks: every contender does the same work, what is measured is told, and nothing is left running."""

import contextlib
import importlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from glassformer.data.corpus import europe_splits
from glassformer.data.text import word_tokenizer
from glassformer.data.transform import ImageTransform
from glassformer.errors import DataError, InputError
from glassformer.families.pretrained import save_pretrained
from glassformer.families.vit import vit_tiny
from glassformer.models.image import ImageEncoder as ViT
from glassformer.nn import kernels

from .benchmark_tools import ROOT, benchmark

TINY = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 40}
LASTING = """
import os, sys, time
sys.path.insert(0, {root!r})
from benchmarks.harness.rounds import Contender, in_own_process

def make():
    return Contender("slow", {{"pid": os.getpid()}}, lambda turn: time.sleep(600))

if __name__ == "__main__":
    slow = in_own_process(make)
    print(slow.setting["pid"], flush=True)
    slow.run(0)
"""


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [" ".join(part) for part in np.array_split(europe_splits()["train"][0][:60], 12)]


def pairs_of(pretrain: Any, texts: list[str]) -> tuple[Any, int]:
    tokenizer = word_tokenizer(texts, vocab_size=200, min_count=1)
    return pretrain.make_pairs(tokenizer, texts, 29, 0), tokenizer.get_vocab_size()


def test_every_benchmark_can_be_imported():
    """A name that moved is found here, and not when the benchmark is run a month later."""
    files = sorted((ROOT / "benchmarks").rglob("*.py"))
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files]
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:  # a peer that is not installed here
            if str(error.name).split(".")[0] in ("benchmarks", "glassformer", "tests"):
                raise
    assert len(names) > 60


# --- the same work for all ------------------------------------------------------------------------


def test_rows_are_padded_with_what_no_loss_counts():
    trainer = benchmark("hf_trainer")
    first = {"input_ids": np.array([5, 6, 7]), "labels": np.array([-100, 6, -100]), "next_sentence_label": 1}
    rows = trainer.Rows(
        [first, {"input_ids": np.array([8]), "labels": np.array([8]), "next_sentence_label": 0}]
    )
    batch = trainer.pad([rows[0], rows[1]])
    assert batch["input_ids"].tolist() == [[5, 6, 7], [8, 0, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch["labels"].tolist() == [[-100, 6, -100], [8, -100, -100]]
    assert batch["next_sentence_label"].tolist() == [1, 0]
    assert trainer.pad([rows[1]], width=5)["input_ids"].tolist() == [[8, 0, 0, 0, 0]]


def test_the_plain_loop_trains_on_every_row_once_in_batches_of_like_length():
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = BertForSequenceClassification(BertConfig(vocab_size=53, num_labels=2, **still, **TINY))
    rows = benchmark("hf_trainer").Rows(
        [{"input_ids": np.full(2 + i % 11, 5 + 7 * (i % 2)), "labels": i % 2} for i in range(37)]
    )
    loop = benchmark("hf_trainer").PlainLoop(model, lr=1e-2, batch=4)
    batches = loop.batches(rows, np.random.default_rng(0))
    assert sorted(i for batch in batches for i in batch) == list(range(37))
    widths = [{len(rows[i]["input_ids"]) for i in batch} for batch in batches]
    assert max(max(w) - min(w) for w in widths) <= 3
    losses = [loop.epoch(rows, seed)[1] for seed in range(6)]
    assert losses[-1] < 0.5 * losses[0]


def test_packed_pairs_are_the_rows_of_the_peer(texts):
    pretrain = benchmark("pretrain")
    pairs, _ = pairs_of(pretrain, texts)
    again, _ = pairs_of(pretrain, texts)
    assert all((a.ids == b.ids).all() for a, b in zip(pairs, again, strict=True))
    assert {pair.stranger for pair in pairs} == {0, 1}
    stream = pretrain.PairStream(pairs, pretrain.BatchSettings(5, 0), 0, torch.device("cpu"))
    seen = []
    for (index,) in stream.steps(0):
        batch = stream.pack(index)
        rows = [pretrain.as_row(pairs[i]) for i in index]
        assert batch.ids.tolist() == np.concatenate([row["input_ids"] for row in rows]).tolist()
        labels = np.concatenate([row["labels"] for row in rows])
        assert batch.rows.tolist() == np.flatnonzero(labels != -100).tolist()
        assert batch.labels.tolist() == labels[labels != -100].tolist()
        assert batch.segments.tolist() == np.concatenate([row["token_type_ids"] for row in rows]).tolist()
        assert batch.is_random_next.tolist() == [row["next_sentence_label"] for row in rows]
        seen += index.tolist()
    assert sorted(seen) == list(range(len(pairs)))
    assert stream.examples == sum(len(pair.labels) for pair in pairs)


def test_a_peer_gets_the_attention_that_is_faster_here_and_nothing_is_learnt_in_trying():
    class Model(torch.nn.Linear):
        def set_attn_implementation(self, name: str) -> None:
            self.name = name

    model = Model(2, 3)
    before = model.weight.detach().clone()

    def work() -> None:
        time.sleep(0.2 if model.name == "sdpa" else 0.0)
        with torch.no_grad():
            model.weight += 1.0

    said = benchmark("hf_trainer").choose_attention(model, work)
    assert model.name == "eager"
    assert said.startswith("eager (sdpa: ")
    assert torch.equal(model.weight, before)


@pytest.mark.slow
def test_pre_training_begins_at_the_loss_of_the_peer(texts, tmp_path):
    pytest.importorskip("accelerate")
    pytest.importorskip("transformers")
    pretrain = benchmark("pretrain")
    pairs, vocab_size = pairs_of(pretrain, texts)
    rounds = [pairs[: pretrain.BATCH]]  # one batch, so one step: no update comes before the loss
    folder = pretrain.random_weights(tmp_path, vocab_size, 0, **TINY)
    theirs = pretrain.trainer_contender("peer", folder, rounds, grouped=True, dropout=0.0)
    ours = pretrain.glassformer_contender(folder, rounds)
    first, second = theirs.run(0), ours.run(0)
    assert (first.reviews, first.tokens) == (second.reviews, second.tokens) == (len(rounds[0]), first.tokens)
    assert second.loss == pytest.approx(first.loss, rel=0.01)
    assert ours.run(0).loss < second.loss  # the weights go on from window to window
    assert theirs.run(0).loss < first.loss


def test_pictures_begin_at_the_loss_of_the_peer(tmp_path):
    pytest.importorskip("transformers")
    pictures = benchmark("train_pictures")
    torch.manual_seed(0)
    config = vit_tiny((12, 12), (4, 4))
    config = pictures.replace(config, head="classification", num_labels=pictures.CLASSES)
    save_pretrained(ViT(config), tmp_path)
    rng = np.random.default_rng(0)
    part = pictures.Round(rng.integers(0, 256, (7, 3, 12, 12), np.uint8), rng.integers(0, 10, 7))
    work = pictures.Work(tmp_path, [part], ImageTransform((12, 12)), config.embedding.num_tokens, 7)
    ours = pictures.MAKERS["glassformer"](work)
    found = {key: pictures.MAKERS[key](work).run(0) for key in ("fp32", "autocast", "bf16")}
    window = ours.run(0)
    assert window.tokens == 7 * 10
    for key, peer in found.items():
        assert peer.tokens == window.tokens
        assert window.loss == pytest.approx(peer.loss, rel=0.02), key
    assert ours.run(0).loss < window.loss


def test_sizes_are_those_that_the_page_tells():
    pictures = benchmark("train_pictures")
    small, transform = pictures.build("small", 0)
    c = small.config
    assert (c.encoder.d_model, c.encoder.num_layers, c.embedding.num_tokens) == (192, 8, 65)
    assert (c.pooling, c.embedding.patch_dropout, transform.size) == ("first", 0.0, (32, 32))


# --- what is told ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "loader"), [("pretrain", "resolve_checkpoint"), ("train_pictures", "load_image_dataset")]
)
def test_missing_data_are_one_line_and_exit_code_2(monkeypatch, tmp_path, capsys, name, loader):
    def missing(*args: Any, **options: Any) -> None:
        raise DataError("is not here", where="imdb", fix="Fetch it")

    module, out = benchmark(name), tmp_path / "none.json"
    monkeypatch.setattr(module, loader, missing)
    assert module.main(["--rounds", "1", "--out", str(out)]) == 2
    assert capsys.readouterr().err == "imdb: is not here. Fetch it\n"
    assert not out.exists()


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [("--rounds", "0", "whole number from 1 on"), ("--max-length", "3", "give 16 to 512")],
)
def test_numbers_that_cannot_be_are_refused(capsys, option, value, said):
    with pytest.raises(SystemExit) as stopped:
        benchmark("pretrain").main([option, value])
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err


def test_reviews_that_give_too_few_pairs_are_refused(monkeypatch):
    pretrain = benchmark("pretrain")
    splits = {"train": SimpleNamespace(texts=["a film", "a book"])}
    monkeypatch.setattr(pretrain, "load_text_dataset", lambda *a, **o: SimpleNamespace(splits=splits))
    monkeypatch.setattr(pretrain, "make_pairs", lambda *a: [SimpleNamespace(ids=[1])] * 2)
    with pytest.raises(InputError, match="2 reviews give 2 pairs of segments for 3 windows"):
        pretrain.load_rounds(None, 2, 1, 128, 0)


def test_the_gradient_of_a_linear_layer_is_timed_where_there_is_a_kernel(monkeypatch, tmp_path, capsys):
    parts, out = benchmark("parts"), tmp_path / "linear.json"
    monkeypatch.setattr(parts, "LAYERS", {"small": (16, 48)})
    monkeypatch.setattr(parts, "ROWS", 257)
    code = parts.main(["linear", "--rounds", "1", "--threads", "1", "--out", str(out)])
    if kernels.why_not() or not kernels.has_amx():
        assert code == 2
        assert "there is no kernel here" in capsys.readouterr().err
        return
    assert code == 0
    layer = json.loads(out.read_text(encoding="utf-8"))["layers"]["small"]
    assert len(layer["milliseconds"]) == 4
    assert min(spread["min"] for spread in layer["milliseconds"].values()) > 0


def test_the_whole_command_is_timed_in_turn_and_told(monkeypatch, tmp_path):
    whole, speed, turns = benchmark("end_to_end"), benchmark("tables_speed"), []

    def train(tree, out, options):
        turns.append(tree.name)
        now = tree == whole.ROOT
        assert options.limit == 31
        told = {"accuracy": 0.75, "judged": 4, "peak_memory_mb": 1234, "tokens_per_second": 50}
        return told | {"seconds": 10.0 if now else 30.0}

    monkeypatch.setattr(whole, "train", train)
    monkeypatch.setattr(whole, "checked_out", lambda revision, folder: contextlib.nullcontext(folder))
    out = str(tmp_path / "end-to-end.json")
    whole.main(["--limit", "31", "--rounds", "2", "--before", "abc", "--out", out])
    assert turns == ["tree", whole.ROOT.name, whole.ROOT.name, "tree"]
    monkeypatch.setattr(benchmark("markdown"), "RESULTS", tmp_path)
    lines = speed.end_to_end().splitlines()
    assert lines[2] == "| before (commit abc) | 30 (30 to 30) | 50 | 1,234 | 75.00% of 4 |"
    assert lines[3].startswith("| now | 10 (10 to 10) |")
    assert (
        lines[5]
        == "Time of the earlier commit / time now: 3.0 × (3.0 to 3.0), over 2 rounds; at most 31 examples per split."
    )


# --- the command line ------------------------------------------------------------------------------


def test_options_are_read_by_their_defaults(capsys):
    def read(*argv: str) -> Any:
        options = {"rounds": (5, "timed"), "fast": False, "sizes": [7], "out": Path("a"), "limit": int}
        return benchmark("options").parse(
            "about", "name", argv=argv, key={"flag": "--set", "nargs": "*"}, **options
        )

    given = read("x", "--rounds", "3", "--fast", "--sizes", "1", "2", "--set", "a=1")
    assert (given.name, given.rounds, given.fast, given.sizes, given.key) == ("x", 3, True, [1, 2], ["a=1"])
    given = read("x", "--out", "b")
    assert (given.rounds, given.fast, given.sizes, given.out, given.limit) == (5, False, [7], Path("b"), None)
    with pytest.raises(SystemExit):
        given.error("never so")
    assert "never so" in capsys.readouterr().err


# --- nothing is left running ----------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is Linux's")
@pytest.mark.parametrize(
    "how",
    [
        signal.SIGKILL,
        pytest.param(signal.SIGINT, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_a_contender_ends_with_its_benchmark(tmp_path, how):
    script = tmp_path / "lasting.py"
    script.write_text(LASTING.format(root=str(ROOT)), encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.send_signal(how)
        parent.wait(30)
    deadline = time.monotonic() + 20
    while runs(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not runs(child)


def runs(pid: int) -> bool:
    """Whether that process still does something; one that nobody has buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(") ", 1)[1][0] != "Z"
    except OSError:
        return False
