"""Commands in this process, for tests of what they show; and settings as they take them."""

import ast
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cli.every import call, ok


def as_json(*words: object) -> Any:
    """What a command prints with ``--json``."""
    return json.loads(ok(*words, "--json").out)


def refused(*words: object) -> str:
    """The error of a command that must end with exit code 2."""
    done = call(*words)
    assert done.code == 2, done
    return done.err


def values(text: str) -> dict[str, Any]:
    """``values("d_model=14 norm=pre")`` is ``{"d_model": 14, "norm": "pre"}``."""

    def read(value: str) -> Any:
        try:
            return ast.literal_eval(value)
        except ValueError:
            return value

    return {key: read(value) for key, value in (word.split("=", 1) for word in text.split())}


@contextmanager
def served(*runs: Path) -> Iterator[Any]:
    """A client of a server of these runs or models."""
    pytest.importorskip("fastapi")
    from fastapi.testclient import TestClient

    from glassformer.serve.app import create_app
    from glassformer.serve.limits import Limits
    from glassformer.serve.models import load_models

    app = create_app(load_models(list(runs), Limits(), precision="fp32"), Limits())
    with TestClient(app, base_url="http://localhost") as client:
        yield client
