"""Check whether a server can be reached."""

from __future__ import annotations

import socket
import threading
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

TIMEOUT = 5.0  # seconds for the DNS lookup and the connection
PORTS = {"http": 80, "https": 443}


def unreachable(address: str, timeout: float = TIMEOUT) -> str | None:
    """The reason why the server of an address cannot be reached; None if it can be reached.

    If the environment sets a proxy, the proxy is checked instead. No data are sent. This check saves the
    retries of a download, which take half a minute.
    """
    url = urlsplit(address)
    proxy = getproxies().get(url.scheme)
    if proxy and not (url.hostname and proxy_bypass(url.hostname)):
        url = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    host, port = url.hostname or "", url.port or PORTS.get(url.scheme, 443)
    errors: list[str | None] = []

    def connect() -> None:
        try:
            socket.create_connection((host, port), timeout=timeout).close()
        except OSError as error:
            errors.append(f"{host}: {error.strerror or error}")
        else:
            errors.append(None)

    # In a thread, because a DNS lookup has no timeout.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(timeout)
    return errors[0] if errors else f"{host}: no answer within {timeout:g} s"
