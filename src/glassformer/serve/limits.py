"""The limits of a server.

Each field of ``Limits`` is an option of ``glassformer serve``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from math import isfinite
from typing import Any

from glassformer.errors import BadValueError


def limit(default: float, unit: str, meaning: str) -> Any:
    """A field of ``Limits``, with its default, unit and help text."""
    return field(default=default, metadata={"unit": unit, "meaning": meaning})


@dataclass(frozen=True)
class Limits:
    """The limits of a server. All of them have defaults."""

    body_bytes: int = limit(8 << 20, "BYTES", "Max size of a request's body.")
    all_bytes: int = limit(256 << 20, "BYTES", "Max size of all requests in memory.")
    # Also of chunk extensions and trailers
    header_bytes: int = limit(65_536, "BYTES", "Max size of a request's line and headers.")
    headers: int = limit(100, "N", "Max number of headers per request.")
    pipelined: int = limit(16, "N", "Max number of pipelined requests per connection.")
    json_values: int = limit(1000, "N", "Max JSON keys and values per request, not counting inputs.")
    json_depth: int = limit(16, "N", "Max nesting of JSON lists and objects.")
    inputs: int = limit(64, "N", "Max number of texts or images per request.")
    characters: int = limit(100_000, "N", "Max characters per text.")
    pixels: int = limit(16_000_000, "N", "Max pixels per image.")
    request_pixels: int = limit(64_000_000, "N", "Max pixels of all images of a request.")
    decode_seconds: float = limit(5.0, "SECONDS", "Timeout for decoding an image; then status 503.")
    queue_tokens: int = limit(65_536, "TOKENS", "Max tokens in the queue of a model; then status 429.")
    batch_tokens: int = limit(4096, "TOKENS", "Max tokens per batch.")
    explain_tokens: int = limit(256, "TOKENS", "Max tokens of an input to explain.")
    explain_queue: int = limit(4, "N", "Max number of explanations in the queue; then status 429.")
    wait_ms: float = limit(3.0, "MS", "Time to wait for other requests to fill a batch.")
    seconds: float = limit(30.0, "SECONDS", "Timeout for a response; then status 503.")
    body_seconds: float = limit(10.0, "SECONDS", "Timeout for receiving a request; then status 408.")
    connections: int = limit(
        1000, "N", "Max number of open connections; beyond it, the oldest idle one is closed."
    )

    def __post_init__(self) -> None:
        for field_ in fields(self):
            value, flag = getattr(self, field_.name), f"--{field_.name.replace('_', '-')}"
            if not isfinite(value):
                raise BadValueError(f"{value} is not a finite number", where=flag, fix="Give a number")
            if value <= 0 and field_.name != "wait_ms":
                raise BadValueError(f"{value} is not above 0", where=flag, fix="Give a larger number")
        if not 0 <= self.wait_ms <= 1000:
            raise BadValueError(f"{self.wait_ms} milliseconds", where="--wait-ms", fix="Use 0 to 1000")
