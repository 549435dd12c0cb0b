"""Settings of the process belong to its user: who changes one is listed here, with the reason."""

import ast
import csv
import threading
import warnings
from pathlib import Path

import pytest
from tests.sources import PACKAGE, modules, tree_of

from glassformer.data import tables
from glassformer.process import without_warnings

# What changes something for every thread of a process, by the end of its dotted name.
CALLS = set(
    """
    os.umask os.chdir os.fchdir os.putenv os.unsetenv os.nice os.setpriority os.environ.setdefault
    os.environ.update os.environ.pop os.environ.clear locale.setlocale csv.field_size_limit
    sys.setrecursionlimit sys.setswitchinterval signal.signal signal.set_wakeup_fd signal.pthread_sigmask
    atexit.register faulthandler.enable socket.setdefaulttimeout gc.disable gc.freeze logging.disable
    logging.basicConfig logger.setLevel warnings.catch_warnings warnings.simplefilter warnings.filterwarnings
    warnings.filters.remove contextlib.redirect_stdout contextlib.redirect_stderr redirect_stdout
    redirect_stderr stream.reconfigure random.seed np.random.seed np.random.set_state np.seterr
    torch.manual_seed torch.set_rng_state torch.cuda.set_rng_state torch.cuda.set_rng_state_all
    torch.cuda.manual_seed_all torch.set_num_threads torch.set_num_interop_threads torch.set_default_dtype
    torch.set_default_device torch.set_grad_enabled torch.use_deterministic_algorithms
    torch.set_float32_matmul_precision torch.backends.cudnn.flags torch.cuda.set_sync_debug_mode
    threadpool_limits matplotlib.use plt.rcParams.update
""".split()
)
OWN = "a process of the command line, or one that it starts"
# File -> what it may change, and why.
ALLOWED: dict[str, tuple[set[str], str]] = {
    "cli/": (CALLS, OWN),
    "serve/run.py": ({"warnings.filterwarnings"}, "a server is a process of its own"),
    "serve/app.py": ({"os.setpriority"}, "of the server's own computing threads"),
    "__main__.py": (CALLS, OWN),
    "process.py": (
        {"os.environ.setdefault", "warnings.filterwarnings", "warnings.filters.remove", "threadpool_limits"},
        "tune_process is asked for; one filter is added and taken out; one number of threads under a lock",
    ),
    "runtime.py": (
        set(
            """
            torch.set_num_threads torch.manual_seed torch.set_rng_state torch.cuda.set_rng_state
            torch.cuda.set_rng_state_all torch.cuda.manual_seed_all os.environ.setdefault
            torch.use_deterministic_algorithms
        """.split()
        ),
        "threads of this thread alone; generators of a GPU under a lock; torch's own outside of a fit",
    ),
    "data/spreadsheet.py": ({"csv.field_size_limit"}, "for one record under a lock, and given back"),
    "export/graph.py": ({"logger.setLevel"}, "of the exporter's own loggers, one export at a time"),
    "export/onnx_process.py": ({"logging.disable", "signal.signal"}, "it runs as a process of its own"),
    "nn/recurrent.py": ({"torch.backends.cudnn.flags"}, "cuDNN gives no gradients in evaluation; GPU alone"),
    "train/graphs.py": ({"torch.cuda.set_sync_debug_mode"}, "asked for with GLASSFORMER_GRAPHS; GPU alone"),
    "train/callbacks.py": ({"signal.signal"}, "in the main thread while a training listens, and given back"),
    "scale/engines.py": ({"os.environ.setdefault"}, "Ray reads its settings from the environment alone"),
    "study/arms.py": (
        {"signal.signal", "signal.pthread_sigmask", "os.environ.setdefault", "os.environ.pop"},
        "the processes of a study are told by the environment that they begin with",
    ),
}


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def changes(tree: ast.AST) -> set[str]:
    """The calls of ``CALLS``, and what is assigned to in the environment or an imported module."""
    modules = {
        alias.asname or alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and dotted(node.func) in CALLS:
            name = dotted(node.func)
            if name != "csv.field_size_limit" or node.args:  # without one it is only asked for
                found.add(name)
        targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else []
        for target in targets:
            place = target.value if isinstance(target, ast.Subscript) else target
            name = dotted(place)
            if isinstance(target, ast.Subscript) and name == "os.environ":
                found.add("os.environ[]")
            elif isinstance(target, ast.Attribute) and name.split(".")[0] in modules and "." in name:
                found.add(name)
    return found


def allowed(file: str) -> set[str]:
    return set().union(*(names for place, (names, _) in ALLOWED.items() if file.startswith(place)))


def test_only_those_listed_change_a_setting_of_the_process():
    wrong = {}
    for path in modules():
        file = path.relative_to(PACKAGE).as_posix()
        if file.startswith("cli/"):
            continue
        if left := changes(tree_of(path)) - allowed(file) - OTHERS.get(file, set()):
            wrong[file] = sorted(left)
    assert not wrong


# Assignments to attributes of modules, likewise with their reasons.
OTHERS = {
    "runtime.py": {"torch.backends.cudnn.benchmark"},  # be_deterministic, which the command line calls
    "study/arms.py": {"os.environ[]"},  # as above
}


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import os\nos.umask(0)", {"os.umask"}),
        ("import os\nos.environ['A'] = '1'", {"os.environ[]"}),
        ("import os\ndel os.environ['A']", {"os.environ[]"}),
        ("import csv\ncsv.field_size_limit(5)", {"csv.field_size_limit"}),
        ("import csv\ncsv.field_size_limit()", set()),
        ("import torch\ntorch.backends.cudnn.enabled = False", {"torch.backends.cudnn.enabled"}),
        ("from PIL import Image\nx = Image.open('a')", set()),
    ],
)
def test_the_audit_sees_what_it_is_for(code, found):
    assert changes(ast.parse(code)) == found


