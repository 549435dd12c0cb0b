"""Ctrl-C, SIGTERM and SIGHUP, whenever they come: a command ends with one line and exit code 130.

The first signal raises KeyboardInterrupt in the main thread, once; training notes it instead and stops after
its step. A second one, half a second or more after the first, ends the process at once; so does a first one
that the main thread has not heard of for ten seconds, because it computes outside of Python. What is on the
disk is as after a kill: whole.

A signal that is ignored when the command begins (``nohup``, a job in the background) stays ignored.
"""

from __future__ import annotations

import _thread
import atexit
import os
import select
import signal
import sys
import threading
from contextlib import suppress
from typing import Any

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
INTERRUPTED = 130  # 128 + SIGINT, as shells count
TICK = 0.05  # seconds; time is counted in these, so that a process that was stopped for hours has not waited
ECHO = 10  # ticks in which further signals are the same wish: a terminal and a shell both tell
NUDGE = 4  # ticks after which a signal that another thread has taken is sent to the main one, which may sleep
PATIENCE = 200  # ticks that the main thread may compute without hearing of a signal
LAST = b"error: interrupted, and ended at once; what was saved before is whole\n"


class Listening:
    """The handler of a command's signals.

    Args:
        own: the process is the command's, from its start to its end; otherwise it gets its handlers back.
    """

    def __init__(self, own: bool = False):
        self.own = own
        self.heard = False  # the main thread knows
        self.code: int | None = None  # the exit code, once the work is over
        self._again = False  # to be delivered once more
        self._echoes = 0  # deliveries of the watcher's own making
        self._old: dict[int, Any] = {}
        self._pipe: tuple[int, int] | None = None
        self._watcher: threading.Thread | None = None
        self._hook: Any = None
        self._root: Any = None

    # --- what a handler does ------------------------------------------------------------------------

    def __call__(self, number: int, frame: Any) -> None:
        if self.code is not None:
            if self.own:
                _leave(self.code)
            return
        if self.heard:  # the same wish again; a second one is the watcher's to answer
            return
        if self._watcher is not None and self._importing(frame):
            self._again = True  # half-imported modules fail in ways of their own: after the import
            return
        self.heard = True
        raise KeyboardInterrupt

    def noted(self) -> None:
        """Somebody else has taken the signal and will end in good order (``train.callbacks.Signals``)."""
        self.heard = True

    def late(self) -> None:
        """Whoever took the signal had come to an end by itself: what follows is interrupted instead.

        Raises:
            KeyboardInterrupt: always.
        """
        raise KeyboardInterrupt

    def _importing(self, frame: Any) -> bool:
        while frame is not None and frame.f_code is not self._root:
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                return True
            frame = frame.f_back
        return False

    def _unraisable(self, unraisable: Any) -> None:
        """An exception where Python can raise none (a destructor): the interruption is not lost with it."""
        if isinstance(unraisable.exc_value, KeyboardInterrupt) and self.heard and self._watcher is not None:
            self.heard, self._again = False, True
        elif self._hook is not None:
            self._hook(unraisable)

    # --- from when to when --------------------------------------------------------------------------

    def listen(self) -> None:
        """From now on. Python gives signals to the main thread alone: in another one nothing is done."""
        if threading.current_thread() is not threading.main_thread() or self._old:
            return
        global _current
        _current, self._root = self, sys._getframe(1).f_code
        if self.own:
            atexit.register(_deafen)  # the first to be registered is the last to be called
        for number in SIGNALS:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                self._old[number] = signal.signal(number, self)
        self._hook, sys.unraisablehook = sys.unraisablehook, self._unraisable
        if os.name == "nt":  # its pipes cannot be waited for
            return
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        if before != -1:  # an event loop of the caller's hears them first
            signal.set_wakeup_fd(before)
            os.close(reader)
            os.close(writer)
            return
        self._pipe = reader, writer
        self._watcher = threading.Thread(target=self._watch, args=(reader,), name="signals", daemon=True)
        self._watcher.start()

    def release(self) -> None:
        """Signals do again what they did before."""
        global _current
        if _current is self:
            _current = None
        for number, handler in self._old.items():
            if signal.getsignal(number) is self:
                signal.signal(number, handler)
        if self._hook is not None:
            sys.unraisablehook, self._hook = self._hook, None
        self._old = {}
        if self._pipe is not None and self._watcher is not None:
            reader, writer = self._pipe
            signal.set_wakeup_fd(-1)
            os.write(writer, b"\0")
            self._watcher.join()
            os.close(reader)
            os.close(writer)
            self._pipe = self._watcher = None

    def _watch(self, reader: int) -> None:
        ticks = -1  # since the first signal
        while True:
            ready = select.select([reader], [], [], None if ticks < 0 else TICK)[0]
            for byte in os.read(reader, 512) if ready else b"":
                if byte == 0:
                    return
                if byte not in self._old:
                    continue
                if self._echoes:
                    self._echoes -= 1
                elif ticks < 0:
                    ticks = 0
                elif ticks >= ECHO and self.code is None:
                    _end()
            if ready:
                continue
            ticks += 1
            if self.code is not None:
                continue
            if self._again or (ticks == NUDGE and not self.heard):
                self._again, self._echoes = False, self._echoes + 1
                self._deliver(next(iter(self._old)))
            if ticks >= PATIENCE and not self.heard:
                _end()

    @staticmethod
    def _deliver(number: int) -> None:
        if hasattr(signal, "pthread_kill"):  # a true signal, which wakes a thread that sleeps
            signal.pthread_kill(threading.main_thread().ident or 0, number)
        else:
            _thread.interrupt_main(signal.Signals(number))


def own_process() -> Listening:
    """Listen in a process that is the command's alone, from before anything slow is imported."""
    global _own
    if _own is None:
        _own = Listening(own=True)
        _own.listen()
    return _own


def hand_over() -> None:
    """From here on signals are a server's, which ends by SIGTERM, Ctrl-C and SIGHUP when it has answered."""
    hears_hangup = hasattr(signal, "SIGHUP") and isinstance(signal.getsignal(signal.SIGHUP), Listening)
    if _current is not None:
        _current.release()
    if hears_hangup:
        signal.signal(signal.SIGHUP, lambda number, frame: signal.raise_signal(signal.SIGTERM))


_own: Listening | None = None
_current: Listening | None = None  # the one that listens


def _deafen() -> None:
    """While the interpreter takes itself apart, nothing is left to interrupt."""
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            if signal.getsignal(number) is not None:
                signal.signal(number, signal.SIG_IGN)


def _end() -> None:
    for stream in (1, 2):
        with suppress(OSError):
            if os.isatty(stream):
                os.write(stream, b"\x1b[?25h\n")  # a progress bar hides the cursor
    with suppress(OSError):
        os.write(2, LAST)
    os._exit(INTERRUPTED)


def _leave(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)
