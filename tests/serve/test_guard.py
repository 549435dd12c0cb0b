"""The guard alone, without sockets: what it lets through, what it holds meanwhile, and that it gives all of it back."""

import asyncio
import json
import re
from typing import Any, NamedTuple

import pytest

from glassformer.errors import ConfigError
from glassformer.serve.guard import HEADERS, RESERVATION, Guard, normalize_host, parse_host
from glassformer.serve.limits import Limits
from glassformer.serve.metrics import MemoryBudget, Metrics, Reservation
from glassformer.serve.problems import Problem

PREDICT = "/v1/predict"


class Said(NamedTuple):
    status: int
    headers: dict[bytes, bytes]
    body: Any


class Behind:
    """An application that reads the body, and remembers what was budget and what it got."""

    def __init__(self, budget: MemoryBudget):
        self.budget, self.seen = budget, []
        self.error: Exception | None = None
        self.entered, self.going = asyncio.Event(), asyncio.Event()
        self.going.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            self.seen.append(scope["type"])
            return
        first = await receive() if scope["method"] == "POST" else {"body": None}
        self.seen.append((scope["path"], first["body"], self.budget.used))
        self.entered.set()
        await self.going.wait()
        if self.error is not None:
            raise self.error
        await send({"type": "http.response.start", "status": 203, "headers": [(b"x-app", b"1")]})
        await send({"type": "http.response.body", "body": b"{}"})


def made(full=lambda size: False, key=None, hosts=(), **limits: Any) -> tuple[Guard, Behind]:
    bounds, metrics = Limits(**limits), Metrics()
    budget = MemoryBudget(bounds.all_bytes)
    budget.metrics = metrics
    behind = Behind(budget)
    return Guard(behind, bounds, metrics, [PREDICT, "/health"], key, hosts, full, budget), behind


async def ask(
    guard: Guard,
    *parts: bytes | None,
    path: str = PREDICT,
    method: str = "POST",
    headers: Any = (),
    kind: str = "http",
) -> Said:
    """One request; None among the parts: the client goes; nothing after the last but one that says more: it waits."""
    scope = {"type": kind, "path": path, "method": method, "headers": list(headers)}
    messages = [
        {"type": "http.disconnect"}
        if part is None
        else {"type": "http.request", "body": part, "more_body": i < len(parts) - 1}
        for i, part in enumerate(parts)
    ]
    sent: list[Any] = []

    async def receive() -> Any:
        if not messages:
            await asyncio.sleep(60)
        await asyncio.sleep(0)
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    await guard(scope, receive, send)
    if not sent:
        return Said(0, {}, None)
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return Said(sent[0]["status"], dict(sent[0]["headers"]), json.loads(body) if body else None)


def count(guard: Guard, name: str, **labels: str) -> float:
    return guard.metrics.registry.get_sample_value(name, labels) or 0.0


async def test_a_body_is_joined_held_and_given_back():
    guard, behind = made(all_bytes=10)
    said = await ask(guard, b"abc", b"", b"defg")
    assert (said.status, said.headers[b"x-app"]) == (203, b"1")
    assert behind.seen == [(PREDICT, b"abcdefg", 7)]
    assert guard.budget.used == 0
    for _ in range(5):  # five times seven would be more than ten
        assert (await ask(guard, b"abcdefg")).status == 203
    assert guard.budget.used == 0


async def test_all_bytes_bounds_the_bodies_of_all_requests():
    guard, behind = made(all_bytes=10, body_bytes=9)
    behind.going.clear()
    first = asyncio.create_task(ask(guard, b"a" * 6))
    await behind.entered.wait()
    assert guard.budget.used == 6
    said = await ask(guard, b"b" * 3, b"c" * 2)  # with its second part eleven
    assert (said.status, said.headers[b"retry-after"]) == (503, b"1")
    assert said.body["error"]["what"] == "too much is being sent at once"
    assert guard.budget.used == 6
    assert count(guard, "glassformer_refused_total", reason="memory") == 1
    second = asyncio.create_task(ask(guard, b"d" * 4))  # ten fit
    while guard.budget.used < 10:
        await asyncio.sleep(0)
    behind.going.set()
    assert (await first).status == (await second).status == 203
    assert guard.budget.used == 0
    assert (await ask(guard, b"e" * 9)).status == 203


