"""The server's ASGI application."""

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
from glassformer.outputs import make_printable
from glassformer.runtime import set_threads
from glassformer.serve import schema
from glassformer.serve.batcher import Batcher, ImageDecoder, TextEncoder
from glassformer.serve.guard import PREDICT, Guard, JsonRoute
from glassformer.serve.kinds import KINDS, ROUTES, Route, route_paths
from glassformer.serve.limits import Limits
from glassformer.serve.metrics import MemoryBudget, Metrics
from glassformer.serve.models import ServedModel
from glassformer.serve.problems import JSON, Problem, model_problem, validation_problem

log = logging.getLogger("glassformer.serve")

STATIC = {  # path of the URL -> file in ``static/`` and its type; served from memory
    "/": ("index.html", "text/html; charset=utf-8"),
    "/static/page.css": ("page.css", "text/css; charset=utf-8"),
    "/static/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/static/pad.js": ("pad.js", "text/javascript; charset=utf-8"),
    "/static/draw.js": ("draw.js", "text/javascript; charset=utf-8"),
    "/static/icon.svg": ("icon.svg", "image/svg+xml"),
}
STYLE_SHEETS = {"/static/base.css": "page.css", "/static/spans.css": "spans.css"}
EXPLAIN = "/v1/explain"
REASONS = {
    400: "Not JSON, or not served under this host name",
    401: "No key, or a wrong one",
    404: "No such model",
    408: "The body was sent too slowly",
    413: "Too large, too many or too long",
    422: "Not as described here, or an unusable input",
    431: "Too large or too many headers",
    429: "The queue is full: try again after Retry-After",
    503: "Timeout, or the server is stopping",
}
ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    code: {"model": schema.ErrorResponse, "description": what} for code, what in REASONS.items()
}


def _lower_priority(threads: int) -> None:
    """Initialize a computing thread, with a lower priority than the thread of the event loop."""
    set_threads(threads)
    with suppress(OSError, AttributeError):  # only Linux has priorities of single threads
        if sys.platform == "linux":
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + 5)


