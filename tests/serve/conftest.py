"""A real server over tiny models, on a port of this process; its classifiers are at hand for comparison."""

import asyncio
import base64
import http.client
import inspect
import io
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image

import glassformer as gf

pytest.importorskip("fastapi")
uvicorn = pytest.importorskip("uvicorn")
pytest.importorskip("httptools")
pytest.importorskip("prometheus_client")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
TEXTS = [f"a {('warm and wise', 'dull')[i % 2]} film , number {i} of many" for i in range(40)]
EXAMPLES = ["a warm and wise film", "dull <b>and</b> long"]
PICTURES = np.random.default_rng(0).integers(0, 256, (20, 12, 12, 3), np.uint8)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: Any) -> bool | None:
    """A test that is a coroutine has a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


class Answer(NamedTuple):
    status: int
    body: Any
    headers: dict[str, str]


class Running:
    """A server that runs in a thread."""

    def __init__(self, models: list[Any], limits: Any, loop: str = "auto", **options: Any):
        from glassformer.serve.app import create_app
        from glassformer.serve.run import bounded_protocol

        self.app = create_app(models, limits, **options)
        how: dict[str, Any] = {"ws": "none", "lifespan": "on", "log_level": 40, "loop": loop}
        http = bounded_protocol(limits, self.app.state.server.budget)
        config = uvicorn.Config(self.app, "127.0.0.1", 0, http=http, **how)
        self.socket = config.bind_socket()
        self.port = self.socket.getsockname()[1]
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]}, daemon=True)
        self.thread.start()
        end = time.monotonic() + 20
        while not self.server.started:
            assert time.monotonic() < end
            assert self.thread.is_alive()
            time.sleep(0.01)

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self.thread.join(20)
        assert not self.thread.is_alive()
        self.socket.close()

    def ask(self, path: str, body: Any = None, method: str | None = None, **headers: str) -> Answer:
        """One request on a connection of its own; ``body``: bytes, or anything as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            if body is not None and not isinstance(body, bytes):
                body = json.dumps(body).encode()
            sent = {"content-type": "application/json"} if body is not None else {}
            sent |= {k.replace("_", "-"): v for k, v in headers.items()}
            connection.request(method or ("GET" if body is None else "POST"), path, body, sent)
            response = connection.getresponse()
            content, kind = response.read(), response.headers.get("content-type", "")
            found = json.loads(content) if content and kind == "application/json" else content
            return Answer(response.status, found, {k.lower(): v for k, v in response.headers.items()})
        finally:
            connection.close()


@contextmanager
def over(folder: Path | None = None, **models: Any) -> Iterator[Running]:
    """A server over these fitted models by their names: as they are, or saved below ``folder`` and loaded."""
    from glassformer.serve.limits import Limits
    from glassformer.serve.models import ServedModel, load_models

    how = {"threads": 1, "precision": "fp32"}
    if folder is None:
        served = [(ServedModel(name, model, Limits(), **how), False) for name, model in models.items()]
    else:
        runs = [model.save(folder / name) for name, model in models.items()]
        served = load_models(runs, Limits(), **how)
    with Running(served, Limits()) as running:
        yield running


@contextmanager
def asked_for_health(server: Running) -> Iterator[list[float]]:
    """``/health`` asked every 50 ms by another thread; gives the list of the seconds that each answer took."""
    seconds, over = [], threading.Event()

    def ask() -> None:
        while not over.is_set():
            started = time.monotonic()
            status = server.ask("/health").status
            seconds.append(time.monotonic() - started if status == 200 else float("inf"))
            over.wait(0.05)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield seconds
    finally:
        over.set()
        thread.join(30)
    assert seconds
    assert max(seconds) < float("inf")  # each was answered with 200


def png(picture: Any) -> str:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


@pytest.fixture(scope="package")
def classifiers() -> list[Any]:
    common: dict[str, Any] = dict(d_model=14, num_heads=2, d_ff=22, num_layers=2, epochs=2, lr=1e-2)
    common |= {"precision": "fp32", "threads": 1}
    of_texts = common | {"min_count": 1, "dropout": 0.0}
    texts = gf.TextClassifier("encoder-mini", max_length=19, **of_texts).fit(TEXTS, ["good", "bad"] * 20)
    texts.temperature_ = 1.5
    windows = gf.TextClassifier("encoder-mini", max_length=9, long_texts="mean", **of_texts)
    windows.fit(TEXTS, [0, 1] * 20)
    pictures = gf.ImageClassifier("vit-tiny", image_size=12, patch_size=4, **common)
    pictures.fit(PICTURES, ["<b>x</b>", "y"] * 10)
    return [texts, windows, pictures]


@pytest.fixture(scope="package")
def launch(classifiers) -> Callable[..., Running]:
    """``launch(queue_tokens=9)``: a running server with these limits."""
    from glassformer.serve.limits import Limits
    from glassformer.serve.models import ServedModel

    def make(key: str | None = None, hosts=(), loop: str = "auto", others=None, **limits: Any) -> Running:
        bounds, how = Limits(**limits), {"threads": 1, "precision": "fp32"}
        own = zip(("films", "windows", "pictures"), classifiers, strict=True)
        served = [(ServedModel(n, clf, bounds, **how, examples=EXAMPLES), n == "films") for n, clf in own]
        for name, clf in (others or {}).items():
            served.append((ServedModel(name, clf, bounds, **how, examples=()), False))
        return Running(served, bounds, loop, key=key, hosts=hosts)

    return make


@pytest.fixture
def serve(launch) -> Iterator[Callable[..., Running]]:
    """As ``launch``; the servers are stopped at the end of the test."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(launch(**options))


@pytest.fixture
def going(serve) -> Iterator[threading.Event]:
    """What a test lets a server wait for; set before the server is stopped."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def hold(going, monkeypatch) -> Callable[..., threading.Event]:
    """``hold(served)``: what it computes waits for ``going``; gives what is set once it has begun."""

    def at(served: Any, name: str = "compute") -> threading.Event:
        entered, real = threading.Event(), getattr(served, name)

        def waits(*given: Any) -> Any:
            entered.set()
            going.wait(60)
            return real(*given)

        monkeypatch.setattr(served, name, waits)
        return entered

    return at


def in_background(server: Running, path: str, body: Any, times: int = 1) -> tuple[list[Answer], list[Any]]:
    """Asks from threads that are begun here; the answers so far, and the threads."""
    answers: list[Answer] = []
    asks = lambda: answers.append(server.ask(path, body))  # noqa: E731
    threads = [threading.Thread(target=asks) for _ in range(times)]
    for thread in threads:
        thread.start()
    return answers, threads


def soon(what: Callable[[], Any], seconds: float = 20) -> bool:
    """Whether it becomes true within seconds."""
    end = time.monotonic() + seconds
    while not what() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(what())


@pytest.fixture(scope="package")
def server(launch) -> Iterator[Running]:
    with launch(body_seconds=1.0) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A Chromium of this machine, driven by Playwright."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as p:
        made = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()
