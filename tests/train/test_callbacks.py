"""What happens beside the loop: checkpoints, the history file, the bar, a clean stop on a signal."""

import io
import json
import os
import signal
import sys
import threading
import time
import types

import pytest
import torch
from tests.stopping import without_clock

from glassformer.checkpoints.native import list_states, save_state
from glassformer.train import state
from glassformer.train.callbacks import (
    Callback,
    Checkpoints,
    HistoryFile,
    Interrupted,
    Progress,
    StopOnSignal,
    time_left,
)
from glassformer.train.loop import run


def drive(rig, *callbacks):
    """As the estimator drives them."""
    try:
        for call in callbacks:
            call.start(rig.training)
        for info in run(rig.training, rig.stream, rig.objective, rig.evaluate):
            for call in callbacks:
                call.step(rig.training, info)
    finally:
        for call in callbacks:
            call.end(rig.training)


class At(Callback):
    """Do something after a step."""

    def __init__(self, step, action):
        self.wanted, self.action = step, action

    def step(self, training, info):
        if info.step == self.wanted:
            self.action()


def send(number, stop):
    """Send this process a signal and wait until ``stop`` has it, or until it interrupts us."""
    os.kill(os.getpid(), number)
    end = time.monotonic() + 10
    while stop.signals.received is None and time.monotonic() < end:
        time.sleep(0.001)


class Saves(Callback):
    """Which steps are on disk after each step."""

    def __init__(self, folder):
        self.folder, self.newest = folder, []

    def step(self, training, info):
        self.newest.append([step for step, _ in list_states(self.folder)])


@pytest.mark.parametrize(
    ("every", "saved"), [(0, [5, 10]), (1, list(range(1, 11))), (3, [3, 6, 9, 10]), (100, [10])]
)
def test_checkpoints_come_when_due_and_at_the_end(make_rig, tmp_path, every, saved):
    watch = Saves(tmp_path)
    drive(make_rig(), Checkpoints(tmp_path, every), watch)
    for step, on_disk in enumerate(watch.newest, 1):
        assert on_disk == [s for s in saved if s <= step][-2:]


def test_an_early_stop_is_saved(make_rig, tmp_path):
    def evaluate(rig):
        return {"loss": 1.0, "accuracy": 0.5, "macro_f1": 0.5}

    settings = {"epochs": 9, "early_stopping": 2, "evaluate": evaluate, "evaluate_every": 2}
    drive(make_rig(**settings), Checkpoints(tmp_path, 1, keep_last=4))
    assert [step for step, _ in list_states(tmp_path)] == [3, 4, 5, 6]
    again = make_rig(**settings)
    again.training.load(tmp_path)
    assert again.training.finished
    assert again.steps() == []


def test_history_file_has_one_record_a_line(make_rig, tmp_path):
    """Backups are made with ``cp -al``, before a resume or in the middle of a run."""
    file, early, middle = tmp_path / "history.jsonl", tmp_path / "early", tmp_path / "middle"
    file.write_text('{"kind": "step"}\n')
    early.hardlink_to(file)
    rig, kept = make_rig(), []
    drive(rig, HistoryFile(file), At(3, lambda: (middle.hardlink_to(file), kept.append(middle.read_bytes()))))
    assert early.read_text() == '{"kind": "step"}\n'
    assert middle.read_bytes() == kept[0]
    assert [json.loads(line) for line in file.read_text().splitlines()] == rig.training.history
    assert len(rig.training.history) == 12
    assert kept[0].count(b"\n") == 3  # written as it happens


def test_history_file_is_cut_back_to_the_checkpoint(make_rig, tmp_path):
    """Steps after the last checkpoint are done again: they must not stand there twice."""
    file = tmp_path / "history.jsonl"

    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drive(make_rig(), Checkpoints(tmp_path / "c", 3), HistoryFile(file), At(5, stop))
    with file.open("a") as broken:
        broken.write('{"kind": "st')  # killed in the middle of a line
    rig = make_rig()
    rig.training.load(tmp_path / "c")
    drive(rig, HistoryFile(file))
    whole = make_rig()
    whole.steps()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert without_clock(lines) == without_clock(whole.training.history)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_step_saves_and_says_so(make_rig, tmp_path, number):
    before = signal.getsignal(number)
    rig, stop = make_rig(dropout=0.3), StopOnSignal(tmp_path)
    torch.manual_seed(9)
    with pytest.raises(
        Interrupted, match=r"stopped at step 4 of 10, saved in .*step-00000004; continue with --resume"
    ):
        drive(rig, At(4, lambda: send(number, stop)), stop)
    assert signal.getsignal(number) == before
    assert Interrupted.exit_code == 130
    again = make_rig(dropout=0.3)
    assert again.training.load(tmp_path).step == 4
    again.steps()
    whole = make_rig(dropout=0.3)
    torch.manual_seed(9)
    whole.steps()
    assert without_clock(again.training.history) == without_clock(whole.training.history)
    assert all(torch.equal(w, whole.weights()[n]) for n, w in again.weights().items())