class Server:
    """The state that all routes share. It is created before the event loop; ``lifespan`` starts its tasks."""

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
        self.parsing = ThreadPoolExecutor(1, "parse")  # parses one large body at a time
        # Texts and images have separate threads, because decoding an image may take seconds.
        self.text_encoder, self.image_decoder = TextEncoder(), ImageDecoder(limits.decode_seconds)
        self.input_kinds = [type(served.inputs) for served, _ in models]
        kinds, routes = self.input_kinds, ROUTES.items()
        self.requests = {path: schema.extend_request(route.request, kinds) for path, route in routes}
        self.requests[EXPLAIN] = schema.extend_request(schema.ExplainRequest, self.input_kinds)
        threads = (next(iter(self.models.values())).clf.threads,)  # torch has this setting per thread
        self.computing = ThreadPoolExecutor(1, "compute", _lower_priority, threads)
        self.explaining = ThreadPoolExecutor(1, "explain", _lower_priority, threads)
        self.num_explanations = 0  # number of waiting and running explanations
        self.batchers: dict[str, Batcher] = {}
        self.descriptions: list[dict[str, Any]] = []  # of the models

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        await checkpoint()  # imports modules that the first request would otherwise wait for
        for name, served in self.models.items():
            encoder = self.image_decoder if served.inputs.decodes_inputs else self.text_encoder
            self.batchers[name] = Batcher(served, encoder, self.computing, self.metrics)
            await loop.run_in_executor(self.computing, served.warm_up)
            self.descriptions.append(served.describe(self.calibrated[name]))
        tasks = [asyncio.create_task(batcher.run()) for batcher in self.batchers.values()]
        self.ready = True
        try:
            yield
        finally:
            self.ready = False
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.image_decoder.shutdown()
            for executor in (self.parsing, self.text_encoder.threads, self.computing, self.explaining):
                executor.shutdown(wait=False, cancel_futures=True)

    def is_full(self, size: int) -> bool:
        """Whether the queues of all models are too full for a body of ``size`` bytes."""
        return bool(self.batchers) and all(batcher.is_full(size) for batcher in self.batchers.values())

    def select_model(
        self,
        name: str | None,
        input_kind: type[ServedInputs],
        output_kind: str = "labels",
        pairs: bool = False,
        find_missing: Callable[[Any], Problem | None] = lambda output: None,
    ) -> ServedModel:
        """The model called ``name``; None: the first model with this kind of input and output.

        Args:
            pairs: whether the model must read pairs of texts.
            find_missing: ``Output`` -> an error if the server must be restarted with another option before
                this model can respond; other models are preferred.

        Raises:
            Problem: 404 no such model, 422 the model reads something else.
        """
        if name is None:
            candidates = self._models_with(input_kind, output_kind)
            suitable = sorted(
                (s for s in candidates if s.pairs == pairs), key=lambda s: find_missing(s.output) is not None
            )
            if suitable:
                return suitable[0]
            if estimator_name := KINDS[output_kind].estimator_name:
                fix = f"Start the server with a run of {estimator_name}"
                fix += ", or a checkpoint such as all-minilm-l6-v2" if output_kind == "vectors" else ""
                raise Problem(422, f"no model here gives {output_kind}", where="model", fix=fix)
            alternatives = [
                f"POST {route_paths(s.output_kind)[0]} for {s.name}"
                for s in self.models.values()
                if s.kind == input_kind.kind and s.output.estimator_name
            ]
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
            fix = f"Send {noun}"
            if others := self._models_with(input_kind, output_kind):
                fix += f", or name a model of {input_kind.noun}: {', '.join(s.name for s in others)}"
            raise Problem(422, f"this model reads {noun}", where="model", fix=fix)
        if served.output_kind != output_kind:
            *paths, last = route_paths(served.output_kind)
            use = f"{', '.join(paths)} or {last}" if paths else last
            raise Problem(422, f"this model gives {served.output_kind}", where="model", fix=f"Use {use}")
        if served.pairs != pairs:
            raise _wrong_pairing(served)
        return served

    def _models_with(self, input_kind: type[ServedInputs], output_kind: str) -> list[ServedModel]:
        kinds = input_kind.kind, output_kind
        return [s for s in self.models.values() if (s.kind, s.output_kind) == kinds]

    def select_to_explain(self, request: schema.ExplainRequest, sent: schema.RequestInputs) -> ServedModel:
        """The model that the request names, or the first one that can explain such an input.

        Raises:
            Problem: as ``select_model``; or a word is given, but the model predicts for whole texts.
        """
        requested, has_word = self.models.get(request.model or ""), request.word is not None
        explainable = [
            kind.output_kind
            for kind in KINDS.values()
            if kind.can_explain and (kind.is_per_word or not has_word)
        ]
        if requested is not None:
            if has_word and not requested.output.is_per_word:
                what = f"this model predicts {requested.output_kind} of a whole text, not of words"
                raise Problem(422, what, where="word", fix="Leave it out")
            possible = [requested.output_kind] if requested.output.can_explain else []
        else:
            kind = sent.input_kind.kind, sent.pairs
            available = {s.output_kind for s in self.models.values() if (s.kind, s.pairs) == kind}
            possible = [output_kind for output_kind in explainable if output_kind in available]
        output_kind = (possible or explainable)[0]
        return self.select_model(request.model, sent.input_kind, output_kind, sent.pairs)

    async def predict(self, route: Route, request: Any) -> dict[str, Any]:
        """The response to a request on ``route``."""
        sent = request.to_inputs()
        served = self.select_model(
            request.model, sent.input_kind, route.output_kind, sent.pairs, route.find_missing
        )
        if (problem := route.find_missing(served.output)) is not None:
            raise problem
        try:
            items, rows = await self.batchers[served.name].submit(sent.inputs, sent.field_name)
        except Problem as problem:
            problem.where = sent.fields.get(problem.where or "", problem.where)
            raise
        if route.respond is None:
            return {"model": served.name, **served.response(items, rows, request)}
        return {"model": served.name, **await route.respond(self, served, request, items, rows)}

    async def explain(self, call: Callable[..., Any], *arguments: Any, fix: str) -> Any:
        """Run ``call`` in a separate thread, because an explanation may take seconds; returns its result.

        Args:
            fix: the fix in the error message after a timeout.

        Raises:
            Problem: 429 if too many explanations wait, 503 if it takes too long.
        """
        if self.num_explanations >= self.limits.explain_queue:
            self.metrics.refused.labels("explain").inc()
            raise Problem(429, "too many explanations at once", fix="Try again in a moment", retry_after=1)
        self.num_explanations += 1
        future = self.explaining.submit(call, *arguments)
        task = asyncio.wrap_future(future)
        task.add_done_callback(self._explanation_ended)
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await asyncio.shield(task)
        except asyncio.CancelledError:  # the client has disconnected
            future.cancel()  # a running call cannot be canceled, and counts until it ends
            raise
        except TimeoutError:
            future.cancel()
            what = f"no explanation within {self.limits.seconds:g} s"
            raise Problem(503, what, fix=fix, retry_after=2) from None

    def _explanation_ended(self, task: Any) -> None:
        self.num_explanations -= 1
        if not task.cancelled():
            task.exception()  # otherwise asyncio logs it as never retrieved


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
        budget: the memory budget, shared with ``bounded_protocol``; None: a new one.
        broken: name -> error, for models that could not be loaded.
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
    options: dict[str, Any] = {"limits": limits, "routes": routes, "key": key, "hosts": hosts}
    options |= {"metrics": server.metrics, "is_full": server.is_full, "budget": server.budget}
    app.add_middleware(Guard, **options)
    return app


