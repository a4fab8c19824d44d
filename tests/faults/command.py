"""Commands, run by the server or in a fresh process, and how they ended."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.server import drop_privileges

ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "VECLIB_MAXIMUM")}
ONE_THREAD["JE_ARROW_MALLOC_CONF"] = "background_thread:false"  # of pyarrow, which pandas imports where it is installed
Moment = float | Callable[[], bool]  # seconds after the start, or asked often until it is true


@dataclass(frozen=True, eq=False)
class Command:
    """What to run and what befalls it.

    Attributes:
        arguments: Of `sincere`.
        environment: Over the usual one; None removes a variable.
        signals: When to send which signal.
        at_operation: Disturb the process at its n-th change of a file by `disturbance` (see server.Disturbance).
        count_to: File that takes the number of changes.
        file_bytes: Largest file that may be written.
        memory_bytes: Memory that may be taken beyond what the process starts with.
        open_files: Number of files that may be open.
        fresh: Start a new Python, for what is decided when it starts.
        closed_stdout: Nobody reads stdout.
        real_renderer: Draw figures, which takes seconds.
        timeout: Seconds until the command counts as hanging.
    """

    arguments: Sequence[str]
    environment: dict[str, str | None] = field(default_factory=dict)
    signals: Sequence[tuple[Moment, signal.Signals]] = ()
    at_operation: int | None = None
    disturbance: str = "SIGKILL"
    count_to: Path | None = None
    file_bytes: int | None = None
    memory_bytes: int | None = None
    open_files: int | None = None
    fresh: bool = False
    closed_stdout: bool = False
    real_renderer: bool = False
    timeout: float = 60.0


@dataclass(frozen=True, eq=False)
class Outcome:
    """How a command ended.

    Attributes:
        command: As typed.
        code: Exit code, negative for a signal.
        out: What it printed.
        err: What it printed to stderr.
        seconds: How long it took.
        hung: Whether it had to be stopped.
    """

    command: str
    code: int
    out: str
    err: str
    seconds: float
    hung: bool = False

    @property
    def said(self) -> str:
        """All that it printed."""
        return f"{self.out}\n{self.err}"


class Server:
    """The parent's end of a fork server; for one thread."""

    def __init__(self, source: Path, folder: Path) -> None:
        """Start the server; `folder` is where commands run."""
        self.source, self.folder = source, folder
        self.channel, other = socket.socketpair()
        environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("server.py")), str(other.fileno())],
            pass_fds=[other.fileno()],
            env=environment,
            cwd=folder,
        )
        other.close()
        self._buffer = b""
        self._ended: dict[int, dict[str, int]] = {}
        self._replies: dict[str, int] = {}
        self._reply("ready", 120)

    def close(self) -> None:
        """Stop the server."""
        self.channel.close()
        self.process.wait(timeout=30)

    def environment(self, changes: dict[str, str | None]) -> dict[str, str]:
        """Return the variables of a command."""
        kept = {name: os.environ[name] for name in ("PATH", "TZ") if name in os.environ}
        usual: dict[str, str | None] = {
            **kept, **ONE_THREAD, "LANG": "C.UTF-8", "COLUMNS": "200", "HOME": str(self.folder),
            "SINCERE_HOME": str(self.folder / "home"), "PYTHONPATH": str(self.source), "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(self.folder),
        }  # fmt: skip
        return {name: value for name, value in {**usual, **changes}.items() if value is not None}

    def start(self, command: Command) -> Running:
        """Start a command in the background."""
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        if command.closed_stdout:
            os.close(out_read)
            out_read = -1
        environment = self.environment(command.environment)
        process: subprocess.Popen[bytes] | None = None
        if command.fresh:
            process = self._fresh(command, environment, out_write, err_write)
            pid = process.pid
        else:
            request = {
                "arguments": list(command.arguments), "environment": environment, "folder": str(self.folder),
                "stand_in_renderer": not command.real_renderer,
                "at_operation": command.at_operation, "disturbance": command.disturbance,
                "count_to": None if command.count_to is None else str(command.count_to),
                "file_bytes": command.file_bytes, "memory_bytes": command.memory_bytes,
                "open_files": command.open_files,
            }  # fmt: skip
            socket.send_fds(self.channel, [json.dumps(request).encode() + b"\n"], [out_write, err_write])
            pid = self._reply("started", 30)
        os.close(out_write)
        os.close(err_write)
        return Running(self, command, pid, out_read, err_read, process)

    def _fresh(
        self, command: Command, environment: dict[str, str], out_write: int, err_write: int
    ) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "sincere.cli", *command.arguments]
        return subprocess.Popen(
            words, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=out_write, stderr=err_write,
            preexec_fn=drop_privileges, start_new_session=True,
        )  # fmt: skip

    def run(self, command: Command) -> Outcome:
        """Run a command to its end."""
        return self.start(command).finish()

    def exit_code(self, pid: int, seconds: float) -> int | None:
        """Return how a child ended; None if it still runs after these seconds."""
        deadline = time.monotonic() + seconds
        while pid not in self._ended:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self._receive(left)
        return self._ended.pop(pid)["code"]

    def _reply(self, name: str, seconds: float) -> int:
        """Return the value of the next reply of this name.

        Raises:
            RuntimeError: The server does not answer.
        """
        deadline = time.monotonic() + seconds
        while name not in self._replies:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the server does not answer: no {name!r} in {seconds:.0f} s")
            self._receive(1.0)
        return self._replies.pop(name)

    def _receive(self, seconds: float) -> None:
        """Take in what the server says within these seconds."""
        self.channel.settimeout(max(0.001, seconds))
        try:
            data = self.channel.recv(1 << 16)
        except TimeoutError:
            return
        if not data:
            raise RuntimeError("the server has ended")
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for answer in map(json.loads, lines):
            if "ended" in answer:
                self._ended[answer["ended"]] = answer
            else:
                self._replies.update(answer)


