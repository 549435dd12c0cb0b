"""HTTP errors as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from glassformer.config import suggest
from glassformer.errors import InputError, NotFiniteError, counted
from glassformer.inputs.inputs import RequestTooLargeError

CODES = {  # status -> error code
    401: "wrong-key",
    404: "no-such-model",
    408: "request-too-slow",
    413: "request-too-large",
    429: "server-busy",
    431: "request-too-large",
    500: "server-failed",
    503: "server-busy",
}
JSON = "Send an object as JSON in UTF-8, with content-type: application/json"


class Problem(HTTPException):
    """An HTTP error with a status, what is wrong, where, and a fix.

    It derives from HTTPException, because FastAPI replaces other exceptions while it reads a body.
    """

    def __init__(
        self,
        status: int,
        what: str,
        *,
        where: str | None = None,
        fix: str | None = None,
        retry_after: int = 0,
        code: str | None = None,
    ):
        super().__init__(status, what)
        self.status, self.what, self.where, self.fix, self.retry_after = status, what, where, fix, retry_after
        self.code = code or CODES.get(status, "bad-request")

    def response(self) -> JSONResponse:
        """``{"error": {"code", "what", "where", "fix"}}``, with ``Retry-After`` if a retry may help."""
        fields = {"code": self.code, "what": self.what, "where": self.where, "fix": self.fix}
        content = {"error": {key: value and make_printable(value) for key, value in fields.items()}}
        headers = {"Retry-After": str(self.retry_after)} if self.retry_after else {}
        if self.status in (408, 413, 431):  # the server does not read the rest of the request
            headers["Connection"] = "close"
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return JSONResponse(content, self.status, headers)


def too_many_inputs(inputs: int, limit: int, where: str) -> Problem:
    """The error for too many inputs in a request."""
    return Problem(413, f"{inputs} inputs, {limit} at most", where=where, fix="Send several requests")


def input_problem(error: InputError, where: str | None = None) -> Problem:
    """The HTTP error for an error of the library: status 422, or 413 if an input is too large."""
    status = 413 if isinstance(error, RequestTooLargeError) else 422
    return Problem(status, error.what, where=where or error.where, fix=error.fix, code=error.code)


def model_problem(error: NotFiniteError) -> Problem:
    """The HTTP error for outputs that are NaN or infinite: status 422."""
    return Problem(422, str(error), where="model", code=error.code)


def validation_problem(errors: Sequence[Any], fields: Sequence[str] = ()) -> Problem:
    """The HTTP error for validation errors: status 422, for one of them, without the client's input.

    Args:
        fields: names of the valid fields of the request.
    """
    # Report an unknown field first: a misspelled field also causes an error about a missing field.
    first = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
    if first["type"] == "json_invalid":
        position, reason = first["loc"][-1], first.get("ctx", {}).get("error", "")
        return Problem(422, f"JSON decode error at character {position}: {reason}", where="body", fix=JSON)
    if list(first["loc"]) == ["body"]:
        is_missing = first["type"] == "missing"
        what = "there is no body" if is_missing else "the body was not sent as JSON, or is not an object"
        return Problem(422, what, where="body", fix=JSON)
    parts = [part for part in first["loc"] if part != "body"]
    # ["pairs", 0, "text"] becomes "pairs[0].text".
    where = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" if i else str(p) for i, p in enumerate(parts))
    what, fix = _message_and_fix(first)
    if first["type"] == "extra_forbidden" and len(parts) == 1 and fields:
        fix = suggest(str(parts[0]), fields)
    elif first["type"] == "list_type" and len(parts) == 1:
        fix = f'Send a list: {{"{parts[0]}": [...]}}'
    return Problem(422, what, where=where or "body", fix=fix)


def _message_and_fix(error: Any) -> tuple[str, str]:
    """The message and the fix for a validation error."""
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return "there is no such field", "Leave it out"
    if kind == "missing":
        return "is missing", "Add it"
    if kind == "string_too_short":
        noun = "image" if any(str(part).startswith("image") for part in error["loc"]) else "text"
        return f"the {noun} is empty", f"Send at least {counted(context['min_length'], 'character')}"
    if kind == "string_unicode":
        return "has a lone surrogate, which is not a character", "Send whole characters"
    if kind == "string_too_long":
        return "the text is too long", f"Send at most {counted(context['max_length'], 'character')}"
    if kind == "too_short":
        what = f"the list has {counted(context['actual_length'], 'item')}"
        return what, f"Send at least {counted(context['min_length'], 'item')}"
    if kind == "too_long":
        return "the list is too long", f"Send at most {counted(context['max_length'], 'item')}"
    if kind.endswith("_type"):
        expected = {"string": "a string", "int": "a whole number", "bool": "true or false", "list": "a list"}
        return "has the wrong type", f"Send {expected.get(kind[:-5], kind[:-5].replace('_', ' '))}"
    if kind in ("literal_error", "enum"):
        return str(error["msg"]), "Send one of these values"
    return str(error["msg"]), "GET /openapi.json describes valid requests"


def make_printable(text: str, limit: int = 300) -> str:
    """The first ``limit`` characters of a text, with "?" for lone surrogates, which UTF-8 cannot encode."""
    return text[:limit].encode("utf-8", "replace").decode()