def _wrong_pairing(served: Any) -> Problem:
    """The error for single texts sent to a model for pairs, or pairs sent to a model for single texts."""
    what, fix = "one text", 'Send "text" or "texts"'
    if served.pairs:
        what = "pairs of texts"
        fix = f'Send "pairs": [["FIRST", "SECOND"]] to {PREDICT}, "text" and "text_pair" to /v1/explain'
    return Problem(422, f"this model reads {what}", where="model", fix=fix)


def _validation_problem(request: Any, error: RequestValidationError) -> Response:
    request_class_ = request.app.state.server.requests.get(request.url.path, schema.ExplainRequest)
    return validation_problem(error.errors(), list(request_class_.model_fields)).response()


def _add_route(app: FastAPI, server: Server, route: Route) -> None:
    async def respond(request: Any) -> Response:
        return JSONResponse(await server.predict(route, request))

    respond.__annotations__["request"] = server.requests[route.path]  # FastAPI reads the annotation
    options: dict[str, Any] = {"response_model": route.response, "responses": ERROR_RESPONSES}
    options |= {"name": route.path.rpartition("/")[2], "summary": route.summary}
    app.add_api_route(route.path, respond, methods=["POST"], **options)


def _responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: ERROR_RESPONSES[status] for status in statuses}


def _add_routes(app: FastAPI, server: Server) -> None:
    for route in ROUTES.values():
        _add_route(app, server, route)

    async def explain(request: Any) -> Response:
        sent = request.to_inputs()
        served = server.select_to_explain(request, sent)
        x = served.inputs.pair(*sent.inputs[0]) if sent.pairs else sent.inputs[0]
        options = {k: v for k in ("layer", "head") if (v := getattr(request, k)) is not None}
        call = partial(served.explain, x, request.method, request.target, options, request.word)
        return JSONResponse(await server.explain(call, fix="Use a faster method"))

    explain.__annotations__["request"] = server.requests[EXPLAIN]
    summary = "Explanation of a prediction"
    app.post(EXPLAIN, response_model=schema.ExplainResponse, responses=ERROR_RESPONSES, summary=summary)(
        explain
    )

    models_response = schema.models_response(server.input_kinds)

    @app.get("/v1/models", response_model=models_response, responses=_responses(401, 400))
    async def models() -> Response:
        """The models of this server."""
        broken = [{"name": name, "error": error} for name, error in server.broken.items()]
        return JSONResponse({"models": server.descriptions, "broken": broken})

    @app.head("/health", include_in_schema=False)
    @app.get("/health", response_model=schema.StateResponse, responses=_responses(400))
    async def health() -> Response:
        """Whether the process is alive."""
        return JSONResponse({"state": "alive"})

    @app.head("/ready", include_in_schema=False)
    @app.get("/ready", response_model=schema.StateResponse, responses=_responses(400, 503))
    async def ready() -> Response:
        """Whether the server accepts requests."""
        if not server.ready:
            raise Problem(503, "not ready", retry_after=1)
        return JSONResponse({"state": "ready"})

    @app.get("/metrics", response_class=Response, responses=_responses(400, 401))
    async def metrics() -> Response:
        """Metrics for Prometheus."""
        return Response(server.metrics.text(), media_type=server.metrics.content_type)


def _add_page(app: FastAPI) -> None:
    folder = files("glassformer.serve") / "static"
    contents = {path: (folder.joinpath(name).read_bytes(), mime) for path, (name, mime) in STATIC.items()}
    for path, name in STYLE_SHEETS.items():
        contents[path] = asset(name).encode(), "text/css; charset=utf-8"

    async def static(request: Request) -> Response:
        content, mime_type = contents[request.scope["path"]]
        return Response(content, media_type=mime_type)

    for path in contents:
        app.add_api_route(path, static, methods=["GET", "HEAD"], include_in_schema=False)


async def _http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    what, where, fix, code = str(error.detail), request.url.path, None, None
    if error.status_code == 400:  # the body cannot be parsed: not UTF-8, compressed, or nested too deeply
        where, fix = "body", JSON
    if error.status_code == 404:
        paths = [str(path) for route in request.app.routes if (path := getattr(route, "path", None))]
        close = [path for path in paths if path == f"/v1{where}"]
        close = close or get_close_matches(where[:200], paths, n=1)
        what, code = "no such path", "no-such-path"
        fix = (f"Did you mean {close[0]}? " if close else "") + "GET /openapi.json lists all paths"
    if error.status_code == 405 and (allowed := (error.headers or {}).get("Allow")):
        fix = f"Use {allowed}"
    response = Problem(error.status_code, what, where=where, fix=fix, code=code).response()
    response.headers.update(error.headers or {})
    return response


async def _server_failed(request: Request, error: Exception) -> Response:
    text = make_printable("".join(traceback.format_exception(error)), allowed="\n")
    log.error("%s %s failed\n%s", request.method, json_text(request.url.path, ascii=True), text)
    return Problem(500, "the server failed; its log has the details").response()
