"""Processes that share a run: starting them, and putting their results together."""

from __future__ import annotations

import atexit
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.strategies.ddp import DDPStrategy
from lightning_fabric.strategies.launchers import subprocess_script
from torch import Tensor, nn

from sincere import checks
from sincere.data.dataset import Samples
from sincere.data.loader import plain_batches
from sincere.errors import DataError, InputValueError, SincereError, first_line
from sincere.evaluation.embed import EmbeddedImages, embed
from sincere.losses.distributed.collectives import gather, sizes_of
from sincere.messages import Messages
from sincere.records.files import LOCK, locked
from sincere.settings.machine import DevicesSettings
from sincere.training.fit import TrainingError
from sincere.workflows.hardware import choose_device, choose_precision

COMMUNICATION = ("gloo", "nccl", "connection", "socket")  # words of what it raises
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"  # name of the interface
RELEASE_SECONDS = 0.05  # in which threads that wait for Python's lock get it
WATCHER_SECONDS = 8.0  # Fabric looks at its processes every five


def start_processes(settings: DevicesSettings, *, caller: str, precision: str = "32-true") -> Fabric:
    """Start the processes that the settings ask for, unless torchrun or SLURM has; each gets its own Fabric.

    Without such a launcher the other processes of this machine run the same command again. One that dies takes all
    down within seconds, and its rank is printed.

    Args:
        settings: Device, and number of devices and machines.
        caller: Verb that needs them, for messages.
        precision: Arithmetic of training.

    Raises:
        InputValueError: The device is not there, or the processes cannot be started.
    """
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    device = choose_device(settings.device, caller=caller)
    n_processes = settings.devices * settings.nodes
    many = n_processes > 1
    started = int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else None  # by torchrun
    if started is not None and started != n_processes:
        requirement = f"devices x nodes must be {started}, the processes that torchrun has started"
        raise InputValueError(checks.wording(caller, requirement, n_processes))
    try:
        fabric = Fabric(
            accelerator=device.type,
            devices=settings.devices,
            num_nodes=settings.nodes,
            strategy=(LoopbackStrategy() if settings.nodes == 1 else "ddp") if many else "auto",
            precision=cast(Any, choose_precision(precision, device)),
            # A single process needs no launcher, whatever SLURM has set.
            plugins=None if many else LightningEnvironment(),
        )
    except (RuntimeError, ValueError) as error:
        raise InputValueError(f"{caller}: the processes cannot be started ({first_line(error)})") from error
    if many:
        watcher = logging.getLogger(subprocess_script.__name__)
        watcher.setLevel(logging.INFO)
        if not watcher.handlers:
            watcher.addHandler(logging.StreamHandler(sys.stderr))
            watcher.propagate = False
    try:
        fabric.launch()
    except ValueError as error:  # Fabric's check of what SLURM has set
        raise InputValueError(f"{caller}: the processes cannot be started ({first_line(error)})") from error
    if many:
        atexit.register(_leave_process_group)  # gloo's threads that are left to the end of the process may abort it
    return fabric


def _leave_process_group() -> None:
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
        # DDP keeps gloo's threads alive all the same. One that waits for Python's lock, to release a tensor, would
        # abort the process when Python shuts down: it gets the lock now.
        time.sleep(RELEASE_SECONDS)


class LoopbackStrategy(DDPStrategy):
    """DDP for the processes of one machine, which listen on its loopback interface alone.

    Under torchrun and SLURM, which meet over the network, it is DDP as usual.
    """

    def _setup_distributed(self) -> None:
        environment = self.cluster_environment
        if isinstance(environment, LightningEnvironment) and not torch.distributed.is_initialized():
            for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
                os.environ.setdefault(name, LOOPBACK)
            rank, size = self.local_rank, self.num_processes
            store = _loopback_store(environment.main_port, rank, size)
            backend = self._get_process_group_backend()
            where = self.root_device if self.root_device.type != "cpu" else None
            torch.distributed.init_process_group(
                backend, rank=rank, world_size=size, store=store, timeout=self._timeout, device_id=where
            )
        super()._setup_distributed()


