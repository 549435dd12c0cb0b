"""``glassformer serve``: trained classifiers over HTTP, with a page to try them on."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from glassformer.cli.options import TextColumn, a_run, option
from glassformer.cli.output import AsJson, note, say, say_json
from glassformer.cli.places import check_folder
from glassformer.cli.stopping import hand_over
from glassformer.errors import ConfigError

KEY = "GLASSFORMER_API_KEY"


def api_key(given: str | None) -> str | None:
    """The key without the white space around it, such as the line end of a file; None: there is none.

    Raises:
        ConfigError: set, but blank: whoever sets it does not mean a server that is open to all.
    """
    if given is None:
        return None
    if not given.strip():
        raise ConfigError(
            "is set but blank", where=KEY, fix="Give a key, or unset it for a server without one"
        )
    return given.strip()


def _check_packages() -> None:
    """Raises ConfigError where a package of the server is missing."""
    for package in ("fastapi", "uvicorn", "httptools", "prometheus_client"):
        if find_spec(package) is None:
            fix = "pip install 'glassformer[serve]', or '.[serve]' in a clone"
            raise ConfigError(f"{package} is not installed", where="serve", fix=fix)


Hosts = Annotated[list[str] | None, option("NAME", "A host name that clients may use; may be repeated.")]
Search = Annotated[
    str | None,
    option(
        "TABLE|INDEX", "For embedders: the texts that /v1/search looks through, as in glassformer search."
    ),
]
Precision = Annotated[str, option(None, "auto (bf16 where the processor has it), fp32, bf16 or int8.")]
Pipelined = Annotated[
    int, option(None, "The most requests that wait on one connection for earlier responses.")
]
JsonValues = Annotated[
    int, option(None, "The most keys and values in a request's JSON, apart from its inputs.")
]


def serve_command(
    runs: Annotated[list[Path], a_run("Run folders, saved models, or a named embedding checkpoint.")],
    host: Annotated[
        str, option("ADDRESS", "The address to listen on; only this machine by default.")
    ] = "127.0.0.1",
    port: Annotated[int, option(None, "The port; 0: any free one.", min=0, max=65535)] = 8000,
    allow_host: Hosts = None,
    threads: Annotated[int, option(None, "The number of compute threads; 0: torch's default.", min=0)] = 0,
    search: Search = None,
    text_column: TextColumn = None,
    precision: Precision = "auto",
    body_bytes: Annotated[int, option(None, "The most bytes of one request.")] = 8 << 20,
    all_bytes: Annotated[int, option(None, "The most bytes of all requests at once.")] = 256 << 20,
    header_bytes: Annotated[int, option(None, "The most bytes of a request's line and headers.")] = 65_536,
    headers: Annotated[int, option(None, "The most headers of one request.")] = 100,
    pipelined: Pipelined = 16,
    json_values: JsonValues = 1000,
    json_depth: Annotated[int, option(None, "The deepest nesting of lists and objects.")] = 16,
    inputs: Annotated[int, option(None, "The most texts or images of one request.")] = 64,
    characters: Annotated[int, option(None, "The most characters of one text.")] = 100_000,
    pixels: Annotated[int, option(None, "The most pixels of one image.")] = 16_000_000,
    request_pixels: Annotated[int, option(None, "The most pixels of all images of a request.")] = 64_000_000,
    decode_seconds: Annotated[float, option(None, "The most seconds to decode one image.")] = 5.0,
    queue_tokens: Annotated[
        int, option(None, "The most tokens in a model's queue; more gets status 429.")
    ] = 65_536,
    batch_tokens: Annotated[int, option(None, "The tokens of one batch.")] = 4096,
    explain_tokens: Annotated[int, option(None, "The most tokens of one input to explain.")] = 256,
    explain_queue: Annotated[int, option(None, "The most explanations in the queue.")] = 4,
    wait_ms: Annotated[
        float, option(None, "The milliseconds that a request waits for others to share its batch.")
    ] = 3.0,
    seconds: Annotated[float, option(None, "The most seconds from a request to its response.")] = 30.0,
    body_seconds: Annotated[float, option(None, "The most seconds for a client to send its request.")] = 10.0,
    connections: Annotated[int, option(None, "The most open connections.")] = 1000,
    json: AsJson = False,
) -> None:
    """Serve models over HTTP: a page at /, predictions at /v1/predict, the API at /openapi.json.

    With GLASSFORMER_API_KEY in the environment, clients must send it as a bearer token.
    """
    _check_packages()
    from glassformer.checkpoints.catalog import is_named

    for run in runs:
        if not is_named(run):
            check_folder(run)
    from glassformer.serve.guard import allowed_host, is_local
    from glassformer.serve.limits import Limits
    from glassformer.serve.run import run_server

    for name in allow_host or ():
        allowed_host(name)  # before a model is read
    listed = where_to_search(search, text_column)
    given = locals()
    limits = Limits(**{name: given[name] for name in Limits.__dataclass_fields__})
    key = api_key(os.environ.get(KEY))
    if not is_local(host) and key is None:
        note(f"{host} is open to other machines, and {KEY} is not set: anybody may ask")
    if precision == "int8":
        hold_to_validation(runs)
    run_server(
        runs,
        limits,
        host=host,
        port=port,
        key=key,
        hosts=allow_host or (),
        threads=threads,
        precision=precision,
        search=listed,
        said=partial(_serving, [str(run) for run in runs] if json else None),
    )


def where_to_search(given: str | None, text_column: str | None) -> Any:
    """A saved index as its path, or the texts of a table with their rows and other columns; None: neither.

    Raises:
        ConfigError: no such table or index, or a column of an index.
        DataError: a table that cannot be read.
    """
    from glassformer.cli.inputs import read_with_columns
    from glassformer.tasks.similarity.index import is_index

    if given is None or is_index(given):
        if text_column is not None:
            raise ConfigError("belongs to the table of --search", where="--text-column", fix="Leave it out")
        return None if given is None else Path(given)
    if not Path(given).is_file():
        fix = "Name a table, a .txt file with a text a line, or a folder that 'search --save' made"
        raise ConfigError("no such table or index", where=given, fix=fix)
    return read_with_columns(Path(given), text_column)


def hold_to_validation(runs: Sequence[Path]) -> None:
    """Measure what int8 does to each model's labels, where that was not done, before anything is served."""
    from glassformer.study.calibration import set_precision
    from glassformer.tasks.load import load

    for run in runs:
        if not run.exists():
            what = "a checkpoint as it is has no validation examples to hold int8 to"
            raise ConfigError(what, where=str(run), fix="Leave --precision int8 out")
        set_precision(run, load(run), "int8", note)


def _serving(runs: list[str] | None, address: str) -> None:
    """The server is about to answer: from here on signals are its own, which end it in good order."""
    say(f"serving on {address}")
    if runs is not None:
        say_json({"address": address, "runs": runs})
    sys.stdout.flush()
    hand_over()
