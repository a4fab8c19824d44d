"""A process that imports the package once and forks a child for every command.

Starting Python with torch takes seconds; a fork takes milliseconds. Requests come as JSON over a Unix socket, with the
child's stdout and stderr attached; answers are the child's process id, and later how it ended. No torch operation
runs here, so there are no threads that a fork would lose.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import importlib
import io
import json
import os
import pkgutil
import resource
import select
import signal
import socket
import struct
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink", "shutil.move"}
TAKING_NO_ROOM, ROOM = {"os.remove", "os.rmdir", "os.rename"}, {"ENOSPC", "EDQUOT", "EMFILE"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def main() -> None:
    """Serve until the other end of the socket closes."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    import_all()
    assert len(os.listdir("/proc/self/task")) == 1, "the server must have one thread"
    gc.collect()
    gc.freeze()
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel.sendall(b'{"ready": 1}\n')
    while True:
        ready, _, _ = select.select([channel, wake_read], [], [])
        if wake_read in ready:
            os.read(wake_read, 4096)
            for answer in ended():
                channel.sendall(json.dumps(answer).encode() + b"\n")
        if channel in ready:
            data, fds, _, _ = socket.recv_fds(channel, 1 << 20, 8)
            if not data:
                return
            while not data.endswith(b"\n"):
                data += channel.recv(1 << 20)
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                channel.close()
                child(json.loads(data), fds)
            for fd in fds:
                os.close(fd)
            channel.sendall(json.dumps({"started": pid}).encode() + b"\n")


def import_all() -> None:
    """Import all that commands import when they run: the package's modules, and what they load late."""
    import sincere

    for module in pkgutil.walk_packages(sincere.__path__, "sincere."):
        # pyarrow starts a thread when it is imported, and so may the libraries of drop-ins, which no command needs.
        threaded = module.name.endswith((".parquet", ".hugging_face")) or ".integrations" in module.name
        if not threaded and not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # an extra that is not installed
                importlib.import_module(module.name)
    for name in ("PIL.PngImagePlugin", "sklearn.linear_model", "sklearn.decomposition", "torchvision", "vl_convert"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    from PIL import Image

    Image.init()


def ended() -> list[dict[str, int]]:
    """Return how children that have ended did so."""
    answers = []
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return answers
        if pid == 0:
            return answers
        answers.append({"ended": pid, "code": os.waitstatus_to_exitcode(status), "peak_kb": usage.ru_maxrss})


def child(request: dict[str, Any], fds: list[int]) -> None:
    """Become the command; never return."""
    code = 1
    try:
        prepare(request, fds)
        code = run_command()
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # as Python ends when its output cannot be flushed
            code = 120
    os._exit(code)


def prepare(request: dict[str, Any], fds: list[int]) -> None:
    """Set what a new process would start with: streams, environment, folder, user, limits."""
    os.setsid()
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(fds[0], 1)
    os.dup2(fds[1], 2)
    os.closerange(3, 256)
    encoding = request["environment"].get("PYTHONIOENCODING", "utf-8")
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "rb", closefd=False)), encoding="utf-8")
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "wb", closefd=False)), encoding=encoding)
    sys.stderr = io.TextIOWrapper(
        io.FileIO(2, "wb", closefd=False), encoding=encoding, errors="backslashreplace", write_through=True
    )
    sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr  # type: ignore[misc]
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.argv = ["sincere", *request["arguments"]]
    drop_privileges()
    if request["stand_in_renderer"]:
        replace_renderer()
    if request["at_operation"] is not None:
        hook = Disturbance(request["at_operation"], request["disturbance"], request["folder"], request["count_to"])
        sys.addaudithook(hook)
    if request["file_bytes"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_bytes"], request["file_bytes"]))
    if request["memory_bytes"] is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + request["memory_bytes"]
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    if request["open_files"] is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (request["open_files"], request["open_files"]))


def drop_privileges() -> None:
    """Give up what lets root read and write anything, so that permissions hold; another user needs nothing done."""
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(64):  # also for programs that are started from here
        libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP
    header, none = struct.pack("Ii", 0x20080522, 0), bytes(24)
    if libc.capset(header, none) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def run_command() -> int:
    """Call the command as its script does; a Ctrl-C counts from here on."""
    from sincere.cli import main as sincere

    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return sincere()
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        print(stop.code, file=sys.stderr)
        return 1


def replace_renderer() -> None:
    """Let the library that draws figures answer at once: seconds per command, and not what is tried here."""
    import vl_convert

    answers = {
        "vegalite_to_svg": "<svg xmlns='http://www.w3.org/2000/svg'/>",
        "svg_to_png": b"\x89PNG\r\n\x1a\n",
        "svg_to_pdf": b"%PDF-1.4\n",
        "javascript_bundle": "0;",
    }
    for name, answer in answers.items():
        setattr(vl_convert, name, lambda *a, _answer=answer, **k: _answer)


class Disturbance:
    """An audit hook that disturbs the process at its n-th change of a file below a folder.

    Attributes:
        position: Which change; 0 is none.
        kinds: Signals ("SIGKILL") or names of errors ("ENOSPC") that this change and the ones after it meet.
        folder: Where changes count.
        count_to: File that takes the number of changes, when it is given.
    """

    def __init__(self, position: int, kinds: str, folder: str, count_to: str | None) -> None:
        self.position, self.kinds, self.folder, self.count_to = position, kinds.split(), folder, count_to
        self.count = 0

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Count and disturb."""
        if event == "open":
            changing = isinstance(arguments[2], int) and bool(arguments[2] & _WRITING)
        else:
            changing = event in CHANGES
        if not changing or not isinstance(arguments[0], str | bytes | os.PathLike):
            return
        path = os.path.abspath(os.fsdecode(arguments[0]))
        if not path.startswith(self.folder):
            return
        self.count += 1
        if self.count_to is not None:
            self._store()
        if self.position and self.position <= self.count < self.position + len(self.kinds):
            kind = self.kinds[self.count - self.position]
            if kind in ROOM and event in TAKING_NO_ROOM:
                self.position += 1  # this one cannot fail so; the next one may
            else:
                self._disturb(kind, path)

    def _store(self) -> None:
        assert self.count_to is not None
        file = os.open(self.count_to, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(file, str(self.count).encode())
        os.close(file)

    @staticmethod
    def _disturb(kind: str, path: str) -> None:
        if kind.startswith("SIG"):
            os.kill(os.getpid(), signal.Signals[kind])
        else:
            number = getattr(errno, kind)
            raise OSError(number, os.strerror(number), path)


if __name__ == "__main__":
    main()
    os._exit(0)  # at once: libraries complain when the interpreter takes them down
