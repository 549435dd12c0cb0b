"""The route of taggers: the tags of words, and the spans that they mark."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response

from glassformer.serve.problems import Problem
from glassformer.serve.schema import TagRequest, TagResponse
from glassformer.serve.taggers import ServedTagger

TAG = "/v1/tag"
ROUTES = {TAG: TagRequest}
FORMS = ("text", "words", "texts", "sentences")


def add_tagging(app: FastAPI, server: Any, wrong: dict[int | str, dict[str, Any]]) -> None:
    """Add the route; ``wrong``: what answers that are none look like."""

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