class Running:
    """A command under way."""

    def __init__(
        self, server: Server, command: Command, pid: int, out: int, err: int, process: subprocess.Popen[bytes] | None
    ) -> None:
        self.server, self.command, self.pid, self.process = server, command, pid, process
        self._texts: dict[int, list[bytes]] = {fd: [] for fd in (out, err) if fd >= 0}
        self._out, self._err = out, err
        self._start = time.monotonic()

    def finish(self) -> Outcome:
        """Send the signals, read what is printed, wait for the end."""
        waiting = list(self.command.signals)
        hung = False
        since = self._start
        with selectors.DefaultSelector() as selector:
            for fd in self._texts:
                os.set_blocking(fd, False)
                selector.register(fd, selectors.EVENT_READ)
            while selector.get_map():
                now = time.monotonic()
                if now - self._start > self.command.timeout:
                    hung = True
                    self._signal(signal.SIGKILL)
                    break
                if waiting and _due(waiting[0][0], now - since):
                    self._signal(waiting.pop(0)[1])
                    since = now
                for key, _ in selector.select(0.0005 if waiting else 0.25):
                    data = os.read(key.fd, 1 << 16)
                    self._texts[key.fd].append(data)
                    if not data:
                        selector.unregister(key.fd)
        code = self._code()
        seconds = time.monotonic() - self._start
        for fd in self._texts:
            os.close(fd)
        out, err = (b"".join(self._texts.get(fd, [])).decode(errors="surrogateescape") for fd in (self._out, self._err))
        return Outcome(" ".join(["sincere", *self.command.arguments]), code, out, err, seconds, hung)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)
        if number == signal.SIGKILL:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def _code(self) -> int:
        if self.process is not None:
            return self.process.wait(timeout=30)
        code = self.server.exit_code(self.pid, 20)
        if code is None:  # its streams are closed and it does not end
            self._signal(signal.SIGKILL)
            code = self.server.exit_code(self.pid, 20)
        return -9 if code is None else code


def _due(moment: Moment, seconds: float) -> bool:
    return moment() if callable(moment) else seconds >= moment
