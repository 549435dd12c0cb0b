"""A Hub of our own on a local port, for what is fetched from one."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub
import pytest
import torch

from glassformer.checkpoints.tensors import write_tensors

OLD, NEW = "1" * 40, "2" * 40


class FakeHub:
    """The part of the Hub's HTTP interface that a snapshot needs."""

    def __init__(self) -> None:
        self.repos: dict[str, dict[str, dict[str, bytes]]] = {}  # repo -> commit -> file -> bytes
        self.gated: set[str] = set()
        self.requests: list[str] = []
        self.sent: dict[str, bytes] = {}  # file -> what is sent in its place, whatever was announced
        self.sizes: dict[str, int] = {}  # file -> the size that is announced
        self.commit: str | None = None  # that is told instead of the real one
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, headers, body = fake.answer(self.path)
                self.send_response(status)
                for key, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(key, value)
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            do_HEAD = do_GET

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        path = path.partition("?")[0]
        self.requests.append(path)
        api = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+))?", path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        match = api or file
        repo = match[1] if match else ""
        if repo not in self.repos:
            return 401, {"X-Error-Code": "RepoNotFound"}, b""
        if repo in self.gated:
            return 403, {"X-Error-Code": "GatedRepo"}, b""
        commits = self.repos[repo]
        revision = (api[3] if api else match[2]) or "main"
        commit = max(commits) if revision == "main" else revision
        if commit not in commits:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b""
        files = commits[commit]
        if api and api[2] == "tree":
            sizes = {n: self.sizes.get(n, len(b)) for n, b in files.items()}
            tree = [{"type": "file", "path": n, "size": sizes[n], "oid": _sum(b)} for n, b in files.items()]
            return 200, {"Content-Type": "application/json"}, json.dumps(tree).encode()
        if api:
            siblings = [{"rfilename": n, "size": self.sizes.get(n, len(b))} for n, b in files.items()]
            info = {"id": repo, "sha": self.commit or commit, "siblings": siblings}
            return 200, {"Content-Type": "application/json"}, json.dumps(info).encode()
        announced = files[file[3]]
        body = self.sent.get(file[3], announced)
        return 200, {"ETag": f'"{_sum(announced)}"', "X-Repo-Commit": self.commit or commit}, body


def _sum(body: bytes) -> str:
    """As the Hub: SHA-256 of weights, git's SHA-1 of other files."""
    if b'"dtype"' in body:
        return hashlib.sha256(body).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()


@pytest.fixture
def fake_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    fake = FakeHub()
    real = huggingface_hub.snapshot_download
    redirected = partial(real, endpoint=fake.url, cache_dir=tmp_path / "cache", max_workers=2)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", redirected)
    monkeypatch.setattr(huggingface_hub, "HfApi", partial(huggingface_hub.HfApi, endpoint=fake.url))
    yield fake
    fake.server.shutdown()
    fake.server.server_close()


def checkpoint(folder: Path, value: float) -> dict[str, bytes]:
    """The files of a tiny checkpoint, and some that must not be fetched."""
    folder.mkdir()
    write_tensors(folder, {"weight": torch.tensor([value])})
    weights = (folder / "model.safetensors").read_bytes()
    safe = {"config.json": b'{"model_type": "bert"}', "model.safetensors": weights, "vocab.txt": b"[PAD]\n"}
    unsafe = dict.fromkeys(["pytorch_model.bin", "modeling.py", "onnx/model.onnx", "training_args.bin"], b"!")
    return safe | unsafe
