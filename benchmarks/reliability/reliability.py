"""The reliability scoreboard: each promise with how often it was tested and how often it held.

    python -m benchmarks.reliability.reliability                        every row at its full count (make soak)
    python -m benchmarks.reliability.reliability kills --count 20       one row
    python -m benchmarks.reliability.reliability kills --more 20        twenty more of that row, added to the file
    python -m benchmarks.reliability.reliability --page                 write docs/reliability.md from the file again

A row is written into results/reliability.json as soon as it has run. No test reaches the network: every attempt would
be refused and counted.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness.options import parse
from benchmarks.harness.results import RESULTS, environment, kept, write_result
from benchmarks.reliability import (
    bad_files,
    borrowed,
    full_disks,
    hostile_folders,
    hostile_pictures,
    hostile_requests,
    hostile_tables,
    injections,
    interrupt_tests,
    kill_tests,
    long_run,
    mutant_results,
    offline_suite,
    round_trips,
    soak_server,
    trainer_tests,
)

FILE = RESULTS / "reliability.json"
PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
ATTEMPTS: list[str] = []

# name: (what is promised, how often it is tested, the test); a test without a count has one of its own
ROWS: dict[str, tuple[str, int, Callable[..., list[dict]]]] = {
    "kills": ("`kill -9` at a random instant, half of them aimed inside a save, over text, pictures, word vectors (one "
              "thread) and pre-training; resumed: every tensor and the history bit for bit as without the kill", 200,
              kill_tests.kills),
    "crashes": ("the process killed at each call to the disk in a save: the newest complete checkpoint is found", 0,
                lambda count: kill_tests.crashes()),
    "damages": ("a file of a checkpoint removed, cut, flipped, swapped, grown, emptied: named, and the older one used",
                600, bad_files.damaged_checkpoints),
    "resumes": ("resumed at each step of a run: the same bits and history, early stopping included", 0,
                lambda count: kill_tests.resumes()),
    "full_disks": ("the disk refuses bytes inside a save: older checkpoint whole, nothing left behind, exit code 1", 30,
                   kill_tests.full_disks),
    "full_disks_verbs": ("the disk full at a random byte of a random file, in each verb that writes: one line, exit "
                         "code 1, nothing half-written under its name, what was there intact", 72, full_disks.verbs),
    "signals": ("SIGTERM or Ctrl-C at a random instant: saved, exit code 130, the resumed run ends the same", 30,
                kill_tests.signals),
    "interruptions": ("`kill -9`, SIGTERM, Ctrl-C or SIGHUP at a random instant of the whole life of `train` (text, "
                      "pictures, word vectors), `evaluate`, `predict --data` and `export`: exit code 130 and one line "
                      "(but for `kill -9`), no files left if nothing was started, and the same command, with "
                      "`--resume` for a run that was begun, ends with the same bytes, the clock aside", 200,
                      interrupt_tests.interruptions),
    "races": ("two trainings into one folder (new and new, resumed and resumed, new and resumed), a training beside "
              "`evaluate` and `report`, two `save` beside `load` and a server's loading: both right, or one refused in "
              "one line that names the process; every reader sees one save, no folder is damaged", 50,
              interrupt_tests.races),
    "pairs": ("the same seed twice, in two processes: the same bits (there are no loader workers whose number could "
              "matter: a training makes its batches itself)", 24, kill_tests.pairs),
    "tables": ("malformed tables, 60 by hand and the rest mutated: read, or a typed error that names the file", 2000,
               bad_files.tables),
    "hostile_tables": ("hand-crafted malicious tables: 2 kB that unfold to gigabytes, false footers, 100,000 columns, lines "
                       "without end, deep JSON, columns of every odd kind, pipes and devices: read rightly or a typed "
                       "error that names the file, below 700 MB and 30 s of CPU time", 0, hostile_tables.hostile_tables),
    "pictures": ("malformed pictures, 40 by hand and the rest mutated: likewise, below 500 MB and 2 s", 2000,
                 bad_files.pictures),
    "hostile_pictures": ("pictures built to do harm: scans, segments, chunks, frames, texts, EXIF, directories, strips "
                         "and runs without measure, in ten formats: the right pixels or a typed error that names the "
                         "file, below 500 MB and 2 s of the processor", 0, hostile_pictures.hostile_pictures),
    "readers": ("weights, settings, tokenizers, word vectors and recipes from outside, mutated: read, or a typed error",
                1200, bad_files.readers),
    "settings": ("`config.json`, `glassformer.json`, `preprocessor_config.json` and `words.json` of saved models with "
                 "keys dropped, of another type, huge or negative: a typed error, or a model that answers", 600,
                 bad_files.settings),
    "malicious": ("checkpoints with pickles in any slot, 200 MB headers, impossible shapes, path traversal in names, "
                  "configs that ask for more than the weights hold: refused, nothing executed", 0,
                  lambda count: bad_files.malicious_checkpoints()),
    "hostile_tokenizers": ("hand-crafted malicious tokenizer files (ids out of range, patterns and "
                           "replacements without end, ids beyond every table, templates of unknown tokens): refused in "
                           "a line, or every answer right; each in a minute, memory + 300 MB at most, no panic", 750,
                           hostile_folders.tokenizers),
    "hostile_labels": ("pairs of labels through tables, `fit` and model folders (NUL, lone surrogates, control "
                       "characters, numbers beyond 64 bits, booleans mixed with numbers): kept apart as they are, or "
                       "refused in a line", 567, hostile_folders.labels),
    "injections": ("200 strings of markup, script, template and formula as text, label and file name, into the report "
                   "with its table, and into the pages of explanations and server, opened in Chromium: all stands as "
                   "text; nothing runs, is asked for or said on the console, no cell begins a formula", 1200,
                   injections.injections),
    "round_trips": ("random BERTs with each head and ViTs: from `transformers` to here and back, all answers within "
                    "1e-5 of the largest one; 24 each with 5.x and 4.57", 48,
                    lambda count: round_trips.round_trips(24, OPTIONS["other"])),
    "suite": ("the tests of `make test` with the network shut: no attempt to reach another machine", 0,
              lambda count: offline_suite.suite(OPTIONS["tests"])),
    "hostile_requests": ("hostile requests of 13 kinds (too many values, keys and levels, no JSON, heads, framing, "
                         "methods, hosts, paths, texts, pictures, slow and gone clients) to a real server with default "
                         "limits: 4xx or closed, good requests in between right; `/health` within 1 s throughout, "
                         "memory at most 300 MB more, no traceback", 0, hostile_requests.hostile_requests),
    "soak_server": ("100,000 requests of all kinds, hostile ones among them: every good answer as offline, memory at "
                    "each further tenth at most 5 % above that after the first", 0,
                    lambda count: soak_server.soak_server(count or 100_000)),
    "memory": ("100,000 steps of a tiny training that evaluates, saves and logs: its memory at each further 10,000 at "
               "most 5 % above that at 10,000", 0, lambda count: long_run.memory(count or 100_000)),
}  # fmt: skip
PEER: dict[str, tuple[str, int, Callable[..., list[dict]]]] = {
    "trainer_kills": ("`kill -9` at a random instant, half of them aimed inside a save; resumed: the same bits", 24,
                      trainer_tests.kills),
    "trainer_early_stops": ("stopped while the early-stopping counter is running, and resumed: the run ends at the same step", 8,
                            trainer_tests.early_stops),
    "trainer_damages": ("a file of the newest checkpoint damaged: refused, or resumed to the right model", 40,
                        trainer_tests.damages),
}  # fmt: skip
# Begin where earlier runs ended.
ADDED = {
    "kills", "full_disks", "full_disks_verbs", "signals", "interruptions", "races", "pairs", "injections", "trainer_kills",
}  # fmt: skip
OPTIONS: dict[str, Any] = {
    "other": None,
    "tests": ["tests"],
}  # of the command line, for the rows that have some
SPELLED = ("memory", "soak_server")  # what each test has found, not how often
EXAMPLES = 5  # of failures kept in the file


def watch_the_network() -> None:
    """Refuse and count every attempt to reach another machine."""

    def hear(event: str, args: tuple) -> None:
        there = args[1] if event == "socket.connect" else None
        if isinstance(there, tuple) and there[0] not in ("127.0.0.1", "::1"):
            ATTEMPTS.append(str(args[1]))
            raise ConnectionRefusedError("no network in these tests")

    sys.addaudithook(hear)


def run_row(name: str, count: int | None, more: int) -> dict[str, Any]:
    """Run one row; its figures, those of earlier runs added where ``more`` was asked for."""
    promise, asked, test = (ROWS | PEER)[name]
    before = read().get("rows", {}).get(name) if more else None
    first = before["run"] if before else 0
    started = time.perf_counter()
    wanted = more or (asked if count is None else count)
    runs = test(wanted, first) if name in ADDED else test(wanted)
    failures = [one for one in runs if not one["passed"]]
    row = {
        "promise": promise,
        "asked": asked or len(runs),
        "run": len(runs),
        "passed": len(runs) - len(failures),
        "seconds": round(time.perf_counter() - started, 1),
        "network_attempts": len(ATTEMPTS),
        "answers": dict(sorted(Counter(str(one["answer"]) for one in runs if "answer" in one).items())),
        "in_a_save": sum(bool(one.get("in a save")) for one in runs),
        "largest": max((one["difference"] for one in runs if "difference" in one), default=None),
        "resumed": sum(bool(one.get("resumed")) for one in runs),
        "failures": failures[:EXAMPLES],
    }
    if name in ("tables", "pictures"):
        row["asked"] = asked + (60 if name == "tables" else 40)
    for key in ("run", "passed", "seconds", "network_attempts", "in_a_save", "resumed") if before else ():
        row[key] = round(row[key] + before[key], 1)
    if name == "suite":
        row["asked"] = offline_suite.collected()
    if before:
        row["answers"] = dict(Counter(before["answers"]) + Counter(row["answers"]))
        row["failures"] = (before["failures"] + row["failures"])[:EXAMPLES]
    return row


def read() -> dict[str, Any]:
    """The result file as it is."""
    return kept(FILE)


def line_of(row: dict[str, Any]) -> str:
    """A line of the scoreboard."""
    seconds = f"{row['seconds']:.1f}" if row.get("seconds") else "–"
    counts = [
        f"{row[key]:,}" if isinstance(row[key], int) else row[key] for key in ("asked", "run", "passed")
    ]
    return f"| {' | '.join(map(str, [row['promise'], *counts, seconds]))} |"


def page(result: dict[str, Any]) -> str:
    """The scoreboard in Markdown."""
    found, about = result["rows"], result["environment"]
    lines = [
        "# Reliability", "",
        "What is promised, how often it was put to the test, and how often it held. Written by",
        "`python -m benchmarks.reliability.reliability` (`make soak`) from `benchmarks/results/reliability.json`, not by hand.", "",
        "## The scoreboard", "", "| Property | Planned | Run | Passed | Seconds |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for name in ROWS:
        row = found.get(name)
        row = row or {"asked": ROWS[name][1] or "all", "run": 0, "passed": "–"}
        lines.append(line_of(row | {"promise": ROWS[name][0]}))
    lines += map(line_of, (*borrowed.answers(), borrowed.refusals(), borrowed.fuzz(), borrowed.onnx()[0]))
    if "kills" in found:
        kills = found["kills"]
        lines += [
            "",
            f"Of the {kills['run']:,} kills, {kills['in_a_save']:,} left a half-written folder: they hit a save.",
        ]
    told = [note for note in (borrowed.onnx()[1],) if note]
    for name, words in (("round_trips", "Round trips"),
                        ("interruptions", "Interruptions"), ("races", "Races"),
                        ("suite", "Tests with the network shut"),
                        ("memory", "Memory against that at 10,000 steps"),
                        ("hostile_requests", "Hostile requests"),
                        ("soak_server", "Soak test of the server, memory per tenth")):  # fmt: skip
        if answers := found.get(name, {}).get("answers"):
            largest = found[name].get("largest")
            words += f" (largest difference {largest:.1e})" if largest else ""
            if name == "suite":
                whole = found[name]["run"] == found[name]["asked"]
                words += " (the whole suite)" if whole else " (some folders have not been run so)"
            told.append(f"{words}: " + ", ".join(f"{n:,} of {what}" if name not in SPELLED else ", ".join([what] * n)
                                                 for what, n in answers.items()) + ".")  # fmt: skip
    lines += [line for note in told for line in ("", note)]
    attempts = sum(row["network_attempts"] for row in found.values())
    lines += ["", f"Attempts to reach another machine during all of these: {attempts}.", ""]
    lines += mutant_results.section()
    lines += ["## The same on Hugging Face's Trainer", "",
              "The documented way: `save_steps=1`, `resume_from_checkpoint=True`.",
              "", "| Test | Planned | Run | Passed | What happened |", "|---|---|---|---|---|"]  # fmt: skip
    for name, (promise, asked, _) in PEER.items():
        row = found.get(name)
        if row is None:
            lines.append(f"| {promise} | {asked} | 0 | – | |")
            continue
        told = ", ".join(f"{count} {answer}" for answer, count in sorted(row["answers"].items()))
        if name == "trainer_kills":
            told = f"{row['run'] - row['resumed']} could not resume"
        if name == "trainer_early_stops" and row["failures"]:
            one = row["failures"][0]
            told = f"ended at step {one['ended at']} instead of {one['wanted']}, for instance"
        lines.append(f"| {promise} | {row['asked']} | {row['run']} | {row['passed']} | {told} |")
    machine, versions = about["machine"], about["versions"]
    lines += ["", f"{machine['cpu']}, {machine['cores']} cores, one thread; {about['date'][:10]}; "
              + ", ".join(f"{name} {version}" for name, version in versions.items()) + ".", ""]  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    """Run rows and write file and page."""
    given = parse(
        __doc__,
        ("rows", dict(nargs="*", metavar="ROW", help=f"of {', '.join([*ROWS, *PEER])}")),
        count=(int, "how often, instead of the full count"),
        more=(0, "how often in addition to what the file has"),
        page=(False, "write the page only"),
        other_python=(str, "round_trips: an interpreter with transformers 4.57"),
        tests=(["tests"], "suite: these parts of it"),
    )
    OPTIONS.update(other=given.other_python, tests=given.tests)
    if unknown := set(given.rows) - (ROWS | PEER).keys():
        given.error(f"no row {', '.join(sorted(unknown))}")
    names = [] if given.page else given.rows or [*ROWS, *PEER]
    watch_the_network()
    if {"kills", "signals", "pairs", "resumes"} & set(names):
        kill_tests.warm()
    if {"interruptions", "races"} & set(names):
        interrupt_tests.warm()
    if PEER.keys() & set(names):
        trainer_tests.warm()
    for name in names:
        row = run_row(name, given.count, given.more)
        result = read()
        result |= {"environment": environment("transformers", "safetensors", "pyarrow", "pillow")}
        result["rows"] = result.get("rows", {}) | {name: row}
        write_result(FILE, result)
        print(f"{name:20} {row['passed']:5} of {row['run']:5} held  {row['seconds']:8.1f} s", flush=True)
        for failure in row["failures"]:
            print(f"    {failure}")
    PAGE.write_text(page(read()), encoding="utf-8")


if __name__ == "__main__":
    main()
