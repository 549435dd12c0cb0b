"""``glassformer serve``, which serves trained models over HTTP, with a page to try them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from glassformer.checkpoints.catalog import is_catalog_name
from glassformer.cli import options as cli
from glassformer.cli.options import option
from glassformer.cli.output import AS_JSON, print_json, print_message, print_note
from glassformer.cli.stopping import hand_over_signals
from glassformer.cli.vectors import check_index_source
from glassformer.errors import ConfigError, ConflictError, NotForThisModelError, NotInstalledError
from glassformer.inputs.rows import read_with_columns
from glassformer.serve.limits import Limits

KEY_VARIABLE = "GLASSFORMER_API_KEY"


def api_key(value: str | None) -> str | None:
    """The API key without surrounding whitespace; None if the variable is not set."""
    if value is None:
        return None
    if not value.strip():
        fix = "Set it to a key, or unset it for a server without a key"
        raise ConfigError("is set but blank", where=KEY_VARIABLE, fix=fix)
    return value.strip()


def _check_packages() -> None:
    """Raise ConfigError if a package of the server is missing."""
    for package in ("fastapi", "uvicorn", "httptools", "prometheus_client"):
        if find_spec(package) is None:
            fix = "pip install 'glassformer[serve]', or '.[serve]' in a clone"
            raise NotInstalledError(f"{package} is not installed", where="serve", fix=fix)


LIMITS = {  # options for the fields of ``Limits``: name -> type and option
    f.name: (type(f.default), option(*f.metadata.values(), default=f.default, panel=cli.LIMITS))
    for f in fields(Limits)
}


@cli.add_options(LIMITS)
def serve_command(
    runs: list[Path] = cli.run_argument(
        "Run folders, saved models or an embedding checkpoint ('glassformer doctor' lists the checkpoints).",
        default=...,
    ),
    host: str = option(
        "ADDRESS", "Address to listen on; 0.0.0.0 accepts other machines.", default="127.0.0.1"
    ),
    port: int = option("N", "Port; 0 selects a free one.", min=0, max=65535, default=8000),
    allow_host: list[str] | None = option("NAME", "Host name to accept in the Host header; may be repeated."),
    threads: int = option("N", "CPU threads (0 = PyTorch default).", min=0, default=0),
    search: str | None = option(
        "TABLE|INDEX", "For embedders: texts for /v1/search, as in 'glassformer search'."
    ),
    text_column: str | None = option("NAME", "Text column of the --search table; detected by default."),
    precision: str = option(
        "auto|fp32|bf16|int8",
        "Compute precision; auto is bf16 if the CPU supports it, else fp32.",
        default="auto",
    ),
    json: bool = AS_JSON,
    **limits: float,
) -> None:
    """Serve models over HTTP: a page at /, predictions at /v1/predict, the API at /openapi.json.

    With GLASSFORMER_API_KEY in the environment, clients must send it as a bearer token.
    """
    _check_packages()
    for run in runs:
        if not is_catalog_name(run):
            cli.check_folder(run)
    from glassformer.serve.guard import is_local, normalize_host
    from glassformer.serve.run import run_server

    for name in allow_host or ():
        normalize_host(name)  # raises an error for a wrong name before a model is loaded
    source = search_source(search, text_column)
    server_limits: Any = Limits(**limits)  # type: ignore[arg-type]  # the parser has converted the types
    key = api_key(os.environ.get(KEY_VARIABLE))
    if not is_local(host) and key is None:
        what = f"{host} is open to other machines, and {KEY_VARIABLE} is not set"
        print_note(f"{what}: anybody can send requests")
    if precision == "int8":
        check_int8(runs)
    options: dict[str, Any] = {"host": host, "port": port, "key": key, "hosts": allow_host or ()}
    options |= {"threads": threads, "precision": precision, "search": source}
    on_ready = partial(_announce, [str(run) for run in runs] if json else None)
    run_server(runs, server_limits, on_ready=on_ready, **options)


def search_source(source: str | None, text_column: str | None) -> Any:
    """The value of ``--search``: the path of a saved index, or texts, row numbers and columns of a table."""
    from glassformer.tasks.similarity.search import is_index

    if source is None or is_index(source):
        if text_column is not None:
            what = "has an effect only with --search TABLE"
            raise ConflictError(what, where="--text-column", fix="Leave it out")
        return None if source is None else Path(source)
    check_index_source(Path(source))
    return read_with_columns(Path(source), text_column, cli.print_library_note)


def check_int8(runs: Sequence[Path]) -> None:
    """Run the int8 check on the validation labels of each model that has no check result yet."""
    from glassformer.study.calibration import set_precision
    from glassformer.tasks.load import load

    for run in runs:
        if not run.exists():
            what = "is a checkpoint without a run, so there are no validation examples for the int8 check"
            raise NotForThisModelError(what, where=str(run), fix="Leave --precision int8 out")
        set_precision(run, load(run), "int8", print_note)


def _announce(runs: list[str] | None, address: str) -> None:
    """Print the address of the server, and leave the handling of signals to the server."""
    print_message(f"serving on {address}")
    if runs is not None:
        print_json({"address": address, "runs": runs})
    sys.stdout.flush()
    hand_over_signals()