def test_a_second_ctrl_c_stops_at_once(make_rig, tmp_path, monkeypatch):
    rig, stop = make_rig(), StopOnSignal(tmp_path)

    def twice():
        send(signal.SIGINT, stop)
        stop.signals.received = None
        send(signal.SIGINT, stop)

    with pytest.raises(KeyboardInterrupt):
        drive(rig, At(4, twice), stop)
    assert list_states(tmp_path) == []
    # a signal after a saved step writes it once
    saves = []
    monkeypatch.setattr(state, "save_state", lambda *a, **k: saves.append(a[1]) or save_state(*a, **k))
    rig, stop = make_rig(), StopOnSignal(tmp_path)
    with pytest.raises(Interrupted, match="step-00000003"):
        drive(rig, Checkpoints(tmp_path, 3), At(3, lambda: send(signal.SIGTERM, stop)), stop)
    assert saves == [3]


def test_handlers_come_back_when_training_fails(make_rig, tmp_path):
    before = signal.getsignal(signal.SIGTERM)

    def fail():
        raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        drive(make_rig(), At(2, fail), StopOnSignal(tmp_path))
    assert signal.getsignal(signal.SIGTERM) == before
    # a signal at the very end lets training end
    rig, stop = make_rig(), StopOnSignal(tmp_path)
    before = signal.getsignal(signal.SIGINT)
    drive(rig, At(10, lambda: send(signal.SIGINT, stop)), stop)
    assert rig.training.finished
    assert signal.getsignal(signal.SIGINT) == before
    # other threads train without signals
    failures = []

    def work():
        try:
            drive(make_rig(), StopOnSignal(tmp_path))
        except BaseException as error:
            failures.append(error)

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failures
    assert signal.getsignal(signal.SIGINT) == before


class Clock:
    """Each look at it is ``step`` seconds after the one before."""

    def __init__(self, step: float):
        self.now, self.step = 0.0, step

    def monotonic(self) -> float:
        self.now += self.step
        return self.now


def log_of(rig, monkeypatch, seconds: float = 0.0, **options) -> list[str]:
    """The lines of a training's log whose clock goes on by so many seconds at each look."""
    stream = io.StringIO()
    monkeypatch.setattr("glassformer.train.callbacks.time", Clock(seconds))
    drive(rig, Progress(stream, **options))
    assert "\x1b" not in stream.getvalue()
    return stream.getvalue().splitlines()


def test_a_log_of_many_short_epochs_has_its_end_and_the_best(make_rig, monkeypatch):
    def evaluate(rig):
        return {"loss": 0.25, "accuracy": 0.875, "macro_f1": 0.5}

    lines = log_of(make_rig(epochs=36, evaluate=evaluate), monkeypatch)
    assert [line.split()[:2] for line in lines] == [["epoch", "1"], ["step", "180/180"], ["epoch", "36"]]
    assert "validation loss 0.2500  accuracy 0.8750  (best)" in lines[0]
    assert lines[1].endswith("tokens/s")
    assert " left)" not in lines[1]
    assert "(best)" not in lines[2]
    # a log has a line every half minute
    lines = log_of(make_rig(epochs=8), monkeypatch, seconds=10.0)  # a step takes a look or two, a line more
    steps = [line for line in lines if line.startswith("step ")]
    assert 8 <= len(steps) <= 20
    assert all(" left)" in line for line in steps[:-1])
    assert steps[-1].startswith("step 40/40")
    assert len([line for line in lines if line.startswith("epoch ")]) == 8  # each longer than half a minute


