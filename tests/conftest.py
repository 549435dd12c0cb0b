"""What every test stands on: one thread, no network, no file outside the test's own folder."""

import atexit
import functools
import gc
import os
import runpy
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

ROOT = Path(__file__).parents[1]
OFFLINE = Path(__file__).parent / "_offline"
# Folders whose tests read pages and look at no chart; a drawn one takes a tenth of a second.
UNDRAWN = {"classifier", "cli", "image", "similarity", "study", "tasks"}


def _prepare_environment() -> None:
    """Settings that must stand before torch, matplotlib or the Hub client are imported.

    They are environment variables, so the workers of pytest-xdist and every process that a test starts
    have them too.
    """
    os.environ["OMP_NUM_THREADS"] = "1"
    # Some hundred processes are started: none is to compile torch and us again, whatever this shell is set to.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["MPLBACKEND"] = "Agg"
    if "GLASSFORMER_TEST_HOME" not in os.environ:  # in the first process, not in its workers
        home = Path(tempfile.mkdtemp(prefix="glassformer-tests-"))
        atexit.register(shutil.rmtree, home, ignore_errors=True)
        os.environ["GLASSFORMER_TEST_HOME"] = str(home)
        os.environ["HF_HOME"] = str(home / "huggingface")  # the developer's own caches stay unseen
        os.environ["XDG_CACHE_HOME"] = str(home / "cache")
        os.environ["MPLCONFIGDIR"] = str(ROOT / ".pytest_cache" / "matplotlib")  # its font list, made once
        os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
        os.environ["ORT_DISABLE_TELEMETRY"] = "1"
        os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
        os.environ["HF_HUB_DISABLE_XET"] = "1"  # it opens sockets outside of Python, where no hook sees them
        path = [str(OFFLINE), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")  # a log each: nobody fails for a neighbour
    os.environ["GLASSFORMER_NETWORK_LOG"] = f"{os.environ['GLASSFORMER_TEST_HOME']}/network-{worker}.log"
    runpy.run_path(str(OFFLINE / "sitecustomize.py"))


def _hear_ctrl_c() -> None:
    """A run in a shell's background inherits a deaf SIGINT, and so would every process that a test interrupts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


_prepare_environment()
_hear_ctrl_c()
os.fsync = lambda handle: (
    None
)  # no file of a test outlives a power cut, and a shared disk takes milliseconds each
# A default run tries the same examples every time; `make test-full` draws new ones.
settings.register_profile("same-examples", derandomize=True, deadline=None)  # nor is a busy machine a fault
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same-examples"))


def _network_attempts() -> list[str]:
    log = Path(os.environ["GLASSFORMER_NETWORK_LOG"])
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


@pytest.fixture(autouse=True)
def no_network(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails the test in whose time a process of this run tried to reach another machine."""
    before = len(_network_attempts())
    yield
    attempts = _network_attempts()[before:]
    if attempts and "reaches_out" not in request.keywords:
        pytest.fail("this test tried to reach the network: " + "; ".join(attempts), pytrace=False)


@pytest.fixture(autouse=True)
def handlers_given_back() -> Iterator[None]:
    """Fails the test that leaves another handler of a signal behind, not the one that next sends it."""
    numbers = signal.SIGINT, signal.SIGTERM
    before = [signal.getsignal(number) for number in numbers]
    yield
    after = [signal.getsignal(number) for number in numbers]
    for number, handler in zip(numbers, before):
        signal.signal(number, handler)
    assert after == before, "this test left another signal handler behind"


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of the real data sets; the test is skipped where it is not at hand."""
    root = os.environ.get("GLASSFORMER_DATA")
    if not root or not Path(root).is_dir():
        pytest.skip("GLASSFORMER_DATA names no folder with the real data sets")
    return Path(root)


@pytest.fixture(scope="session")
def weights_root() -> Path:
    """The folder of real checkpoints in the Hub's layout; the test is skipped where it is not at hand."""
    root = os.environ.get("GLASSFORMER_WEIGHTS")
    if not root or not Path(root).is_dir():
        pytest.skip("GLASSFORMER_WEIGHTS names no folder with real checkpoints")
    return Path(root)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"data_root", "weights_root"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("data")


@functools.cache
def _drawn() -> Callable[..., None]:
    from matplotlib.figure import Figure

    return Figure.savefig


def _empty(figure: Any, file: Any, format: str | None = None, **options: Any) -> None:
    """``Figure.savefig`` that draws nothing where an SVG is wanted."""
    if format != "svg":
        return _drawn()(figure, file, format=format, **options)
    file.write('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"><g id="figure_1" /></svg>')


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before the first fixture of a test: whether the charts of its pages are drawn."""
    undrawn = item.path.parent.name in UNDRAWN
    if undrawn or "matplotlib.figure" in sys.modules:
        drawn = _drawn()
        sys.modules["matplotlib.figure"].Figure.savefig = _empty if undrawn else drawn


def pytest_collection_finish() -> None:
    """A million objects of torch, transformers and the collected tests stay to the end: none is looked at again."""
    gc.collect()
    gc.freeze()
