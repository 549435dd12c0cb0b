"""The JSON of a request: what it holds is counted before anything is made of it.

Strings are cut out of the bytes at the speed of C; what is left are brackets, commas, colons and numbers,
and their numbers bound all objects that a parser could make. A large body is counted and parsed in a thread.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from glassformer.serve.held import Share
from glassformer.serve.limits import Limits
from glassformer.serve.problems import JSON, Problem, too_many

SHARE = "glassformer.share"  # of the scope: what this request holds of the server's memory
SMALL = 65_536  # bytes that are parsed where they are: a millisecond at most
NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
NO_QUOTES = bytes(set(range(256)) - set(b'"'))
BEGIN_NO_VALUE = bytes(set(range(256)) - set(b",:[{"))  # each value but the first stands behind one of these


def parse(body: bytes, limits: Limits) -> Any:
    """A body as Python objects.

    Raises:
        Problem: 413 more values or inputs, 400 deeper, than the limits allow; 422 a key that stands twice.
        ValueError: no JSON, or not in the encoding that it begins with.
    """
    encoding = json.detect_encoding(body)
    if not encoding.startswith(
        "utf-8"
    ):  # in UTF-16 the byte of a quotation mark may be half of another letter
        body = body.decode(encoding, "surrogatepass").encode("utf-8", "surrogatepass")
    check_shape(body, limits)
    value = json.loads(body, object_pairs_hook=_each_once)
    for name in ("texts", "images", "pairs", "sentences") if isinstance(value, dict) else ():
        if isinstance(inputs := value.get(name), list) and len(inputs) > limits.inputs:
            raise too_many(len(inputs), limits.inputs, name)
    return value


def check_shape(body: bytes, limits: Limits) -> None:
    """Raises Problem where a parser could make more values of these bytes, or nest deeper, than allowed.

    Up to the first byte that is not JSON nothing is missed; behind it no parser goes.
    """
    most = limits.json_values + limits.inputs
    bare = body.replace(b"\\\\", b"").replace(b'\\"', b"")  # each quotation mark left begins or ends a string
    outside = b""
    if fits := len(bare.translate(None, NO_QUOTES)) <= 2 * most:
        outside = b"".join(bare.split(b'"')[::2])
        depth = 0
        for bracket in outside.translate(None, NO_BRACKETS)[: 2 * most]:
            depth += 1 if bracket in b"[{" else -1
            if depth > limits.json_depth:
                what = f"nested more than {limits.json_depth} deep"
                raise Problem(400, what, where="body", fix=JSON)
        fits = len(outside.translate(None, BEGIN_NO_VALUE)) < most
    if not fits:
        fix = "Send several requests, or texts instead of words; --json-values allows more"
        raise Problem(413, f"more than {most:,} values", where="body", fix=fix)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys differ: of two that are alike one reader takes the first, another the last."""
    made = dict(pairs)
    if len(made) < len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise Problem(422, "this key is given twice", where=twice, fix="Leave one of them")
    return made


def weight(value: Any) -> int:
    """Bytes of the strings in a parsed value; a letter outside Latin-1 makes every character take 2 or 4."""
    if isinstance(value, dict):
        return sum(map(weight, value)) + sum(map(weight, value.values()))
    if isinstance(value, list):
        return sum(map(weight, value))
    return sys.getsizeof(value) if isinstance(value, str) else 0


class JsonRequest(Request):
    """A request whose body is parsed within the limits."""

    async def json(self) -> Any:
        body, server = await self.body(), self.app.state.server
        if len(body) <= SMALL:
            return parse(body, server.limits)
        loop = asyncio.get_running_loop()
        value = await loop.run_in_executor(server.parsing, parse, body, server.limits)
        share: Share = self.scope[SHARE]
        share.add(weight(value))
        return value


class JsonRoute(APIRoute):
    """A route whose requests are ``JsonRequest``."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(JsonRequest(request.scope, request.receive))

        return handle
