"""The routes of answerers, taggers and embedders; those of classifiers are in ``app.py``."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response

from glassformer.serve.answerers import ServedAnswerer
from glassformer.serve.embedders import ServedEmbedder
from glassformer.serve.problems import Problem
from glassformer.serve.schema import (
    AnswerRequest,
    AnswerResponse,
    EmbedRequest,
    EmbedResponse,
    OneOrMany,
    SearchRequest,
    SearchResponse,
    SimilarRequest,
    SimilarResponse,
    TagRequest,
    TagResponse,
)
from glassformer.serve.taggers import ServedTagger

ANSWER, TAG = "/v1/answer", "/v1/tag"
EMBED, SIMILAR, SEARCH = "/v1/embed", "/v1/similar", "/v1/search"
ROUTES = {
    EMBED: EmbedRequest,
    SIMILAR: SimilarRequest,
    SEARCH: SearchRequest,
    TAG: TagRequest,
    ANSWER: AnswerRequest,
}


def add_routes(app: FastAPI, server: Any, wrong: dict[int | str, dict[str, Any]]) -> None:
    """Add all of them; ``wrong``: what answers that are none look like."""
    _add_similarity(app, server, wrong)
    _add_tagging(app, server, wrong)
    _add_answering(app, server, wrong)


# --- the route of answerers -----------------------------------------------------------------------
#
# Answers to questions, as spans of the texts that are sent with them.


def _add_answering(app: FastAPI, server: Any, wrong: dict[int | str, dict[str, Any]]) -> None:
    @app.post(ANSWER, response_model=AnswerResponse, responses=wrong, summary="Answers from a text")
    async def answer(request: AnswerRequest) -> Response:
        one = request.question is not None or request.context is not None
        if one == (request.questions is not None):
            what = "question with context, or questions, one of them"
            raise Problem(422, what, where="body", fix="Send question and context")
        if one and (request.question is None or request.context is None):
            missing = "question" if request.question is None else "context"
            raise Problem(422, f"no {missing}", where=missing, fix="Send question and context")
        served: ServedAnswerer = server.choose(request.model, "text", "answers", pairs=True)
        inputs = request.questions or [[request.question, request.context]]
        try:
            items, found = await server.batchers[served.name].submit(inputs, "questions")
        except Problem as problem:
            if one and problem.where == "questions[0]":
                problem.where = "context"  # one question has no number
            raise
        answers = served.answered(items, found, request.n_best)
        return JSONResponse({"model": served.name, "answers": answers})


# --- the route of taggers -------------------------------------------------------------------------
#
# The tags of words, and the spans that they mark.


FORMS = ("text", "words", "texts", "sentences")


def _add_tagging(app: FastAPI, server: Any, wrong: dict[int | str, dict[str, Any]]) -> None:
    @app.post(TAG, response_model=TagResponse, responses=wrong, summary="Tags of words, and spans")
    async def tag(request: TagRequest) -> Response:
        given = [form for form in FORMS if getattr(request, form) is not None]
        if len(given) != 1:
            raise Problem(422, "text, words, texts or sentences, one of them", where="body")
        (form,), inputs = given, getattr(request, given[0])
        served: ServedTagger = server.choose(request.model, "text", "tags")
        inputs = [inputs] if form in ("text", "words") else inputs
        try:
            items, found = await server.batchers[served.name].submit(inputs, form)
        except Problem as problem:
            if form in ("text", "words") and problem.where == f"{form}[0]":
                problem.where = form  # one sentence has no number
            raise
        return JSONResponse({"model": served.name, "sentences": served.sentences(items, found)})


# --- the routes of embedders ----------------------------------------------------------------------
#
# Vectors of texts, how alike two texts are and why, and the nearest of a list.


def _in_its_pair(where: str | None) -> str | None:
    """A place among the texts of all pairs as the request has it: ``pairs[3]`` is ``pairs[1][1]``."""
    found = re.fullmatch(r"pairs\[(\d+)\]", where or "")
    return where if found is None else "pairs[{}][{}]".format(*divmod(int(found[1]), 2))


def _texts_of(request: OneOrMany) -> list[str]:
    texts = request.given("text")
    if texts is None:
        raise Problem(422, "texts are missing", where="texts", fix='Send {"texts": ["..."]}')
    return texts


def _add_similarity(app: FastAPI, server: Any, wrong: dict[int | str, dict[str, Any]]) -> None:
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