def _loopback_store(port: int, rank: int, size: int) -> Any:
    """Return the store at which the processes of one machine meet."""
    options: dict[str, Any] = {"world_size": size, "is_master": rank == 0, "use_libuv": False}
    if rank == 0:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(size)
        options["master_listen_fd"] = listener.detach()
    return cast(Any, torch.distributed).TCPStore("127.0.0.1", port, **options)


@contextmanager
def in_turn(fabric: Fabric) -> Iterator[None]:
    """Let the first process do something before the others, who find its files."""
    if not fabric.is_global_zero:
        fabric.barrier()
    yield
    if fabric.is_global_zero:
        fabric.barrier()


def speaker(fabric: Fabric, messages: Messages) -> Messages:
    """Return how a process speaks: the first one as it is told to, the others not at all."""
    return messages if fabric.is_global_zero else Messages(silent=True)


def locked_by_first(fabric: Fabric, folder: Path, name: str = LOCK) -> AbstractContextManager[None]:
    """Keep other commands out of a folder, in the first of the processes that share this one.

    Raises:
        DataError: Another command is there.
    """
    return locked(folder, name) if fabric.is_global_zero else nullcontext()


@contextmanager
def report_lost_processes(
    fabric: Fabric, caller: str = "train", remedy: str = "resume with --resume"
) -> Iterator[None]:
    """Turn what communication raises when another process is gone into one line.

    The watcher of the processes of this machine is quicker or as quick, and says which one it was: it gets its time.
    Where the first process fails, it says why itself, and ends those that it has started.

    Raises:
        TrainingError: Another process is gone.
    """
    try:
        yield
    except SincereError:
        for process in getattr(fabric.strategy.launcher, "procs", ()):
            process.kill()
        raise
    except RuntimeError as error:
        if fabric.world_size == 1 or not any(word in str(error).lower() for word in COMMUNICATION):
            raise
        time.sleep(WATCHER_SECONDS)
        lost = f"process {fabric.global_rank} of {fabric.world_size} lost another one"
        raise TrainingError(f"{caller}: {lost} ({first_line(error)}); {remedy}") from error


def check_same_step(fabric: Fabric, step: int, folder: Path) -> None:
    """Raise unless all processes resume from the same step.

    Raises:
        DataError: They see different folders.
    """
    if fabric.broadcast(step) != step:
        raise DataError(f"{folder}: is at another step for the first process; all must see the same folder")


def whole_batch(embeddings: Tensor, labels: Tensor, *, fabric: Fabric) -> tuple[Tensor, Tensor]:
    """Return the embeddings and labels of a batch from all processes that share it."""
    if fabric.world_size == 1:
        return embeddings, labels
    sizes = sizes_of(len(labels), None)
    return gather(embeddings.contiguous(), sizes, None), gather(labels, sizes, None)


def share_statistics(model: nn.Module, fabric: Fabric) -> None:
    """Give all processes the running statistics of the first one."""
    if fabric.world_size > 1:
        for buffer in model.buffers():
            torch.distributed.broadcast(buffer, 0)


@torch.no_grad()
def embed_shared(compute: Callable[[Tensor], Tensor], images: Samples, fabric: Fabric, *, width: int) -> EmbeddedImages:
    """Embed a set, each process a part of it; all get all, in order.

    Args:
        compute: Maps images or features to outputs (n, width).
        images: The set.
        fabric: The processes.
        width: Length of an output.
    """
    if fabric.world_size == 1:
        return embed(compute, plain_batches(images, device=fabric.device))
    edges = [len(images) * rank // fabric.world_size for rank in range(fabric.world_size + 1)]
    own = torch.arange(edges[fabric.global_rank], edges[fabric.global_rank + 1]).numpy()
    sizes = [end - start for start, end in pairwise(edges)]
    if len(own):
        own_part = embed(compute, plain_batches(images.subset(own), device=fabric.device))
    else:
        none = torch.zeros(0, dtype=torch.int64, device=fabric.device)
        labels = none.view(0, *images.labels.shape[1:])
        own_part = EmbeddedImages(torch.zeros(0, width, device=fabric.device), labels, none)
    return EmbeddedImages(*(gather(part, sizes, None) for part in (own_part.embeddings, own_part.labels, own_part.ids)))
