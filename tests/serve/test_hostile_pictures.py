"""Pictures made to hold a server up: refused at once, given up in time, and nobody else waits for them."""

import asyncio
import base64
import io
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from glassformer.serve import batcher
from glassformer.serve.batcher import Workers
from glassformer.serve.problems import Problem

from .conftest import PICTURES, Running, asked_for_health, in_background, png, soon

SLEEPING = """
import sys, time
from glassformer.data.transform import ImageTransform
from glassformer.serve.limits import Limits
from glassformer.serve.run import run_server
ImageTransform.read = lambda *_: time.sleep(90)
tell = lambda address: print(address, flush=True)
run_server([sys.argv[1]], Limits(decode_seconds=0.5), port=0, threads=1, on_ready=tell)
"""


def many_scans(count: int, width: int, height: int) -> str:
    """A progressive JPEG of that many scans, nearly all of them empty, in base64."""
    file = io.BytesIO()
    Image.fromarray(np.zeros((height, width, 3), np.uint8)).save(file, "JPEG", progressive=True)
    whole = file.getvalue()
    empty = b"\xff\xda\0\x08\1\1\0\1\x3f\0"
    return base64.b64encode(whole[:-2] + empty * count + whole[-2:]).decode()


def test_many_scans_hold_nobody_up(server: Running, classifiers):
    hostile = {"images": [many_scans(40_000, 4001, 3989)]}
    with asked_for_health(server) as health:
        answers, threads = in_background(server, "/v1/predict", hostile, 2)
        good = server.ask("/v1/predict", {"images": [png(PICTURES[3])]})
        for thread in threads:
            thread.join(20)
    assert good.status == 200
    shares = list(good.body["predictions"][0]["probabilities"].values())
    np.testing.assert_allclose(shares, classifiers[2].predict_proba([PICTURES[3]])[0], atol=1e-5)
    assert [answer.status for answer in answers] == [422, 422]
    assert "scans" in answers[0].body["error"]["what"]
    assert answers[0].body["error"]["where"] == "images[0]"
    assert max(health) < 10  # well before any limit of time


@pytest.fixture
def stuck(monkeypatch, classifiers):
    """Pictures of 13 x 11 pixels take until the event is set to be decoded; so do those that are large."""
    kind, over = type(classifiers[2].transform_), threading.Event()
    whole = kind.read

    def read(self, source, where="picture"):
        with Image.open(io.BytesIO(source)) as image:
            size = image.size
        if size in ((13, 11), (2203, 2003)):
            over.wait(30)
        return whole(self, source, where)

    monkeypatch.setattr(kind, "read", read)
    yield over
    over.set()


def test_a_decoder_that_hangs_is_given_up(serve, stuck):
    server = serve(decode_seconds=0.4)
    decoder = server.app.state.server.image_decoder.small
    slow, good = png(np.zeros((11, 13, 3), np.uint8)), png(PICTURES[5])
    answers, threads = in_background(server, "/v1/predict", {"images": [slow]}, 2)
    for thread in threads:
        thread.join(15)
    assert [answer.status for answer in answers] == [503, 503]
    assert "longer than 0.4 s" in answers[0].body["error"]["what"]
    assert answers[0].headers["retry-after"]
    assert decoder.num_abandoned == 2
    assert server.ask("/v1/predict", {"images": [good]}).status == 200  # by those in their places
    stuck.set()
    assert soon(lambda: not decoder.num_abandoned)
    assert decoder.num_threads == batcher.SMALL_THREADS
    assert server.ask("/v1/predict", {"images": [slow, good]}).status == 200


def test_small_pictures_do_not_wait_for_large_ones(serve, stuck):
    server = serve()
    large = {"images": [png(np.zeros((2003, 2203, 3), np.uint8))]}
    answers, threads = in_background(server, "/v1/predict", large, 3)
    time.sleep(0.3)
    assert server.ask("/v1/predict", {"images": [png(PICTURES[7])]}).status == 200
    assert answers == []
    stuck.set()
    for thread in threads:
        thread.join(15)
    assert [answer.status for answer in answers] == [200] * 3


async def test_workers():
    workers = Workers(1, "test", 0.2)
    assert await workers.start(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await workers.start(lambda: 1 // 0)
    over, begun = threading.Event(), []
    hanging = [workers.start(lambda: over.wait(20)) for _ in range(batcher.MAX_ABANDONED + 1)]
    for one in hanging:
        with pytest.raises(Problem, match=r"longer than 0\.2 s"):
            await asyncio.wait_for(one, 10)
    assert workers.num_abandoned == batcher.MAX_ABANDONED + 1
    waiting = workers.start(lambda: begun.append(1))  # as many have been given up as may be: it waits
    await asyncio.sleep(0.5)
    assert not waiting.done()
    dropped = workers.start(lambda: begun.append(2))
    dropped.cancel()
    await asyncio.sleep(0)  # until the queue knows
    over.set()
    await asyncio.wait_for(waiting, 10)
    assert begun == [1]
    for _ in range(500):
        await asyncio.sleep(0.01 * (workers.num_threads != 1))
    assert (workers.num_abandoned, workers.num_threads) == (0, 1)
    assert await workers.start(lambda: begun) == [1]  # and what nobody waited for was not begun
    workers.close()


def test_a_signal_ends_it_while_pictures_hang(classifiers, tmp_path: Path):
    folder = classifiers[2].save(tmp_path / "pictures")
    command = [sys.executable, "-c", SLEEPING, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        client = object.__new__(Running)
        client.port = int(process.stdout.readline().rsplit(":", 1)[1])
        answers, threads = in_background(client, "/v1/predict", {"images": [png(PICTURES[0])]}, 3)
        time.sleep(0.3)
        assert client.ask("/health").status == 200
        process.send_signal(signal.SIGTERM)
        started = time.monotonic()
        _, said = process.communicate(timeout=20)
        assert time.monotonic() - started < 12  # not the 90 s of the decoder, nor the 30 s of an answer
        for thread in threads:
            thread.join(10)
        assert {answer.status for answer in answers} == {503}
        assert "Traceback" not in said
    finally:
        process.kill()
