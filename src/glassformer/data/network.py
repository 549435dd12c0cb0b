"""A quick check whether a server can be reached, since a download would retry for half a minute."""

from __future__ import annotations

import socket
import threading
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

PATIENCE = 5.0  # seconds for the DNS lookup and the connection
PORTS = {"http": 80, "https": 443}


def unreachable(address: str, patience: float = PATIENCE) -> str | None:
    """Why the server of an address cannot be reached; None if it can.

    If the environment names a proxy, the proxy is tried instead. No data are sent.
    """
    url = urlsplit(address)
    proxy = getproxies().get(url.scheme)
    if proxy and not (url.hostname and proxy_bypass(url.hostname)):
        url = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    host, port = url.hostname or "", url.port or PORTS.get(url.scheme, 443)
    errors: list[str | None] = []

    def connect() -> None:
        try:
            socket.create_connection((host, port), timeout=patience).close()
        except OSError as error:
            errors.append(f"{host}: {error.strerror or error}")
        else:
            errors.append(None)

    # In a thread, because a DNS lookup has no timeout.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(patience)
    return errors[0] if errors else f"{host}: no answer within {patience:g} s"
