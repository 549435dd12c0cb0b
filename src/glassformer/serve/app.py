"""The application: routes, one batcher a model, and the state that a probe asks for."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from importlib.resources import files
from typing import Any

from anyio.lowlevel import checkpoint
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from glassformer import __version__
from glassformer.data.text_pairs import TextPair
from glassformer.errors import NotFiniteError
from glassformer.explain.render import asset
from glassformer.finite import json_text
from glassformer.outputs import printable
from glassformer.runtime import set_threads
from glassformer.serve.batcher import Batcher
from glassformer.serve.decoding import Decoding
from glassformer.serve.guard import PREDICT, Guard, JsonRoute
from glassformer.serve.limits import Held, Limits
from glassformer.serve.metrics import Metrics
from glassformer.serve.models import Served
from glassformer.serve.problems import JSON, Problem, of_model, of_validation
from glassformer.serve.routes import ROUTES, add_routes
from glassformer.serve.schema import (
    ErrorResponse,
    ExplainRequest,
    ExplainResponse,
    ModelsResponse,
    PredictRequest,
    PredictResponse,
    StateResponse,
)
from glassformer.serve.taggers import ServedTagger

log = logging.getLogger("glassformer.serve")

STATIC = {  # served from memory; a path from a client only ever looks a name up here
    "/": ("index.html", "text/html; charset=utf-8"),
    "/static/page.css": ("page.css", "text/css; charset=utf-8"),
    "/static/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/static/pad.js": ("pad.js", "text/javascript; charset=utf-8"),
    "/static/draw.js": ("draw.js", "text/javascript; charset=utf-8"),
    "/static/icon.svg": ("icon.svg", "image/svg+xml"),
}
# The style sheet of all pages, and that of spans.
SHEETS = {"/static/base.css": "page.css", "/static/spans.css": "spans.css"}
USES = {
    "labels": "/v1/predict",
    "vectors": "/v1/embed, /v1/similar or /v1/search",
    "tags": "/v1/tag",
    "answers": "/v1/answer",
}
MADE_BY = {"vectors": "an Embedder", "tags": "a TokenTagger", "answers": "a TextAnswerer"}
ASKED_AT = {"vectors": "/v1/embed", "tags": "/v1/tag", "answers": "/v1/answer"}
ONE = "GET /openapi.json says what fits; send one of them"
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
WRONG: dict[int | str, dict[str, Any]] = {
    code: {"model": ErrorResponse, "description": what} for code, what in REASONS.items()
}


def _stand_back(threads: int) -> None:
    """In a thread that computes: leave the processor first to the one that answers, refusals above all."""
    set_threads(threads)
    with suppress(OSError, AttributeError):  # Linux counts the niceness of threads, others that of processes
        if sys.platform == "linux":
            own = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, own, os.getpriority(os.PRIO_PROCESS, own) + 5)


class Server:
    """What the routes share. Made before the event loop runs, started by it."""

    def __init__(
        self,
        models: Sequence[tuple[Served, bool]],
        limits: Limits,
        held: Held | None = None,
        broken: Mapping[str, str] | None = None,
    ):
        self.broken = dict(broken or {})
        self.models = {served.name: served for served, _ in models}
        self.calibrated = {served.name: calibrated for served, calibrated in models}
        self.limits, self.metrics = limits, Metrics()
        self.held = held or Held(limits.all_bytes)
        self.held.metrics = self.metrics
        self.ready = False
        self.parsing = ThreadPoolExecutor(1, "parse")  # one large body at a time
        # Pictures take seconds to decode, texts milliseconds: neither waits for the other's threads.
        self.preparing: dict[str, Executor | Decoding] = {
            "text": ThreadPoolExecutor(2, "prepare-text"),
            "image": Decoding(limits.decode_seconds),
        }
        threads = (next(iter(self.models.values())).clf.threads,)  # torch counts them for each thread anew
        self.computing = ThreadPoolExecutor(1, "compute", _stand_back, threads)
        self.explaining = ThreadPoolExecutor(1, "explain", _stand_back, threads)
        self.explanations = 0
        self.batchers: dict[str, Batcher] = {}
        self.about: list[dict[str, Any]] = []

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        await checkpoint()  # imports what the first body would otherwise wait for
        for name, served in self.models.items():
            self.batchers[name] = Batcher(served, self.preparing[served.kind], self.computing, self.metrics)
            await loop.run_in_executor(self.computing, served.warm_up)
            self.about.append(served.about(self.calibrated[name]) | served.opening())
        tasks = [asyncio.create_task(batcher.work()) for batcher in self.batchers.values()]
        self.ready = True
        try:
            yield
        finally:
            self.ready = False
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for executor in (self.parsing, *self.preparing.values(), self.computing, self.explaining):
                executor.shutdown(wait=False, cancel_futures=True)

    def full(self, size: int) -> bool:
        """Whether no model has a place for a body of ``size`` bytes."""
        return bool(self.batchers) and all(batcher.full(size) for batcher in self.batchers.values())

    def choose(self, name: str | None, kind: str, gives: str = "labels", pairs: bool = False) -> Any:
        """The model of that name, or the first of that kind that gives labels (or vectors) and reads pairs of
        texts or single ones.

        Raises:
            Problem: 404 no such model, 422 one that reads something else.
        """
        if name is None:
            able = (
                s
                for s in self.models.values()
                if (s.kind, s.gives) == (kind, gives) and getattr(s, "pairs", False) == pairs
            )
            found = next(able, None)
            if found is None and gives in MADE_BY:
                raise Problem(422, f"no model here gives {gives}", fix=f"Serve a run of {MADE_BY[gives]}")
            if found is None:
                what = "pairs of texts" if pairs else "texts" if kind == "text" else "pictures"
                others = [s for s in self.models.values() if s.kind == kind and s.gives in ASKED_AT]
                ways = [f"POST {ASKED_AT[s.gives]} for {s.name}" for s in others]
                near = [s for s in self.models.values() if (s.kind, s.gives) == (kind, gives)]
                if near and not ways:
                    raise _of_pairs(near[0])
                raise Problem(
                    422, f"no model here reads {what}", fix=" or ".join(ways) or "Serve one that does"
                )
            return found
        if name in self.broken:
            raise Problem(422, f"this model could not be loaded: {self.broken[name]}", where="model")
        if name not in self.models:
            raise Problem(404, "no such model", where="model", fix=f"Known: {', '.join(self.models)}")
        served = self.models[name]
        if served.kind != kind:
            other = "texts" if served.kind == "text" else "pictures"
            raise Problem(422, f"this model reads {other}", where="model", fix=f"Send {other}")
        if served.gives != gives:
            use = USES[served.gives]
            raise Problem(422, f"this model gives {served.gives}", where="model", fix=f"Use {use}")
        if getattr(served, "pairs", False) != pairs:
            raise _of_pairs(served)
        return served

    async def explain(self, served: Served, given: str, request: ExplainRequest) -> dict[str, Any]:
        """One explanation, in a thread of its own: it may take seconds and must hold up no prediction."""
        if self.explanations >= self.limits.explain_queue:
            self.metrics.refused.labels("explain").inc()
            raise Problem(429, "too many explanations at once", fix="Try again in a moment", again=1)
        options = {k: v for k in ("layer", "head") if (v := getattr(request, k)) is not None}
        self.explanations += 1
        method: str = request.method
        if "method" not in request.model_fields_set and method not in served.methods:
            method = served.methods[0]
        asked = (given, method, request.target, options)
        begun = (
            self.explaining.submit(served.explain_word, *asked, request.word)
            if isinstance(served, ServedTagger)
            else self.explaining.submit(served.explain, *asked)
        )
        work = asyncio.wrap_future(begun)
        work.add_done_callback(self.explained)
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await asyncio.shield(work)
        except asyncio.CancelledError:
            begun.cancel()  # the client has gone; what has begun keeps its place until it ends
            raise
        except TimeoutError:
            begun.cancel()  # where it has not begun; else its place in the queue stays taken until it ends
            raise Problem(
                503, f"no explanation within {self.limits.seconds:g} s", fix="Take another method", again=2
            ) from None

    def explained(self, work: Any) -> None:
        """One explanation less is waited for."""
        self.explanations -= 1
        if not work.cancelled():
            work.exception()  # looked at: a request that has gone does not ask


def create_app(
    models: Sequence[tuple[Served, bool]],
    limits: Limits,
    *,
    key: str | None = None,
    hosts: Collection[str] = (),
    held: Held | None = None,
    broken: Mapping[str, str] | None = None,
) -> FastAPI:
    """The server of these models as an ASGI application.

    Args:
        models: from ``load_models``.
        key, hosts: see ``Guard``.
        held: what the connections' heads are counted in too; see ``bounded_protocol``.
        broken: what is wrong with each model that was named but is not served.
    """
    server = Server(models, limits, held, broken)
    app = FastAPI(
        title="glassformer",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        lifespan=server.lifespan,
        description="Labels for texts and pictures, tags of words, answers from texts, and why.",
        generate_unique_id_function=lambda route: route.name,  # what generated clients call their functions
    )
    app.state.server = server
    app.router.route_class = JsonRoute
    _add_routes(app, server)
    add_routes(app, server, WRONG)
    _add_page(app)
    app.exception_handler(Problem)(lambda request, problem: problem.response())
    app.exception_handler(NotFiniteError)(lambda request, error: of_model(error).response())
    app.exception_handler(RequestValidationError)(_unfit)
    app.exception_handler(HTTPException)(_http_problem)
    app.exception_handler(Exception)(_failed)
    posted = [PREDICT, *ROUTES, "/v1/explain"]
    routes = [*STATIC, *SHEETS, *posted, "/v1/models", "/health", "/ready", "/metrics"]
    app.add_middleware(
        Guard,
        limits=limits,
        metrics=server.metrics,
        routes=routes,
        key=key,
        hosts=hosts,
        full=server.full,
        held=server.held,
    )
    return app


def _of_pairs(served: Any) -> Problem:
    """What is said to who sends single texts to a model of pairs, or pairs to one of single texts."""
    what, fix = "one text", 'Send "text" or "texts"'
    if getattr(served, "pairs", False):
        what = "pairs of texts"
        fix = f'Send "pairs": [["FIRST", "SECOND"]] to {PREDICT}, "text" and "text_pair" to /v1/explain'
    return Problem(422, f"this model reads {what}", where="model", fix=fix)


def _unfit(request: Any, error: RequestValidationError) -> Response:
    asked = {PREDICT: PredictRequest, **ROUTES}.get(request.url.path, ExplainRequest)
    return of_validation(error.errors(), list(asked.model_fields)).response()


def _add_routes(app: FastAPI, server: Server) -> None:
    @app.post(PREDICT, response_model=PredictResponse, responses=WRONG, summary="Labels")
    async def predict(request: PredictRequest) -> Response:
        asked = {"texts": request.given("text"), "images": request.given("image"), "pairs": request.pairs}
        given = [(what, inputs) for what, inputs in asked.items() if inputs is not None]
        if len(given) != 1:
            raise Problem(422, "texts, pairs or images, one of them", where="body", fix=ONE)
        ((what, inputs),) = given
        served = server.choose(request.model, "image" if what == "images" else "text", pairs=what == "pairs")
        inputs = [TextPair(*pair) for pair in inputs] if what == "pairs" else inputs
        items, shares = await server.batchers[served.name].submit(inputs, what)
        found = served.response(items, shares)
        for one in found["predictions"] if request.top is not None else ():
            likely = sorted(one["probabilities"].items(), key=lambda pair: -pair[1])
            one["probabilities"] = dict(likely[: request.top])
        return JSONResponse({"model": served.name, **found})

    @app.post(
        "/v1/explain", response_model=ExplainResponse, responses=WRONG, summary="What an answer rests on"
    )
    async def explain(request: ExplainRequest) -> Response:
        texts, images = request.given("text"), request.given("image")
        if (texts is None) == (images is None):
            raise Problem(422, "text or image, one of them", where="body", fix=ONE)
        kind = "text" if texts is not None else "image"
        if request.text_pair is not None and texts is None:
            raise Problem(422, "text_pair without text", where="body", fix="Send both texts of the pair")
        pairs, named = request.text_pair is not None, server.models.get(request.model or "")
        gives = getattr(named, "gives", "labels")
        gives = gives if gives in ("tags", "answers") else "labels"
        if request.word is not None and gives != "tags":
            if named is not None:
                what = f"this model gives {gives}, of a text and not of words"
                raise Problem(422, what, where="word", fix="Leave it out")
            gives = "tags"
        if request.model is None and gives == "labels" and kind == "text":
            fitting = {s.gives for s in server.models.values() if getattr(s, "pairs", False) == pairs}
            if "labels" not in fitting:
                gives = next((g for g in ("answers", "tags") if g in fitting), gives)
        served = server.choose(request.model, kind, gives, pairs)
        (given,) = texts or images or ()
        if request.text_pair is not None:
            given = TextPair(given, request.text_pair)
        return JSONResponse(await server.explain(served, given, request))

    @app.get("/v1/models", response_model=ModelsResponse, responses={401: WRONG[401], 400: WRONG[400]})
    async def models() -> Response:
        """What is served here."""
        broken = [{"name": name, "error": error} for name, error in server.broken.items()]
        return JSONResponse({"models": server.about, "broken": broken})

    @app.head("/health", include_in_schema=False)
    @app.get("/health", response_model=StateResponse, responses={400: WRONG[400]})
    async def health() -> Response:
        """Whether the process answers at all."""
        return JSONResponse({"state": "alive"})

    @app.head("/ready", include_in_schema=False)
    @app.get("/ready", response_model=StateResponse, responses={400: WRONG[400], 503: WRONG[503]})
    async def ready() -> Response:
        """Whether it takes work."""
        if not server.ready:
            raise Problem(503, "not ready", again=1)
        return JSONResponse({"state": "ready"})

    @app.get("/metrics", response_class=Response, responses={400: WRONG[400], 401: WRONG[401]})
    async def metrics() -> Response:
        """For Prometheus."""
        return Response(server.metrics.text(), media_type=server.metrics.content_type)


def _add_page(app: FastAPI) -> None:
    folder = files("glassformer.serve") / "static"
    contents = {path: (folder.joinpath(name).read_bytes(), kind) for path, (name, kind) in STATIC.items()}
    for path, name in SHEETS.items():
        contents[path] = asset(name).encode(), "text/css; charset=utf-8"

    async def static(request: Request) -> Response:
        content, kind = contents[request.scope["path"]]
        return Response(content, media_type=kind)

    for path in contents:
        app.add_api_route(path, static, methods=["GET", "HEAD"], include_in_schema=False)


async def _http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    unread = error.status_code == 400  # a body that cannot be parsed: no UTF-8, compressed, or far too deep
    where, fix = ("body", JSON) if unread else (None, None)
    meant = f"/v1{request.url.path}"
    if error.status_code == 404 and any(
        getattr(route, "path", None) == meant for route in request.app.routes
    ):
        fix = f"Use {meant}"
    elif error.status_code == 404:
        fix = "GET /openapi.json says which paths there are"
    if error.status_code == 405 and (allowed := (error.headers or {}).get("Allow")):
        fix = f"Use {allowed}"
    response = Problem(error.status_code, str(error.detail), where=where, fix=fix).response()
    response.headers.update(error.headers or {})
    return response


async def _failed(request: Request, error: Exception) -> Response:
    told = printable("".join(traceback.format_exception(error)), keep="\n")
    log.error("%s %s failed\n%s", request.method, json_text(request.url.path, ascii=True), told)
    return Problem(500, "the server has failed; its log says how").response()
