"""The ASGI application: routes, one batcher per model, and health checks."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from difflib import get_close_matches
from functools import partial
from importlib.resources import files
from typing import Any

from anyio.lowlevel import checkpoint
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from glassformer import __version__
from glassformer.errors import NotFiniteError
from glassformer.explain.render import asset
from glassformer.finite import json_text
from glassformer.inputs.inputs import ServedInputs
from glassformer.outputs import printable
from glassformer.runtime import set_threads
from glassformer.serve.batcher import Batcher
from glassformer.serve.decoding import Decoding, Encoding
from glassformer.serve.guard import PREDICT, Guard, JsonRoute
from glassformer.serve.kinds import KINDS, ROUTES, Route, paths_of
from glassformer.serve.limits import Limits
from glassformer.serve.metrics import MemoryBudget, Metrics
from glassformer.serve.models import ServedModel
from glassformer.serve.problems import JSON, Problem, model_problem, validation_problem
from glassformer.serve.schema import (
    ErrorResponse,
    ExplainRequest,
    ExplainResponse,
    RequestInputs,
    StateResponse,
    models_response,
    request_class,
)

log = logging.getLogger("glassformer.serve")

STATIC = {  # served from memory; a client's path is only used as a key here
    "/": ("index.html", "text/html; charset=utf-8"),
    "/static/page.css": ("page.css", "text/css; charset=utf-8"),
    "/static/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/static/pad.js": ("pad.js", "text/javascript; charset=utf-8"),
    "/static/draw.js": ("draw.js", "text/javascript; charset=utf-8"),
    "/static/icon.svg": ("icon.svg", "image/svg+xml"),
}
# the common style sheet, and the style sheet of spans
STYLE_SHEETS = {"/static/base.css": "page.css", "/static/spans.css": "spans.css"}
EXPLAIN = "/v1/explain"
REASONS = {
    400: "Not JSON, or not served under this host name",
    401: "No key, or a wrong one",
    404: "No such model",
    408: "The body came too slowly",
    413: "Too large, too many or too long",
    422: "Not as described here, or an input that cannot be used",
    431: "Headers that are too large or too many",
    429: "The queue is full: try again after Retry-After",
    503: "No answer in time, or stopping",
}
ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    code: {"model": ErrorResponse, "description": what} for code, what in REASONS.items()
}


def _lower_priority(threads: int) -> None:
    """Initialize a computing thread with a lower priority than the thread that answers requests."""
    set_threads(threads)
    with suppress(OSError, AttributeError):  # Linux has niceness per thread, other systems per process
        if sys.platform == "linux":
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + 5)


class Server:
    """State shared by the routes. Created before the event loop runs; ``lifespan`` starts it."""

    def __init__(
        self,
        models: Sequence[tuple[ServedModel, bool]],
        limits: Limits,
        budget: MemoryBudget | None = None,
        broken: Mapping[str, str] | None = None,
    ):
        self.broken = dict(broken or {})
        self.models = {served.name: served for served, _ in models}
        self.calibrated = {served.name: calibrated for served, calibrated in models}
        self.limits, self.metrics = limits, Metrics()
        self.budget = budget or MemoryBudget(limits.all_bytes)
        self.budget.metrics = self.metrics
        self.ready = False
        self.parsing = ThreadPoolExecutor(1, "parse")  # one large body at a time
        # Images take seconds to decode, texts milliseconds: they use separate threads.
        self.encoding, self.decoding = Encoding(), Decoding(limits.decode_seconds)
        self.kinds = [type(served.inputs) for served, _ in models]
        self.requests = {path: request_class(route.request, self.kinds) for path, route in ROUTES.items()}
        self.requests[EXPLAIN] = request_class(ExplainRequest, self.kinds)
        threads = (next(iter(self.models.values())).clf.threads,)  # torch has this setting per thread
        self.computing = ThreadPoolExecutor(1, "compute", _lower_priority, threads)
        self.explaining = ThreadPoolExecutor(1, "explain", _lower_priority, threads)
        self.explanations = 0
        self.batchers: dict[str, Batcher] = {}
        self.about: list[dict[str, Any]] = []

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        await checkpoint()  # triggers imports that the first request would otherwise wait for
        for name, served in self.models.items():
            threads = self.decoding if served.inputs.decoded else self.encoding
            self.batchers[name] = Batcher(served, threads, self.computing, self.metrics)
            await loop.run_in_executor(self.computing, served.warm_up)
            self.about.append(served.about(self.calibrated[name]))
        tasks = [asyncio.create_task(batcher.work()) for batcher in self.batchers.values()]
        self.ready = True
        try:
            yield
        finally:
            self.ready = False
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for executor in (self.parsing, self.encoding, self.decoding, self.computing, self.explaining):
                executor.shutdown(wait=False, cancel_futures=True)

    def full(self, size: int) -> bool:
        """Whether the queues of all models are too full for a body of ``size`` bytes."""
        return bool(self.batchers) and all(batcher.full(size) for batcher in self.batchers.values())

    def choose(
        self,
        name: str | None,
        input_kind: type[ServedInputs],
        output_kind: str = "labels",
        pairs: bool = False,
        lacks: Callable[[Any], Problem | None] = lambda target: None,
    ) -> ServedModel:
        """The model with this name, or the first one that reads such inputs and gives such outputs; models
        that lack nothing are preferred.

        Raises:
            Problem: 404 no such model, 422 the model reads something else.
        """
        if name is None:
            candidates = [
                s for s in self.models.values() if (s.kind, s.gives) == (input_kind.kind, output_kind)
            ]
            suitable = sorted(
                (s for s in candidates if s.pairs == pairs), key=lambda s: lacks(s.target) is not None
            )
            if suitable:
                return suitable[0]
            if made_by := KINDS[output_kind].made_by:
                fix = f"Start the server with a run of {made_by}"
                fix += ", or a checkpoint such as all-minilm-l6-v2" if output_kind == "vectors" else ""
                raise Problem(422, f"no model here gives {output_kind}", where="model", fix=fix)
            others_of_input = [
                s for s in self.models.values() if s.kind == input_kind.kind and s.target.made_by
            ]
            alternatives = [f"POST {paths_of(s.gives)[0]} for {s.name}" for s in others_of_input]
            if candidates and not alternatives:
                raise _wrong_pairing(candidates[0])
            what = "pairs of texts" if pairs else input_kind.noun
            fix = " or ".join(alternatives) or "Start the server with one that does"
            raise Problem(422, f"no model here reads {what}", where="model", fix=fix)
        if name in self.broken:
            raise Problem(422, f"this model could not be loaded: {self.broken[name]}", where="model")
        if name not in self.models:
            raise Problem(404, "no such model", where="model", fix=f"Known: {', '.join(self.models)}")
        served = self.models[name]
        if served.kind != input_kind.kind:
            noun = served.inputs.noun
            fitting_models = [
                s.name for s in self.models.values() if (s.kind, s.gives) == (input_kind.kind, output_kind)
            ]
            fix = f"Send {noun}" + (
                f", or name a model of {input_kind.noun}: {', '.join(fitting_models)}"
                if fitting_models
                else ""
            )
            raise Problem(422, f"this model reads {noun}", where="model", fix=fix)
        if served.gives != output_kind:
            *paths, last = paths_of(served.gives)
            use = f"{', '.join(paths)} or {last}" if paths else last
            raise Problem(422, f"this model gives {served.gives}", where="model", fix=f"Use {use}")
        if served.pairs != pairs:
            raise _wrong_pairing(served)
        return served

    def choose_to_explain(self, request: ExplainRequest, sent: RequestInputs) -> ServedModel:
        """The model that the request names, or the first one that can explain such an input.

        Raises:
            Problem: as ``choose``; or a word is given, but the model is explained for the whole text.
        """
        requested, for_word = self.models.get(request.model or ""), request.word is not None
        explained_kinds = [
            kind for kind in KINDS.values() if kind.explains and (kind.of_words or not for_word)
        ]
        if requested is not None:
            if for_word and not requested.target.of_words:
                what = f"this model predicts {requested.gives} of a whole text, not of words"
                raise Problem(422, what, where="word", fix="Leave it out")
            gives = [requested.gives] if requested.target.explains else []
        else:
            kind = sent.input_kind.kind, sent.pairs
            available = {s.gives for s in self.models.values() if (s.kind, s.pairs) == kind}
            gives = [kind.gives for kind in explained_kinds if kind.gives in available]
        return self.choose(request.model, sent.input_kind, [*gives, explained_kinds[0].gives][0], sent.pairs)

    async def predict(self, route: Route, request: Any) -> dict[str, Any]:
        """Respond to a request, for any kind of model."""
        sent = request.to_inputs()
        served = self.choose(request.model, sent.input_kind, route.gives, sent.pairs, route.lacks)
        if (problem := route.lacks(served.target)) is not None:
            raise problem
        try:
            items, rows = await self.batchers[served.name].submit(sent.inputs, sent.field_name)
        except Problem as problem:
            problem.where = sent.fields.get(problem.where or "", problem.where)
            raise
        return {"model": served.name, **await route.respond(self, served, request, items, rows)}

    async def explain(self, call: Callable[..., Any], *arguments: Any, fix: str) -> Any:
        """Compute one explanation in a separate thread, because it may take seconds.

        Args:
            fix: advice for the error if it takes too long.

        Raises:
            Problem: 429 if too many explanations wait, 503 if it takes too long.
        """
        if self.explanations >= self.limits.explain_queue:
            self.metrics.refused.labels("explain").inc()
            raise Problem(429, "too many explanations at once", fix="Try again in a moment", retry_after=1)
        self.explanations += 1
        future = self.explaining.submit(call, *arguments)
        task = asyncio.wrap_future(future)
        task.add_done_callback(self._explained)
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await asyncio.shield(task)
        except asyncio.CancelledError:
            future.cancel()  # the client has gone; a running call keeps its place in the queue until it ends
            raise
        except TimeoutError:
            future.cancel()  # if it has not begun; else it keeps its place in the queue until it ends
            what = f"no explanation within {self.limits.seconds:g} s"
            raise Problem(503, what, fix=fix, retry_after=2) from None

    def _explained(self, work: Any) -> None:
        self.explanations -= 1
        if not work.cancelled():
            work.exception()  # retrieve it, because the request may be gone


def create_app(
    models: Sequence[tuple[ServedModel, bool]],
    limits: Limits,
    *,
    key: str | None = None,
    hosts: Collection[str] = (),
    budget: MemoryBudget | None = None,
    broken: Mapping[str, str] | None = None,
) -> FastAPI:
    """Create the ASGI application that serves these models.

    Args:
        models: from ``load_models``.
        key, hosts: see ``Guard``.
        budget: memory budget, also used for the heads of connections; see ``bounded_protocol``.
        broken: name -> error of each model that could not be loaded.
    """
    server = Server(models, limits, budget, broken)
    app = FastAPI(
        title="glassformer",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        lifespan=server.lifespan,
        description="Predictions for texts and images, embeddings of texts, and explanations.",
        generate_unique_id_function=lambda route: route.name,  # function names of generated clients
    )
    app.state.server = server
    app.router.route_class = JsonRoute
    _add_routes(app, server)
    _add_page(app)
    app.exception_handler(Problem)(lambda request, problem: problem.response())
    app.exception_handler(NotFiniteError)(lambda request, error: model_problem(error).response())
    app.exception_handler(RequestValidationError)(_validation_problem)
    app.exception_handler(HTTPException)(_http_problem)
    app.exception_handler(Exception)(_server_failed)
    routes = [*STATIC, *STYLE_SHEETS, *ROUTES, EXPLAIN, "/v1/models", "/health", "/ready", "/metrics"]
    app.add_middleware(
        Guard,
        limits=limits,
        metrics=server.metrics,
        routes=routes,
        key=key,
        hosts=hosts,
        full=server.full,
        budget=server.budget,
    )
    return app


def _wrong_pairing(served: Any) -> Problem:
    """The error for single texts sent to a model of pairs, or the other way round."""
    what, fix = "one text", 'Send "text" or "texts"'
    if served.pairs:
        what = "pairs of texts"
        fix = f'Send "pairs": [["FIRST", "SECOND"]] to {PREDICT}, "text" and "text_pair" to /v1/explain'
    return Problem(422, f"this model reads {what}", where="model", fix=fix)


def _validation_problem(request: Any, error: RequestValidationError) -> Response:
    request_class_ = request.app.state.server.requests.get(request.url.path, ExplainRequest)
    return validation_problem(error.errors(), list(request_class_.model_fields)).response()


def _add_route(app: FastAPI, server: Server, route: Route) -> None:
    async def answer(request: Any) -> Response:
        return JSONResponse(await server.predict(route, request))

    answer.__annotations__["request"] = server.requests[route.path]  # FastAPI reads the annotation
    app.add_api_route(
        route.path,
        answer,
        methods=["POST"],
        name=route.path.rpartition("/")[2],
        response_model=route.response,
        responses=ERROR_RESPONSES,
        summary=route.summary,
    )


def _add_routes(app: FastAPI, server: Server) -> None:
    for route in ROUTES.values():
        _add_route(app, server, route)

    async def explain(request: Any) -> Response:
        sent = request.to_inputs()
        served = server.choose_to_explain(request, sent)
        x = served.inputs.pair(*sent.inputs[0]) if sent.pairs else sent.inputs[0]
        options = {k: v for k in ("layer", "head") if (v := getattr(request, k)) is not None}
        call = partial(served.explain, x, request.method, request.target, options, request.word)
        return JSONResponse(await server.explain(call, fix="Use a faster method"))

    explain.__annotations__["request"] = server.requests[EXPLAIN]
    about = "Explanation of a prediction"
    app.post(EXPLAIN, response_model=ExplainResponse, responses=ERROR_RESPONSES, summary=about)(explain)

    @app.get(
        "/v1/models",
        response_model=models_response(server.kinds),
        responses={401: ERROR_RESPONSES[401], 400: ERROR_RESPONSES[400]},
    )
    async def models() -> Response:
        """The models of this server."""
        broken = [{"name": name, "error": error} for name, error in server.broken.items()]
        return JSONResponse({"models": server.about, "broken": broken})

    @app.head("/health", include_in_schema=False)
    @app.get("/health", response_model=StateResponse, responses={400: ERROR_RESPONSES[400]})
    async def health() -> Response:
        """Whether the process is alive."""
        return JSONResponse({"state": "alive"})

    @app.head("/ready", include_in_schema=False)
    @app.get(
        "/ready",
        response_model=StateResponse,
        responses={400: ERROR_RESPONSES[400], 503: ERROR_RESPONSES[503]},
    )
    async def ready() -> Response:
        """Whether the server accepts requests."""
        if not server.ready:
            raise Problem(503, "not ready", retry_after=1)
        return JSONResponse({"state": "ready"})

    @app.get(
        "/metrics", response_class=Response, responses={400: ERROR_RESPONSES[400], 401: ERROR_RESPONSES[401]}
    )
    async def metrics() -> Response:
        """Metrics for Prometheus."""
        return Response(server.metrics.text(), media_type=server.metrics.content_type)


def _add_page(app: FastAPI) -> None:
    folder = files("glassformer.serve") / "static"
    contents = {path: (folder.joinpath(name).read_bytes(), kind) for path, (name, kind) in STATIC.items()}
    for path, name in STYLE_SHEETS.items():
        contents[path] = asset(name).encode(), "text/css; charset=utf-8"

    async def static(request: Request) -> Response:
        content, kind = contents[request.scope["path"]]
        return Response(content, media_type=kind)

    for path in contents:
        app.add_api_route(path, static, methods=["GET", "HEAD"], include_in_schema=False)


async def _http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    # the body cannot be parsed: not UTF-8, compressed, or nested too deeply
    is_unparsable = error.status_code == 400
    what, where, fix = str(error.detail), request.url.path, None
    if is_unparsable:
        where, fix = "body", JSON
    if error.status_code == 404:
        paths = [str(path) for route in request.app.routes if (path := getattr(route, "path", None))]
        close = [path for path in paths if path == f"/v1{where}"] or get_close_matches(
            where[:200], paths, n=1
        )
        what = "no such path"
        fix = (f"Did you mean {close[0]}? " if close else "") + "GET /openapi.json lists all paths"
    if error.status_code == 405 and (allowed := (error.headers or {}).get("Allow")):
        fix = f"Use {allowed}"
    response = Problem(
        error.status_code, what, where=where, fix=fix, code="no-such-path" if what == "no such path" else None
    ).response()
    response.headers.update(error.headers or {})
    return response


async def _server_failed(request: Request, error: Exception) -> Response:
    text = printable("".join(traceback.format_exception(error)), allowed="\n")
    log.error("%s %s failed\n%s", request.method, json_text(request.url.path, ascii=True), text)
    return Problem(500, "the server failed; its log has the details").response()
