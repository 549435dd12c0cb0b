"""The real command in this process, tiny data and tiny models, so that a whole run takes a second."""

import functools
import json
import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glassformer.cli.app import main

from .every import Done, Runs, make_runs
from .tiny import sentences, settings, write_csv

Command = Callable[..., Done]


@pytest.fixture
def gf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """``gf("train", "europe")`` is ``glassformer train europe``, called in the test's own folder."""
    monkeypatch.chdir(tmp_path)

    def call(*argv: object) -> Done:
        capsys.readouterr()
        code = main([str(a) for a in argv])
        return Done(code, *capsys.readouterr())

    return call


@pytest.fixture
def ok(gf: Command) -> Command:
    """Calls a command that must end well; gives what it left behind."""

    def call(*argv: object) -> Done:
        result = gf(*argv)
        assert result.code == 0, result
        return result

    return call


@pytest.fixture
def as_json(ok: Command) -> Callable[..., Any]:
    """Calls a command with ``--json``; what it says."""
    return lambda *argv: json.loads(ok(*argv, "--json").out)


@pytest.fixture
def refused(gf: Command) -> Callable[..., str]:
    """Calls a command that must end with exit code 2 and one line on stderr, which is returned without
    its code."""

    def call(*argv: object) -> str:
        result = gf(*argv)
        assert result.code == 2, result
        assert "Traceback" not in result.err + result.out
        found = re.fullmatch(r"(error: .*) \[[a-z0-9-]+\]\n", result.err)
        assert found, result.err
        return found[1]

    return call


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    """A good table of 60 reviews."""
    return write_csv(tmp_path / "reviews.csv", sentences(60))


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One finished run, made by the command; copy it before changing it."""
    folder = tmp_path_factory.mktemp("trained")
    data = write_csv(folder / "data" / "reviews.csv", sentences(60))
    run = folder / "run"
    assert main(["train", "--text", str(data), "--out", str(run), *settings()]) == 0
    return run


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A finished run of the test's own."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Runs:
    """A run of every kind, for suites over all tasks."""
    return make_runs(tmp_path_factory.mktemp("every"))


@pytest.fixture
def stop(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``stop(owner, "name", number)``: a call of that function is interrupted by the signal; without one by Ctrl-C."""

    def at(owner: Any, name: str, number: int = signal.SIGINT, calls: int = 1) -> None:
        real, left = getattr(owner, name), [calls]

        @functools.wraps(real)
        def interrupted(*args: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                signal.raise_signal(number)  # to this thread; the process may hear of it later
                time.sleep(0.001)
            return real(*args, **options)

        monkeypatch.setattr(owner, name, interrupted)

    return at
