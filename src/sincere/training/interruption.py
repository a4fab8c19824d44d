"""SIGTERM and Ctrl-C ask a run to stop at its next step, so that it can save itself first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

from sincere.errors import SincereError


class InterruptedRunError(SincereError):
    """A run was asked to stop and has saved a checkpoint."""

    exit_code = 130


class StopRequest:
    """While entered, holds back SIGTERM and the first SIGINT; `name` is the signal that came, or None."""

    def __init__(self) -> None:
        self.name: str | None = None
        self._before: dict[int, Any] = {}
        self._holding = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Hold back every signal, also a second Ctrl-C, while something is written."""
        self._holding = True
        try:
            yield
        finally:
            self._holding = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.name is not None and number == signal.SIGINT and not self._holding:
            raise KeyboardInterrupt  # asked twice: at once
        self.name = signal.Signals(number).name
