"""The routes of embedders: vectors of texts, how alike two texts are, and what that is made of."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response

from glassformer.serve.embedders import ServedEmbedder
from glassformer.serve.problems import Problem
from glassformer.serve.schema import EmbedRequest, EmbedResponse, SimilarRequest, SimilarResponse

EMBED, SIMILAR = "/v1/embed", "/v1/similar"
ROUTES = {EMBED: EmbedRequest, SIMILAR: SimilarRequest}


def add_similarity(app: FastAPI, server: Any, wrong: dict[int | str, dict[str, Any]]) -> None:
    """Add both routes; ``wrong``: what answers that are none look like."""

    @app.post(EMBED, response_model=EmbedResponse, responses=wrong, summary="Vectors of texts")
    async def embed(request: EmbedRequest) -> Response:
        served: ServedEmbedder = server.choose(request.model, "text", "vectors")
        items, vectors = await server.batchers[served.name].submit(request.texts, "texts")
        served.check_finite(vectors)
        cut = [item.truncated for item in items]
        return JSONResponse({"model": served.name, "vectors": vectors.tolist(), "truncated": cut})

    @app.post(SIMILAR, response_model=SimilarResponse, responses=wrong, summary="How alike two texts are")
    async def similar(request: SimilarRequest) -> Response:
        served: ServedEmbedder = server.choose(request.model, "text", "vectors")
        if request.explain and len(request.pairs) > 1:
            raise Problem(422, "one pair is explained at a time", where="explain", fix="Send one pair")
        texts = [text for pair in request.pairs for text in pair]
        items, vectors = await server.batchers[served.name].submit(texts, "pairs")
        served.check_finite(vectors)
        cosines = (vectors[::2] * vectors[1::2]).sum(1).tolist()
        cut = [a.truncated or b.truncated for a, b in zip(items[::2], items[1::2], strict=True)]
        found = await _explained(server, served, request.pairs[0]) if request.explain else None
        answer = {"model": served.name, "cosines": cosines, "truncated": cut, "explanation": found}
        return JSONResponse(answer)


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