def test_the_best_epoch_that_a_log_passed_over_is_named_as_such(make_rig, monkeypatch):
    shares = iter([0.5, 0.625, 0.875, *[0.75] * 33])

    def evaluate(rig):
        return {"loss": 0.25, "accuracy": next(shares), "macro_f1": 0.5}

    lines = log_of(make_rig(epochs=36, evaluate=evaluate), monkeypatch)
    begun = [" ".join(line.split()[:2]) for line in lines if "step" not in line]
    assert begun == ["epoch 1", "best: epoch", "epoch 36"]
    assert lines[2].startswith("best: epoch 3 ")


def test_a_log_may_have_every_line(make_rig, monkeypatch):
    lines = log_of(make_rig(epochs=8), monkeypatch, every=0.0)
    steps = [line.split()[1] for line in lines if line.startswith("step ")]
    assert steps == [f"{n}/40" for n in range(1, 41)]
    epochs = [line for line in lines if line.startswith("epoch ")]  # without held-out data too
    assert [line.split()[1] for line in epochs] == [*"12345678"]
    assert all("  train loss " in line and "  train accuracy " in line for line in epochs)


def test_a_bar_in_a_notebook_is_one_output_that_is_replaced(make_rig, monkeypatch):
    shown = []

    class Handle:
        def update(self, html):
            shown.append(("update", html))

    def display(html, display_id):
        shown.append(("display", html))
        return Handle()

    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=None)
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.HTML, ipython.display.display = str, display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    stream = io.StringIO()
    progress = Progress(stream)
    drive(make_rig(epochs=3), progress)
    assert [kind for kind, _ in shown].count("display") == 1
    assert 'max="15" value="15"' in shown[-1][1]
    assert "15 of 15, epoch 3, loss " in shown[-1][1]
    assert len([line for line in stream.getvalue().splitlines() if line.startswith("epoch ")]) == 3
    shown.clear()
    with progress.count("<b>judging", 7) as told:
        told(7)
    assert "&lt;b&gt;judging: 7 of 7" in shown[-2][1]
    assert shown[-1] == ("update", "")


@pytest.fixture
def lines(make_rig):
    """What progress says of epochs that end with these losses, accuracies and macro-F1s."""

    def of(monitor, *found):
        told, stream = iter(found), io.StringIO()

        def evaluate(rig):
            return dict(zip(("loss", "accuracy", "macro_f1"), next(told), strict=True))

        drive(make_rig(epochs=len(found), evaluate=evaluate, monitor=monitor), Progress(stream, every=0.0))
        return [line for line in stream.getvalue().splitlines() if line.startswith("epoch ")]

    return of


def test_what_chooses_the_weights_leads_the_line(lines):
    epochs = lines("macro_f1", (0.9, 0.875, 0.5), (0.8, 0.75, 0.625), (0.7, 0.75, 0.25))
    assert "validation loss 0.9000  macro-F1 0.5000  (best)  accuracy 0.8750" in epochs[0]
    assert "macro-F1 0.6250  (best)  accuracy 0.7500" in epochs[1]
    assert "(best)" not in epochs[2]
    epochs = lines("loss", (0.9, 0.875, 0.5), (0.8, 0.75, 0.5), (0.95, 0.9, 0.5))
    assert "validation loss 0.8000  (best)  accuracy 0.7500" in epochs[1]
    assert "(best)" not in epochs[2]
    # a line that was there does not come again
    epochs = lines("macro_f1", (0.9, 0.5, 0.5), (0.8, 0.875, 0.625), (0.7, 0.75, 0.25), (0.7, 0.75, 0.25))
    assert [line.split()[1] for line in epochs] == [*"1234"]


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.2, "1 s"), (38.4, "38 s"), (19 * 60, "19 min"), (7500, "2 h 5 min")]
)
def test_how_long_a_training_goes_on(seconds, said):
    assert time_left(seconds) == said


def test_what_is_judged_is_counted_by_a_bar_or_by_lines_of_a_log(make_rig):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    plain, terminal = io.StringIO(), Terminal()
    with Progress(plain).count("judging", 7) as told:
        told(5)
        told(2)
    assert plain.getvalue() == ""  # too soon for a line
    with Progress(plain, every=0.0).count("judging", 7) as told:
        told(5)
        told(2)
    assert plain.getvalue().startswith("judging: 5 of 7  (1 s left)")
    assert plain.getvalue().count("\n") == 1
    with Progress(terminal).count("judging", 7) as told:
        assert told is not None
        told(5)
        told(2)
    assert "judging" in terminal.getvalue()
    assert "7/7" in terminal.getvalue()
    # a callback may leave everything out
    rig = make_rig()
    drive(rig, Callback())
    assert rig.training.finished