@pytest.mark.parametrize(
    ("parts", "limits", "status"),
    [
        ((b"a" * 5, b"b" * 6), {"body_bytes": 10}, 413),
        ((b"a" * 11,), {"body_bytes": 10}, 413),
        ((b"a" * 5, None), {}, 400),
        ((b"a" * 5, b"b" * 6), {"all_bytes": 10}, 503),
        ((b"a" * 5, b"b" * 5), {"body_bytes": 10, "all_bytes": 10}, 203),
    ],
)
async def test_what_is_refused_is_given_back(parts, limits, status):
    guard, behind = made(**limits)
    assert (await ask(guard, *parts)).status == status
    assert guard.budget.used == 0
    assert len(behind.seen) == (status == 203)


async def test_a_body_that_is_slow_or_cancelled_is_given_back():
    guard, behind = made(body_seconds=0.05)
    scope = {"type": "http", "path": PREDICT, "method": "POST", "headers": []}
    sent: list[Any] = []
    parts = [b"a" * 7]

    async def receive() -> Any:
        if not parts:
            await asyncio.sleep(60)
        return {"type": "http.request", "body": parts.pop(), "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    await guard(scope, receive, send)
    assert sent[0]["status"] == 408
    assert "within 0.05 s" in json.loads(sent[1]["body"])["error"]["what"]
    assert dict(sent[0]["headers"])[b"connection"] == b"close"
    assert (guard.budget.used, behind.seen) == (0, [])

    guard, behind = made()
    behind.going.clear()
    task = asyncio.create_task(ask(guard, b"a" * 7))
    await behind.entered.wait()
    assert guard.budget.used == 7
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert guard.budget.used == 0


async def test_what_the_application_holds_goes_too():
    guard, behind = made()
    behind.error = RuntimeError("boom")
    with pytest.raises(RuntimeError):
        await ask(guard, b"a" * 7)
    assert guard.budget.used == 0
    assert count(guard, "glassformer_requests_total", route=PREDICT, status="500") == 1
    behind.error = Problem(418, "tea")
    assert (await ask(guard, b"a")).status == 418

    async def parses(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        scope[RESERVATION].add(20)
        assert guard.budget.used == 23

    guard.app = parses
    await ask(guard, b"abc")
    assert guard.budget.used == 0


async def test_only_bodies_that_are_asked_for_are_read():
    guard, behind = made()
    assert (await ask(guard, b"a", path="/nowhere")).status == 203
    assert behind.seen[-1] == ("/nowhere", b"a", 0)  # read by nobody before it
    assert (await ask(guard, b"a", method="GET")).status == 203
    assert behind.seen[-1] == (PREDICT, None, 0)
    for method in ("PUT", "PATCH"):
        assert (await ask(guard, b"a", None, method=method)).status == 400  # read, and found cut
    before = len(behind.seen)
    assert await ask(guard, kind="lifespan") == await ask(guard, kind="websocket") == Said(0, {}, None)
    assert behind.seen[before:] == ["lifespan"]


async def test_behind_the_body_comes_what_the_connection_says():
    guard, _ = made()
    seen = []

    async def reads_twice(scope: Any, receive: Any, send: Any) -> None:
        seen.extend([await receive(), await receive()])

    guard.app = reads_twice
    messages = [{"type": "http.request", "body": b"a"}, {"type": "http.disconnect"}]

    async def receive() -> Any:
        return messages.pop(0)

    scope = {"type": "http", "path": PREDICT, "method": "POST", "headers": []}
    await guard(scope, receive, None)
    assert seen[0] == {"type": "http.request", "body": b"a", "more_body": False}
    assert seen[1:] == [{"type": "http.disconnect"}]


async def test_a_full_queue_refuses_labels_alone():
    sizes = []
    guard, behind = made(full=lambda size: sizes.append(size) or True)
    said = await ask(guard, b"abc", b"de")
    assert (said.status, sizes, behind.seen, guard.budget.used) == (429, [5], [], 0)
    assert (await ask(guard, b"abc", path="/health")).status == 203
    assert sizes == [5]


async def test_a_length_that_is_announced_is_judged_before_a_byte_is_read():
    guard, _ = made(body_bytes=10)
    for length in (b"11", b"1" * 30):
        said = await ask(guard, None, headers=[(b"content-length", length)])
        assert (said.status, said.body["error"]["what"]) == (413, "more than 10 bytes")
        assert said.body["error"]["where"] == "body"
    for length in (b"10", b"", b"x", b"0"):
        assert (await ask(guard, b"a", headers=[(b"content-length", length)])).status == 203


@pytest.mark.parametrize(
    "name", [b"host", b"content-length", b"content-type", b"authorization", b"x-api-key"]
)
async def test_what_may_stand_once_only(name: bytes):
    guard, _ = made()
    said = await ask(guard, b"a", headers=[(name, b"1"), (b"accept", b"b"), (name, b"1")])
    assert (said.status, said.body["error"]["where"]) == (400, name.decode())
    assert (await ask(guard, b"a", headers=[(name, b"1"), (b"a", b"b"), (b"a", b"c")])).status == 203


async def test_keys_and_paths():
    guard, _ = made(key="s3cret")
    for path in (PREDICT, "/v1/x", "/metrics", "/openapi.json"):
        said = await ask(guard, b"a", path=path)
        assert (said.status, said.headers[b"www-authenticate"]) == (401, b"Bearer")
        error = {"code": "wrong-key", "what": "no key, or a wrong one", "where": "Authorization"}
        assert said.body["error"] == error | {"fix": "Send Bearer KEY"}
    for path in ("/", "/health", "/ready", "/static/page.js"):
        assert (await ask(guard, b"a", path=path)).status == 203
    right: list[dict] = [{b"authorization": b"Bearer s3cret"}, {b"authorization": b"bearer  s3cret "}]
    right += [{b"x-api-key": b"s3cret"}, {b"x-api-key": b"s3cret", b"authorization": b"Basic x"}]
    wrong: list[dict] = [{b"authorization": value} for value in (b"Bearer", b"Basic s3cret", b"s3cret")]
    wrong += [{b"x-api-key": b"s3cre"}, {b"x-api-key": b"s3cret", b"authorization": b"Bearer x"}]
    for headers in (*right, *wrong):
        status = 203 if headers in right else 401
        assert (await ask(guard, b"a", headers=headers.items())).status == status, headers


SERVED = ("Films.Example", "[::1]", "::2", "127.0.0.1", "xn--bcher-kva.example")
# By the grammar of RFC 9110, 7.2 and RFC 3986, 3.2.2: the values that name a host which is served ...
NAMED = {
    "films.example": [b"films.example", b"FILMS.example:80", b"films.example.", b"films.example.:8"],
    "films.example ": [b"films.example:", b"films.example ", b" \tfilms.example:80\t"],
    "::1": [b"[::1]", b"[::1]:9", b"[0:0:0:0:0:0:0:1]", b"[0000:0::0001]:80"],
    "::2": [b"[::2] "],
    "127.0.0.1": [b"127.0.0.1:8000"],
    "xn--bcher-kva.example": [b"xn--bcher-kva.example"],
}
HOSTS = {value: name.strip() for name, values in NAMED.items() for value in values}
OTHERS = "x films films.example.x a.films.example films.example.evil.com 127.1 2130706433 films%2Eexample"
OTHERS += " films.example,evil.com films.example;x [::3] [FE80::A]"  # ... those that name another ...
OTHERS = {value.encode(): value.strip("[]").lower() for value in OTHERS.split()}
TAILS = (b"/", b"/a", b"?a", b"#a", b":80:80", b":http", b":-1", b":+80", b":8 0", b"%", b"\0", b"\n", b"\v")
INVALID = [b"films.example" + tail for tail in TAILS]  # ... and those that name none
INVALID += [b"", b" ", b".", b":80", b"[]", b"\xff", b"films .example", b"films\\example", b'films_example"']
INVALID += [b"films.example:80@evil.com", b"evil.com@films.example", b"user:pw@films.example:80", b"[v1.a]"]
INVALID += [
    b"http://films.example",
    b"<films.example>",
    b"films\xc2\xad.example",
    b"films%2.example",
    b"x%zz",
]
INVALID += [
    b"::1",
    b"[::1",
    b"::1]",
    b"[::1]x",
    b"[::1]80",
    b"[::1%25eth0]",
    b"[::1::]",
    b"[1.2.3.4]",
    b"[x.y]",
]


@pytest.mark.parametrize("host", [*HOSTS, *OTHERS, *INVALID])
async def test_host_names(host):
    assert parse_host(host) == (HOSTS | OTHERS).get(host)
    said = await ask(made(hosts=SERVED)[0], b"a", headers=[(b"host", host)])
    if host in HOSTS:
        assert said.status == 203
    else:
        assert (said.status, said.body["error"]["where"]) == (400, "Host")
        what = "this host name is not served here" if host in OTHERS else "not a valid host name"
        assert said.body["error"]["what"] == what
    everybody = await ask(made()[0], b"a", headers=[(b"host", host)])  # without a list every valid one
    assert everybody.status == (400 if host in INVALID else 203)


async def test_without_a_host():
    assert (await ask(made(hosts=SERVED)[0], b"a")).status == 400
    assert (await ask(made()[0], b"a")).status == 203  # HTTP/1.0 has none


def test_a_name_to_allow_is_a_host_alone():
    ports = ("films.example:8000", "films.example:", "[::1]:80")
    others = ("http://films.example", "films.example/a", "a b", "films.example ", "b\xfccher.example", "")
    for name in (*ports, *others):
        said = "has a port" if name in ports else "is not a host name"
        with pytest.raises(ConfigError, match=f"--allow-host: {re.escape(repr(name))} {said}"):
            normalize_host(name)


async def test_every_answer_has_the_headers_that_keep_pages_safe():
    guard, _ = made(body_bytes=10)
    large = await ask(guard, headers=[(b"content-length", b"11")])
    assert large.headers.items() >= set(HEADERS)
    for path, kept in ((PREDICT, b"no-store"), ("/health", b"no-cache"), ("/v1/models", b"no-store")):
        said = await ask(guard, b"a", path=path)
        assert said.headers.items() >= set(HEADERS)
        assert said.headers[b"cache-control"] == kept
    policy = dict(HEADERS)[b"content-security-policy"]
    assert policy.startswith(b"default-src 'none'; ")
    assert dict(HEADERS)[b"x-content-type-options"] == b"nosniff"


async def test_requests_are_counted_by_names_of_ours():
    guard, _ = made()
    for path in (PREDICT, "/health", "/evil", "/evil2"):
        await ask(guard, b"a", path=path)
    for route, times in ((PREDICT, 1), ("/health", 1), ("other", 2)):
        assert count(guard, "glassformer_requests_total", route=route, status="203") == times
        assert count(guard, "glassformer_request_seconds_count", route=route) == times
        assert 0 < count(guard, "glassformer_request_seconds_sum", route=route) < 5


def test_shares():
    budget = MemoryBudget(100)
    one, two = Reservation(budget), Reservation(budget)
    one.set(60)
    two.add(40)
    assert budget.used == 100
    with pytest.raises(Problem, match="503"):
        two.add(1)
    assert budget.used == 101  # counted until it is given back
    two.set(41)  # the same and less are never refused
    one.set(59)
    two.set(41)
    one.release()
    two.set(40)
    two.release()
    two.release()
    assert budget.used == one.size == two.size == 0


# --- a client that goes away ends its request --------------------------------------------------------


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
