"""The reliability scoreboard: each promise with how often it was tested and how often it held.

    python -m benchmarks.reliability.reliability                        every row at its full count (make soak)
    python -m benchmarks.reliability.reliability kills --count 20       one row
    python -m benchmarks.reliability.reliability kills --more 20        twenty more of that row, added to the file
    python -m benchmarks.reliability.reliability --page                 write docs/reliability.md from the file again

A row is written into results/reliability.json as soon as it has run. No test reaches the network: every attempt would
be refused and counted.
"""

import itertools
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
    "kills": ("Training is killed with `kill -9` at a random time, in half of the cases inside a save, and "
              "resumed. All tensors and the history are bit-identical to an uninterrupted run (text, images, word "
              "vectors with one thread, pre-training)", 200,
              kill_tests.kills),
    "crashes": ("The process is killed at each disk call of a save. The newest complete checkpoint is found", 0,
                lambda count: kill_tests.crashes()),
    "damages": ("A file of a checkpoint is removed, truncated, changed by a bit, exchanged, extended or emptied. "
                "The error names it, and the previous checkpoint is used",
                600, bad_files.damaged_checkpoints),
    "resumes": ("Training is stopped and resumed at each step. Bits and history are the same, also with early "
                "stopping", 0,
                lambda count: kill_tests.resumes()),
    "full_disks": ("The disk refuses to write inside a save. The previous checkpoint is intact, nothing is left "
                   "behind, exit code 1", 30,
                   kill_tests.full_disks),
    "full_disks_verbs": ("The disk is full at a random byte of a random file, for each command that writes. One "
                         "error line, exit code 1, no incomplete file, existing files intact", 72, full_disks.full_disks),
    "signals": ("SIGTERM or Ctrl-C at a random time. The state is saved, exit code 130, and the resumed run has "
                "the same result", 30,
                kill_tests.signals),
    "interruptions": ("`kill -9`, SIGTERM, Ctrl-C or SIGHUP at a random time in `train` (text, images, word "
                      "vectors), `evaluate`, `predict --data` and `export`. Exit code 130 and one line (except "
                      "for `kill -9`). No files are left if nothing was started. The same command, with "
                      "`--resume` for a started run, then ends with the same bytes, except for times", 200,
                      interrupt_tests.interruptions),
    "races": ("Two processes use one folder: two trainings (new or resumed), a training and `evaluate` or "
              "`report`, two `save` and `load` or a server. Both succeed, or one fails with a line that names the "
              "other process. Every reader gets a complete save; no folder is damaged", 50,
              interrupt_tests.races),
    "pairs": ("The same seed in two processes gives the same bits", 24, kill_tests.pairs),
    "tables": ("Malformed tables, 60 written by hand and the others mutated. They are read, or an error names the "
               "file", 2000,
               bad_files.tables),
    "hostile_tables": ("Malicious tables written by hand: 2 kB that unpack to gigabytes, false footers, 100,000 "
                       "columns, endless lines, deep JSON, unusual column types, pipes and devices. They are read "
                       "correctly, or an error names the file, with less than 700 MB and 30 s of CPU time", 0, hostile_tables.hostile_tables),
    "pictures": ("Malformed images, 40 written by hand and the others mutated. They are read, or an error names "
                 "the file, with less than 500 MB and 2 s", 2000,
                 bad_files.pictures),
    "hostile_pictures": ("Malicious images in ten formats with excessive scans, segments, chunks, frames, texts, "
                         "EXIF data, directories, strips or runs. The pixels are correct, or an error names the "
                         "file, with less than 500 MB and 2 s of CPU time", 0, hostile_pictures.hostile_pictures),
    "readers": ("Mutated weights, settings, tokenizers, word vectors and recipes. They are read, or raise an "
                "error of the package",
                1200, bad_files.readers),
    "settings": ("Mutated `config.json`, `glassformer.json`, `preprocessor_config.json` and `words.json` of saved "
                 "models: keys missing, of another type, huge or negative. Loading raises an error of the "
                 "package, or the model predicts", 600,
                 bad_files.settings),
    "malicious": ("Malicious checkpoints: pickles in any file, headers of 200 MB, impossible shapes, path "
                  "traversal in names, configs larger than the weights. Loading raises an error; no code runs", 0,
                  lambda count: bad_files.malicious_checkpoints()),
    "hostile_tokenizers": ("Malicious tokenizer files written by hand: ids out of range, endless patterns and "
                           "replacements, templates of unknown tokens. Loading raises a one-line error, or all "
                           "results are correct; within a minute each, with at most 300 MB more memory, no crash", 750,
                           hostile_folders.tokenizers),
    "hostile_labels": ("Pairs of similar labels (NUL, lone surrogates, control characters, numbers beyond 64 "
                       "bits, booleans mixed with numbers) in tables, `fit` and model folders. They stay "
                       "different and unchanged, or raise a one-line error", 567, hostile_folders.labels),
    "injections": ("200 strings of markup, script, template and formula as text, label and file name. Chromium "
                   "opens the report, its table, and the pages of explanations and of the server. All strings are "
                   "shown as text; no script runs, nothing is requested or logged, no cell begins a formula", 1200,
                   injections.injections),
    "round_trips": ("Random BERTs with each head and random ViTs, from `transformers` to glassformer and back. "
                    "All outputs are within 1e-5 of the largest one; 24 each with 5.x and 4.57", 48,
                    lambda count: round_trips.round_trips(24, OPTIONS["other"])),
    "suite": ("The tests of `make test` without a network. No attempt to reach another machine", 0,
              lambda count: offline_suite.suite(OPTIONS["tests"])),
    "hostile_requests": ("Malicious requests of 13 kinds (too many values, keys and levels, no JSON, headers, "
                         "framing, methods, hosts, paths, texts, images, slow and disconnected clients) to a "
                         "server with default limits. Status 4xx or a closed connection; valid requests in "
                         "between get correct responses; `/health` within 1 s; at most 300 MB more memory; no "
                         "traceback", 0, hostile_requests.hostile_requests),
    "soak_server": ("100,000 requests of all kinds, malicious ones included. Every valid response equals "
                    "`predict`; memory in each tenth is at most 5 % above that in the first", 0,
                    lambda count: soak_server.soak_server(count or 100_000)),
    "memory": ("100,000 steps of a tiny training that evaluates, saves and logs. Memory after each further 10,000 "
               "steps is at most 5 % above that at 10,000", 0, lambda count: long_run.memory(count or 100_000)),
}  # fmt: skip
PEER: dict[str, tuple[str, int, Callable[..., list[dict]]]] = {
    "trainer_kills": ("`kill -9` at a random time, in half of the cases inside a save, then resumed. The same "
                      "bits", 24,
                      trainer_tests.kills),
    "trainer_early_stops": ("Stopped while the early-stopping counter is above 0, then resumed. The run ends at "
                            "the same step", 8,
                            trainer_tests.early_stops),
    "trainer_damages": ("A file of the newest checkpoint is damaged. An error, or the resumed training has the "
                        "correct result", 40,
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
NOTES = {  # below the scoreboard: what the tests of a row found
    "round_trips": "Round trips",
    "interruptions": "Interruptions",
    "races": "Races",
    "suite": "Tests without a network",
    "memory": "Memory compared with that at 10,000 steps",
    "hostile_requests": "Malicious requests",
    "soak_server": "The 100,000 requests to the server, memory in each tenth",
}
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
    seconds, counts = (
        f"{row['seconds']:.1f}" if row.get("seconds") else "–",
        [row[k] for k in ("asked", "run", "passed")],
    )
    cells = [f"{count:,}" if isinstance(count, int) else count for count in counts]
    return f"| {' | '.join(map(str, [row['promise'], *cells, seconds]))} |"


def page(result: dict[str, Any]) -> str:
    """The scoreboard in Markdown."""
    found, about = result["rows"], result["environment"]
    lines = [
        "# Reliability", "",
        "This page lists the promises of the package and how often each was tested and kept. The command",
        "`python -m benchmarks.reliability.reliability` (`make soak`) writes it from `benchmarks/results/reliability.json`.", "",
        "## The scoreboard", "",
        "*Planned* is the number of tests intended, *Run* the number made, *Passed* the number in which the promise was kept. *Seconds* is the total time.", "", "| Property | Planned | Run | Passed | Seconds |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for name in ROWS:
        row = found.get(name)
        row = row or {"asked": ROWS[name][1] or "all", "run": 0, "passed": "–"}
        lines.append(line_of(row | {"promise": ROWS[name][0]}))
    lines += map(line_of, (*borrowed.answers(), borrowed.refusals(), borrowed.fuzz(), borrowed.onnx()[0]))
    if "kills" in found:
        run, inside = found["kills"]["run"], found["kills"]["in_a_save"]
        lines += ["", f"Of the {run:,} kills, {inside:,} were during a save and left an incomplete folder."]
    told = [note for note in (borrowed.onnx()[1],) if note]
    for name, words in NOTES.items():
        if answers := found.get(name, {}).get("answers"):
            largest = found[name].get("largest")
            words += f" (largest difference {largest:.1e})" if largest else ""
            if name == "suite":
                whole = found[name]["run"] == found[name]["asked"]
                words += " (all tests)" if whole else " (some folders were not run in this way)"
            each = [[what] * n if name in SPELLED else [f"{n:,} of {what}"] for what, n in answers.items()]
            told.append(f"{words}: {', '.join(itertools.chain(*each))}.")
    lines += [line for note in told for line in ("", note)]
    attempts = sum(row["network_attempts"] for row in found.values())
    lines += ["", f"Attempts to reach another machine during all of these: {attempts}.", ""]
    lines += mutant_results.section()
    lines += ["## The same on Hugging Face's Trainer", "",
              "The Trainer was used as documented: `save_steps=1`, `resume_from_checkpoint=True`.",
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
