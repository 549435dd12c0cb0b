"""Python imports this file at start-up where its folder is on PYTHONPATH: the network ends at this machine.

An audit hook sees every connection and name look-up of the interpreter, whichever library makes it, and
nothing can take it off again. Attempts are refused and, where GLASSFORMER_NETWORK_LOG names a file, noted
there, because a library may swallow the error. The tests run under it, and so do the processes they start.
"""

import ipaddress
import os
import sys

LOCAL_NAMES = {"localhost", "", None}


def is_local(host: object) -> bool:
    """Whether a host, as the socket functions take it, is this machine."""
    host = host.decode("ascii", "replace") if isinstance(host, bytes) else host
    if host in LOCAL_NAMES:
        return True
    try:
        address = ipaddress.ip_address(str(host).partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def refuse_network(event: str, args: tuple) -> None:
    if event in ("socket.connect", "socket.sendto"):
        address = args[1]
        host = address[0] if isinstance(address, tuple) else None  # a path: a Unix socket
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        host = args[0]
    else:
        return
    if is_local(host):
        return
    message = f"{event} to {host!r}"
    log = os.environ.get("GLASSFORMER_NETWORK_LOG")
    if log:
        with open(log, "a", encoding="utf-8") as file:
            file.write(message + "\n")
    raise ConnectionRefusedError(f"no network in tests: {message}")


# pytest loads this file by its path too; one hook is enough.
if not getattr(sys, "_glassformer_offline", False):
    sys._glassformer_offline = True  # type: ignore[attr-defined]
    sys.addaudithook(refuse_network)
