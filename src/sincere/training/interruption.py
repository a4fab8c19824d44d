"""SIGTERM and Ctrl-C request a run to stop after the current step, so that it can save a checkpoint first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

from sincere.errors import SincereError


class InterruptedRunError(SincereError):
    """A run was interrupted and has saved a checkpoint."""

    exit_code = 130


class StopRequest:
    """A context manager that catches SIGTERM and the first SIGINT; `name` is the signal received, or None."""

    def __init__(self) -> None:
        self.name: str | None = None
        self._handlers: dict[int, Any] = {}
        self._is_deferred = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._handlers[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Defer every signal, also a second Ctrl-C, while a file is written."""
        self._is_deferred = True
        try:
            yield
        finally:
            self._is_deferred = False

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.name is not None and number == signal.SIGINT and not self._is_deferred:
            raise KeyboardInterrupt  # a second Ctrl-C stops at once
        self.name = signal.Signals(number).name
