"""The route of answerers: answers to questions, as spans of the texts that are sent with them."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response

from glassformer.serve.answerers import ServedAnswerer
from glassformer.serve.problems import Problem
from glassformer.serve.schema import AnswerRequest, AnswerResponse

ANSWER = "/v1/answer"
ROUTES = {ANSWER: AnswerRequest}


def add_answering(app: FastAPI, server: Any, wrong: dict[int | str, dict[str, Any]]) -> None:
    """Add the route; ``wrong``: what answers that are none look like."""

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
