"""Handler for Ctrl-C, SIGTERM and SIGHUP.

The first signal raises KeyboardInterrupt in the main thread, but lets a training finish its current step. The
command then prints one line and ends with exit code 130. A second signal, half a second later or more, ends
the process at once. The process also ends if the main thread has not reacted after ten seconds, because it
computes outside of Python. Files on disk are complete in all cases.

Signals that are ignored when the command begins (``nohup``, background jobs) stay ignored.
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
INTERRUPTED = 130  # exit code 128 + SIGINT, as in shells
TICK = 0.05  # seconds; time is counted in ticks, because a clock also counts while the process is suspended
REPETITION_TICKS = 10  # within this time, a second signal is a copy: terminal and shell may both send it
RESEND_TICKS = 4  # after this time, a signal that another thread received is sent to the main thread
TIMEOUT_TICKS = 200  # the process ends if the main thread has not reacted within this time
ENDED_MESSAGE = b"error: interrupted, and ended at once; files saved before are complete\n"


class SignalHandler:
    """The handler of a command's signals; ``owns_process`` is True if the process only runs this command."""

    def __init__(self, owns_process: bool = False):
        self.owns_process = owns_process
        self.is_interrupted = False  # whether the main thread has received the signal
        self.code: int | None = None  # the exit code; None until the command has ended
        self._resend = False  # whether the watcher thread must send the signal again
        self._num_resent = 0  # number of signals that the watcher has sent and not yet received
        self._old_handlers: dict[int, Any] = {}
        self._pipe: tuple[int, int] | None = None
        self._watcher: threading.Thread | None = None
        self._old_hook: Any = None  # the ``sys.unraisablehook`` that ``install`` replaced
        self._caller_code: Any = None  # code object of the function that called ``install``

    # --- handling of a signal -------------------------------------------------------------------------

    def __call__(self, number: int, frame: Any) -> None:
        if self.code is not None:
            if self.owns_process:
                _flush_and_exit(self.code)
            return
        if self.is_interrupted:  # a repeated signal: the watcher decides whether to end the process
            return
        if self._watcher is not None and self._is_importing(frame):
            self._resend = True  # wait for the end of the import: interrupted imports raise misleading errors
            return
        self.is_interrupted = True
        raise KeyboardInterrupt

    def mark_interrupted(self) -> None:
        """Record that ``train.callbacks.Signals`` has received the signal and will stop the training."""
        self.is_interrupted = True

    def interrupt(self) -> None:
        """Interrupt the command, because the training ended before it could react to the signal."""
        raise KeyboardInterrupt

    def _is_importing(self, frame: Any) -> bool:
        while frame is not None and frame.f_code is not self._caller_code:
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                return True
            frame = frame.f_back
        return False

    def _unraisable(self, unraisable: Any) -> None:
        """Repeat an interruption in a destructor, where Python cannot raise exceptions."""
        is_interrupt = isinstance(unraisable.exc_value, KeyboardInterrupt)
        if is_interrupt and self.is_interrupted and self._watcher is not None:
            self.is_interrupted, self._resend = False, True
        elif self._old_hook is not None:
            self._old_hook(unraisable)

    # --- installation and removal ---------------------------------------------------------------------

    def install(self) -> None:
        """Install the handler; does nothing outside of the main thread, because only it receives signals."""
        if threading.current_thread() is not threading.main_thread() or self._old_handlers:
            return
        global _current
        _current, self._caller_code = self, sys._getframe(1).f_code
        if self.owns_process:
            atexit.register(_ignore_signals)  # registered first, so called last
        for number in SIGNALS:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                self._old_handlers[number] = signal.signal(number, self)
        self._old_hook, sys.unraisablehook = sys.unraisablehook, self._unraisable
        if os.name == "nt":  # on Windows, select cannot wait for pipes
            return
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        old_descriptor = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        if old_descriptor != -1:  # it belongs to the caller's event loop
            signal.set_wakeup_fd(old_descriptor)
            os.close(reader)
            os.close(writer)
            return
        self._pipe = reader, writer
        self._watcher = threading.Thread(target=self._watch, args=(reader,), name="signals", daemon=True)
        self._watcher.start()

    def uninstall(self) -> None:
        """Restore the handlers that ``install`` replaced."""
        global _current
        if _current is self:
            _current = None
        for number, handler in self._old_handlers.items():
            if signal.getsignal(number) is self:
                signal.signal(number, handler)
        if self._old_hook is not None:
            sys.unraisablehook, self._old_hook = self._old_hook, None
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
        """The watcher thread: ends the process, or sends a signal again (see the module's docstring)."""
        ticks = -1  # since the first signal; -1: no signal yet
        while True:
            ready = select.select([reader], [], [], None if ticks < 0 else TICK)[0]
            for byte in os.read(reader, 512) if ready else b"":  # each byte is the number of a signal
                if byte == 0:  # sent by ``uninstall``
                    return
                if byte not in self._old_handlers:
                    continue
                if self._num_resent:
                    self._num_resent -= 1
                elif ticks < 0:
                    ticks = 0
                elif ticks >= REPETITION_TICKS and self.code is None:
                    _exit_now()
            if ready:
                continue
            ticks += 1
            if self.code is not None:
                continue
            if self._resend or (ticks == RESEND_TICKS and not self.is_interrupted):
                self._resend, self._num_resent = False, self._num_resent + 1
                self._send(next(iter(self._old_handlers)))
            if ticks >= TIMEOUT_TICKS and not self.is_interrupted:
                _exit_now()

    @staticmethod
    def _send(number: int) -> None:
        if hasattr(signal, "pthread_kill"):  # a real signal also wakes a thread that sleeps
            signal.pthread_kill(threading.main_thread().ident or 0, number)
        else:
            _thread.interrupt_main(signal.Signals(number))


def install_for_process() -> SignalHandler:
    """Install the handler of a process that only runs this command; call it before slow imports."""
    global _process_handler
    if _process_handler is None:
        _process_handler = SignalHandler(owns_process=True)
        _process_handler.install()
    return _process_handler


def hand_over_signals() -> None:
    """Remove the handler, because the server has a separate one; SIGHUP raises SIGTERM."""
    handles_hangup = hasattr(signal, "SIGHUP") and isinstance(signal.getsignal(signal.SIGHUP), SignalHandler)
    if _current is not None:
        _current.uninstall()
    if handles_hangup:
        signal.signal(signal.SIGHUP, lambda number, frame: signal.raise_signal(signal.SIGTERM))


_process_handler: SignalHandler | None = None  # the handler of ``install_for_process``
_current: SignalHandler | None = None  # the installed handler


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
        os.write(2, ENDED_MESSAGE)
    os._exit(INTERRUPTED)


def _flush_and_exit(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)
