"""The tool that puts faults into the package: which faults, which tests, and what is counted."""

from __future__ import annotations

import ast
import json
from pathlib import Path

from .benchmark_tools import benchmark

ROOT = Path(__file__).parents[1]
SOURCE = '''\
"""A text with 1 number."""
__all__ = ["f"]
if TYPE_CHECKING:
    import typing
LIMIT: int = 5

@cache(size=3)
def f(a: int = 2, b=None, *, flag=True):
    """Returns 4."""
    if a < b and not flag:
        raise ValueError(f"{a + 1} is too small")
    a.x = g(a, b, dim=1)
    for i in range(7):
        if i == 3:
            break
        if a[i : len(b)]:
            continue
    os.kill(a, max(a, b))
    zip(a, a, strict=True)
    g(f"{a + 1}", device=b)
    a += 1
    return a if i in b else -a
'''


def test_what_is_changed_and_what_is_left_alone():
    found = {(one.line, one.mutation) for one in benchmark("mutation").mutants("f.py", SOURCE)}
    assert found == {
        (5, "5 → 6"), (8, "2 → 3"), (8, "True → False"),
        (10, "a < b → a <= b"), (10, "a < b → a >= b"), (10, "not flag → flag"),
        (10, "a < b and not flag → a < b or not flag"), (10, "a < b and not flag → not (a < b and (not flag))"),
        (11, 'raise ValueError(f"{a + 1} is too small") → pass'),
        (12, "a.x = g(a, b, dim=1) → pass"), (12, "g(a, b, dim=1) → g(b, a, dim=1)"),
        (12, "g(a, b, dim=1) → g(a, b)"), (12, "1 → 2"), (12, "1 → 0"),
        (13, "7 → 8"), (14, "i == 3 → i != 3"), (14, "3 → 4"), (15, "break → continue"),
        (16, "a[i : len(b)] → not a[i:len(b)]"), (16, "i : len(b) → i + 1:len(b)"), (16, "i : len(b) → i:len(b) + 1"),
        (17, "continue → break"), (17, "continue → pass"),
        (18, "os.kill(a, max(a, b)) → pass"), (19, "zip(a, a, strict=True) → pass"),
        (20, 'g(f"{a + 1}", device=b) → pass'),
        (21, "a += 1 → a -= 1"), (21, "a += 1 → pass"), (21, "1 → 2"), (21, "1 → 0"),
        (22, "return a if i in b else -a → return None"), (22, "a if i in b else -a → -a if i in b else a"),
        (22, "i in b → i not in b"), (22, "-a → a"),
    }  # fmt: skip


def test_a_mutant_is_one_change_of_the_source():
    for one in benchmark("mutation").mutants("f.py", SOURCE):
        before, after = SOURCE.splitlines(), one.source.splitlines()
        assert ast.dump(ast.parse(one.source)) != ast.dump(ast.parse(SOURCE))
        assert [i + 1 for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b] == [one.line]
        assert one.scope == ((0, 0) if one.line in (5, 8) else (8, 22))
        assert one.text == before[one.line - 1].strip()


def test_lines_are_drawn_before_a_line_is_drawn_again():
    mutation = benchmark("mutation")
    every = mutation.mutants("f.py", SOURCE)
    lines = {one.line for one in every}
    chosen = mutation.sample(every, len(lines), seed=3)
    assert {one.line for one in chosen} == lines
    assert chosen == mutation.sample(every, len(lines), seed=3) != mutation.sample(every, len(lines), seed=4)
    assert len(mutation.sample(every, 1000, seed=3)) == len(every)


def test_a_survivor_is_judged_by_what_is_known_of_it(monkeypatch, tmp_path):
    results, known = benchmark("mutant_results"), tmp_path / "explained.json"
    monkeypatch.setattr(results, "EXPLAINED", known)
    monkeypatch.setattr(results, "environment", lambda *packages: {})
    listed = [
        {"file": "nn/a.py", "line": "x = 2", "mutation": "2 → 3", "kind": "equivalent", "reason": "it is"}
    ]
    known.write_text(json.dumps(listed), encoding="utf-8")
    same = {"seconds": 1.0, "tests": 5}
    tried = [
        {"file": "nn/a.py", "line": 3, "text": "x = 2", "mutation": "2 → 3", "killed": False, **same},
        {"file": "nn/a.py", "line": 5, "text": "y = 2", "mutation": "2 → 3", "killed": False, **same},
        {
            "file": "nn/b.py",
            "line": 7,
            "text": "y = 2",
            "mutation": "2 → 3",
            "killed": True,
            "by": "t",
            **same,
        },
    ]
    out = tmp_path / "mutants.json"
    results.write(out, {"nn": tried}, [], 11)
    (run,) = json.loads(out.read_text(encoding="utf-8"))["runs"]
    counts = [run[key] for key in ("package", "seed", "tried", "killed", "equivalent")]
    assert counts == ["nn", 11, 3, 1, 1]
    assert run["files"] == {"nn/a.py": {"killed": 0, "tried": 2}, "nn/b.py": {"killed": 1, "tried": 1}}
    assert [one["reason"] for one in run["survivors"]] == ["it is", None]
    known.unlink()
    results.write(out, {}, [], 0)  # --explained: counted again
    assert json.loads(out.read_text(encoding="utf-8"))["runs"][0]["equivalent"] == 0


def test_every_reason_is_for_a_line_that_stands():
    results = benchmark("mutant_results")
    gone = []
    for (file, line, _), one in results.explained().items():
        assert one["kind"] in ("equivalent", "left")
        assert len(one["reason"]) > 20
        source = (ROOT / "src" / "glassformer" / file).read_text(encoding="utf-8")
        if line not in {text.strip() for text in source.splitlines()}:
            gone.append(f"{file}: {line}")
    assert not gone, "a reason for a line that is no more"
