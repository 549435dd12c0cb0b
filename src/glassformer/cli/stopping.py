"""Signal handling: Ctrl-C, SIGTERM or SIGHUP end a command with one line and exit code 130, at any time.

The first signal raises KeyboardInterrupt in the main thread, once; training instead stops after the current
step. A second signal, half a second or more after the first, ends the process at once. So does the first one
if the main thread has not reacted within ten seconds because it computes outside of Python. The files on disk
are complete in any case, as after a kill.

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
TICK = 0.05  # seconds; counting ticks instead of clock time ignores hours in which the process was suspended
SAME_SIGNAL_TICKS = 10  # until then a further signal is the same one, sent by both a terminal and a shell
NUDGE = 4  # ticks after which a signal that another thread received is sent to the main thread
PATIENCE = 200  # ticks that the main thread has to react to a signal
ENDED = b"error: interrupted, and ended at once; files saved before are complete\n"


class Listening:
    """The handler of a command's signals; ``owns_process``: the process belongs to the command alone."""

    def __init__(self, owns_process: bool = False):
        self.owns_process = owns_process
        self.heard = False  # the main thread has received the signal
        self.code: int | None = None  # the exit code, once the command is done
        self._resend = False  # the signal must be delivered once more
        self._own_signals = 0  # signals that the watcher itself has sent
        self._old_handlers: dict[int, Any] = {}
        self._pipe: tuple[int, int] | None = None
        self._watcher: threading.Thread | None = None
        self._hook: Any = None
        self._caller_code: Any = None  # the search for imports ends at its frame

    # --- the handler ----------------------------------------------------------------------------------

    def __call__(self, number: int, frame: Any) -> None:
        if self.code is not None:
            if self.owns_process:
                _flush_and_exit(self.code)
            return
        if self.heard:  # a repeated signal: the watcher decides whether to end the process
            return
        if self._watcher is not None and self._importing(frame):
            self._resend = True  # an interrupted import fails in odd ways: wait for its end
            return
        self.heard = True
        raise KeyboardInterrupt

    def noted(self) -> None:
        """Another handler has received the signal and will stop cleanly (``train.callbacks.Signals``)."""
        self.heard = True

    def late(self) -> None:
        """The other handler finished before it could react to the signal: interrupt what follows."""
        raise KeyboardInterrupt

    def _importing(self, frame: Any) -> bool:
        while frame is not None and frame.f_code is not self._caller_code:
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                return True
            frame = frame.f_back
        return False

    def _unraisable(self, unraisable: Any) -> None:
        """Repeat an interruption that is lost where Python cannot raise exceptions (in a destructor)."""
        if isinstance(unraisable.exc_value, KeyboardInterrupt) and self.heard and self._watcher is not None:
            self.heard, self._resend = False, True
        elif self._hook is not None:
            self._hook(unraisable)

    # --- start and end --------------------------------------------------------------------------------

    def listen(self) -> None:
        """Install the handlers; does nothing outside of the main thread, the only one that gets signals."""
        if threading.current_thread() is not threading.main_thread() or self._old_handlers:
            return
        global _current
        _current, self._caller_code = self, sys._getframe(1).f_code
        if self.owns_process:
            atexit.register(_ignore_signals)  # registered first, so called last
        for number in SIGNALS:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                self._old_handlers[number] = signal.signal(number, self)
        self._hook, sys.unraisablehook = sys.unraisablehook, self._unraisable
        if os.name == "nt":  # select cannot wait for pipes
            return
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        old_wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        if old_wakeup != -1:  # the caller's event loop has its own wakeup descriptor
            signal.set_wakeup_fd(old_wakeup)
            os.close(reader)
            os.close(writer)
            return
        self._pipe = reader, writer
        self._watcher = threading.Thread(target=self._watch, args=(reader,), name="signals", daemon=True)
        self._watcher.start()

    def release(self) -> None:
        """Restore the handlers that ``listen`` replaced."""
        global _current
        if _current is self:
            _current = None
        for number, handler in self._old_handlers.items():
            if signal.getsignal(number) is self:
                signal.signal(number, handler)
        if self._hook is not None:
            sys.unraisablehook, self._hook = self._hook, None
        self._old_handlers = {}
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
                if byte not in self._old_handlers:
                    continue
                if self._own_signals:
                    self._own_signals -= 1
                elif ticks < 0:
                    ticks = 0
                elif ticks >= SAME_SIGNAL_TICKS and self.code is None:
                    _exit_now()
            if ready:
                continue
            ticks += 1
            if self.code is not None:
                continue
            if self._resend or (ticks == NUDGE and not self.heard):
                self._resend, self._own_signals = False, self._own_signals + 1
                self._send(next(iter(self._old_handlers)))
            if ticks >= PATIENCE and not self.heard:
                _exit_now()

    @staticmethod
    def _send(number: int) -> None:
        if hasattr(signal, "pthread_kill"):  # a real signal also wakes a sleeping thread
            signal.pthread_kill(threading.main_thread().ident or 0, number)
        else:
            _thread.interrupt_main(signal.Signals(number))


def own_process() -> Listening:
    """Install the handlers for a process that belongs to the command alone, before slow imports."""
    global _own
    if _own is None:
        _own = Listening(owns_process=True)
        _own.listen()
    return _own


def hand_over() -> None:
    """Let a server handle signals: it finishes open requests, then ends, on SIGTERM, Ctrl-C and SIGHUP."""
    hears_hangup = hasattr(signal, "SIGHUP") and isinstance(signal.getsignal(signal.SIGHUP), Listening)
    if _current is not None:
        _current.release()
    if hears_hangup:
        signal.signal(signal.SIGHUP, lambda number, frame: signal.raise_signal(signal.SIGTERM))


_own: Listening | None = None
_current: Listening | None = None  # the active one


def _ignore_signals() -> None:
    """Ignore signals while the interpreter shuts down."""
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            if signal.getsignal(number) is not None:
                signal.signal(number, signal.SIG_IGN)


def _exit_now() -> None:
    for stream in (1, 2):
        with suppress(OSError):
            if os.isatty(stream):
                os.write(stream, b"\x1b[?25h\n")  # a progress bar hides the cursor
    with suppress(OSError):
        os.write(2, ENDED)
    os._exit(INTERRUPTED)


def _flush_and_exit(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)
