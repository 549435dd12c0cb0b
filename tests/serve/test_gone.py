"""A client that goes away ends its request: the guard stops what computes for it, and gives back what it held."""

import asyncio

import pytest

from .test_guard import PREDICT, ask, made


async def test_a_client_that_goes_ends_its_request():
    guard, behind = made()
    behind.going.clear()
    cancelled = []

    async def app(scope, receive, send):
        try:
            await behind(scope, receive, send)
        except asyncio.CancelledError:
            cancelled.append(scope["path"])
            raise

    guard.app = app
    leave = asyncio.Event()
    messages = [{"type": "http.request", "body": b"{}", "more_body": False}]

    async def receive():
        if messages:
            return messages.pop()
        await leave.wait()
        return {"type": "http.disconnect"}

    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "path": PREDICT, "method": "POST", "headers": []}
    asked = asyncio.ensure_future(guard(scope, receive, send))
    await behind.entered.wait()
    await asyncio.sleep(0.01)
    assert not asked.done()
    leave.set()
    await asyncio.wait_for(asked, 5)
    assert (cancelled, sent) == ([PREDICT], [])
    assert guard.budget.used == 0
    counted = guard.metrics.text().decode()
    assert 'route="/v1/predict",status="499"} 1.0' in counted


async def test_an_application_that_waits_for_the_client_hears_of_it_and_of_nothing_else():
    guard, _ = made()
    heard = []

    async def app(scope, receive, send):
        heard.append((await receive())["type"])
        waiting = asyncio.ensure_future(receive())
        await asyncio.sleep(0.01)
        heard.append(waiting.done())
        waiting.cancel()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    guard.app = app
    assert (await ask(guard, b"{}")).status == 200
    assert heard == ["http.request", False]


async def test_a_failure_behind_the_guard_and_its_own_end_go_through():
    guard, behind = made()
    behind.error = RuntimeError("on purpose")
    with pytest.raises(RuntimeError, match="on purpose"):
        await ask(guard, b"{}")
    guard, behind = made()
    behind.going.clear()
    asked = asyncio.ensure_future(ask(guard, b"{}"))
    await behind.entered.wait()
    asked.cancel()  # the server stops
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert guard.budget.used == 0
