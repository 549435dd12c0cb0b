"""Whether another machine can be reached, found out in a moment: what fetches would try for half a minute."""

from __future__ import annotations

import socket
import threading
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

PATIENCE = 5.0  # seconds for a name to be looked up and a connection to be made
PORTS = {"http": 80, "https": 443}


def unreachable(address: str, patience: float = PATIENCE) -> str | None:
    """Why the server of an address cannot be reached; None where it can.

    A proxy of the environment is asked in its place. Nothing is sent.
    """
    url = urlsplit(address)
    proxy = getproxies().get(url.scheme)
    if proxy and not (url.hostname and proxy_bypass(url.hostname)):
        url = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    host, port = url.hostname or "", url.port or PORTS.get(url.scheme, 443)
    found: list[str | None] = []

    def knock() -> None:
        try:
            socket.create_connection((host, port), timeout=patience).close()
        except OSError as error:
            found.append(f"{host}: {error.strerror or error}")
        else:
            found.append(None)

    # A look-up of a name has no limit of its own.
    thread = threading.Thread(target=knock, daemon=True)
    thread.start()
    thread.join(patience)
    return found[0] if found else f"{host}: no answer within {patience:g} s"
