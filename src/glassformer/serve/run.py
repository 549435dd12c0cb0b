"""A server process: uvicorn around the application, within its limits, until a signal."""

from __future__ import annotations

import logging
import resource
import socket
import warnings
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

import uvicorn

from glassformer.errors import ConfigError
from glassformer.outputs import printable
from glassformer.process import keep_freed_memory
from glassformer.serve.app import create_app
from glassformer.serve.embedders import Table
from glassformer.serve.guard import LOCAL, is_local
from glassformer.serve.limits import Held, Limits
from glassformer.serve.loading import load_models, search_in
from glassformer.serve.sockets import bounded_protocol

log = logging.getLogger("glassformer.serve")

SPARE_FILES = 64  # beside the connections
BACKLOG = 2048  # connections that wait to be taken


def run_server(
    runs: Sequence[str | Path],
    limits: Limits,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    key: str | None = None,
    hosts: Collection[str] = (),
    threads: int = 0,
    precision: str = "auto",
    search: Path | Table | None = None,
    said: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM: requests that are in are answered, new ones are not taken.

    Args:
        runs: folders of runs or of saved classifiers.
        host: an address of this machine; anything but a loopback address is open to others.
        port: 0 lets the system choose.
        key: see ``Guard``.
        hosts: names under which clients reach it; on a loopback address always the local names, too.
        search: a saved index, or texts with their rows and other columns, for ``/v1/search``.
        said: called with the address once the socket is open.

    Raises:
        InputError: no model that can be loaded; a port that is taken.
    """
    keep_freed_memory()
    # Sizes are judged before pictures are decoded; a warning on stderr would be a stranger's to repeat.
    warnings.filterwarnings(
        "ignore", "Image size .* exceeds limit"
    )  # by its text: Pillow is not loaded for texts
    broken: dict[str, str] = {}
    models = load_models(runs, limits, threads=threads, precision=precision, broken=broken)
    for name, error in broken.items():
        log.warning("%s", printable(f"{name} is not served: {error}"))
    if search is not None:
        search_in(models, search)
    if is_local(host):
        hosts = {*LOCAL, host, *hosts}
    _allow_files(limits.connections)
    held = Held(limits.all_bytes)
    app = create_app(models, limits, key=key, hosts=hosts, held=held, broken=broken)
    config = uvicorn.Config(
        app,
        host,
        port,
        http=bounded_protocol(limits, held),
        ws="none",
        lifespan="on",
        access_log=False,
        log_level=logging.ERROR,  # a warning for each request that is no HTTP would be a stranger's to repeat
        server_header=False,
        date_header=True,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=int(limits.seconds) + 1,
        backlog=BACKLOG,
    )
    name = f"[{host}]" if ":" in host else host
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            door.bind((host, port))
            # Before the address is told: a client that asks at once waits and is not refused.
            door.listen(BACKLOG)
        except OSError as error:
            reason = error.strerror or "cannot be opened"
            raise ConfigError(reason, where=f"{name}:{port}", fix="Choose another --port or --host") from None
        if said is not None:
            said(f"http://{name}:{door.getsockname()[1]}")
        uvicorn.Server(config).run(sockets=[door])


def _allow_files(connections: int) -> None:
    """Let the process have as many sockets open as the limit says, where the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