# --- tables ---------------------------------------------------------------------------------------------


def long_table(path: Path, mark: str) -> Path:
    path.write_text("text,label\n" + "".join(f'"{mark * 200_000}, {i}",a\n' for i in range(7)))
    return path


def test_tables_with_long_cells_are_read_in_threads(tmp_path):
    files = [long_table(tmp_path / f"{mark}.csv", mark) for mark in "abc"]
    limit, wrong = csv.field_size_limit(), []

    def read(path: Path) -> None:
        for _ in range(5):
            try:
                rows = list(tables.read_records(path, ",", tables.raise_error, "strict"))
                if len(rows) != 8 or any(len(row[0]) != 200_003 for _, row in rows[1:]):
                    wrong.append(len(rows))
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=read, args=(path,)) for path in files]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert csv.field_size_limit() == limit


def test_tables_with_long_cells_are_read_in_turns_and_the_caller_keeps_the_limit(tmp_path):
    first, second = (
        tables.read_records(long_table(tmp_path / f"{mark}.csv", mark), ",", tables.raise_error, "strict")
        for mark in "ab"
    )
    before = csv.field_size_limit(131)
    try:
        next(first), next(second)
        assert csv.field_size_limit() == 131
        assert len(list(first)) == 7  # the first to be begun ends first
        assert len(list(second)) == 7
        assert csv.field_size_limit() == 131
    finally:
        csv.field_size_limit(before)


# --- warnings -------------------------------------------------------------------------------------------


def test_filters_that_overlap_in_threads_leave_nothing_behind():
    before, inside, leave = list(warnings.filters), threading.Event(), threading.Event()

    def other() -> None:
        with without_warnings(r"PIL\."):
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    with without_warnings(r"PIL\."):
        thread.start()
        inside.wait(60)
    assert len(warnings.filters) == len(before) + 1  # the other is inside still
    leave.set()
    thread.join()
    assert list(warnings.filters) == before


def test_other_warnings_are_shown_meanwhile():
    with without_warnings(r"PIL\."), pytest.warns(UserWarning, match="mine"):
        warnings.warn("mine", UserWarning, stacklevel=1)
