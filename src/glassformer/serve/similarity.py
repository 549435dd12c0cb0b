"""The routes of embedders: vectors of texts, how alike two texts are and why, and the nearest of a list."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response

from glassformer.serve.embedders import ServedEmbedder
from glassformer.serve.problems import Problem
from glassformer.serve.schema import (
    EmbedRequest,
    EmbedResponse,
    OneOrMany,
    SearchRequest,
    SearchResponse,
    SimilarRequest,
    SimilarResponse,
)

EMBED, SIMILAR, SEARCH = "/v1/embed", "/v1/similar", "/v1/search"
ROUTES = {EMBED: EmbedRequest, SIMILAR: SimilarRequest, SEARCH: SearchRequest}


def _in_its_pair(where: str | None) -> str | None:
    """A place among the texts of all pairs as the request has it: ``pairs[3]`` is ``pairs[1][1]``."""
    found = re.fullmatch(r"pairs\[(\d+)\]", where or "")
    return where if found is None else "pairs[{}][{}]".format(*divmod(int(found[1]), 2))


def _texts_of(request: OneOrMany) -> list[str]:
    texts = request.given("text")
    if texts is None:
        raise Problem(422, "texts are missing", where="texts", fix='Send {"texts": ["..."]}')
    return texts


def add_similarity(app: FastAPI, server: Any, wrong: dict[int | str, dict[str, Any]]) -> None:
    """Add these routes; ``wrong``: what answers that are none look like."""

    @app.post(EMBED, response_model=EmbedResponse, responses=wrong, summary="Vectors of texts")
    async def embed(request: EmbedRequest) -> Response:
        served: ServedEmbedder = server.choose(request.model, "text", "vectors")
        items, vectors = await server.batchers[served.name].submit(_texts_of(request), "texts")
        cut = [item.truncated for item in items]
        return JSONResponse({"model": served.name, "vectors": vectors.tolist(), "truncated": cut})

    @app.post(SIMILAR, response_model=SimilarResponse, responses=wrong, summary="How alike two texts are")
    async def similar(request: SimilarRequest) -> Response:
        served: ServedEmbedder = server.choose(request.model, "text", "vectors")
        if request.explain and len(request.pairs) > 1:
            raise Problem(422, "one pair is explained at a time", where="explain", fix="Send one pair")
        texts = [text for pair in request.pairs for text in pair]
        try:
            items, vectors = await server.batchers[served.name].submit(texts, "pairs")
        except Problem as problem:
            problem.where = _in_its_pair(problem.where)
            raise
        cosines = (vectors[::2] * vectors[1::2]).sum(1).tolist()
        cut = [a.truncated or b.truncated for a, b in zip(items[::2], items[1::2], strict=True)]
        found = await _explained(server, served, request.pairs[0]) if request.explain else None
        answer = {"model": served.name, "cosines": cosines, "truncated": cut, "explanation": found}
        return JSONResponse(answer)

    @app.post(SEARCH, response_model=SearchResponse, responses=wrong, summary="The nearest texts of a list")
    async def search(request: SearchRequest) -> Response:
        served = _searching(server, request.model)
        items, vectors = await server.batchers[served.name].submit(_texts_of(request), "texts")
        loop = asyncio.get_running_loop()  # a long list takes a while: in the thread that computes
        asked = (vectors, request.count, request.least)
        try:
            async with asyncio.timeout(server.limits.seconds):
                answers = await loop.run_in_executor(server.computing, served.look_up, *asked)
        except TimeoutError:
            what = f"not searched within {server.limits.seconds:g} s"
            raise Problem(503, what, fix="Try again in a moment", again=2) from None
        cut = [item.truncated for item in items]
        return JSONResponse({"model": served.name, "answers": answers, "truncated": cut})


def _searching(server: Any, name: str | None) -> ServedEmbedder:
    """The model of that name, or the first with a list.

    Raises:
        Problem: there is none.
    """
    able = (s for s in server.models.values() if getattr(s, "searched", None) is not None)
    if name is None and (first := next(able, None)) is not None:
        return first
    served: ServedEmbedder = server.choose(name, "text", "vectors")
    if served.searched is None:
        what, fix = "this model has no list to search in", "Start the server with --search TABLE or INDEX"
        raise Problem(422, what, where="model", fix=fix)
    return served


async def _explained(server: Any, served: ServedEmbedder, pair: list[str]) -> dict[str, Any]:
    """In the thread of explanations: it must hold up no other answer."""
    if server.explanations >= server.limits.explain_queue:
        server.metrics.refused.labels("explain").inc()
        raise Problem(429, "too many explanations at once", fix="Try again in a moment", again=1)
    server.explanations += 1
    begun = server.explaining.submit(served.explain_pair, *pair)
    work = asyncio.wrap_future(begun)
    work.add_done_callback(server.explained)
    try:
        async with asyncio.timeout(server.limits.seconds):
            return await asyncio.shield(work)
    except TimeoutError:
        begun.cancel()
        what = f"no explanation within {server.limits.seconds:g} s"
        raise Problem(503, what, fix="Explain a shorter text", again=2) from None
