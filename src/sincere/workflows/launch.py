"""Processes that share a run: starting them, and putting their results together."""

from __future__ import annotations

import atexit
import logging
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.strategies.ddp import DDPStrategy
from lightning_fabric.strategies.launchers import subprocess_script
from torch import Tensor

from sincere import checks
from sincere.data.dataset import Samples
from sincere.data.loader import plain_batches
from sincere.errors import DataError, InputValueError, first_line
from sincere.evaluation.embed import EmbeddedImages, embed
from sincere.losses.distributed.collectives import gather, sizes_of
from sincere.models.embedding import EmbeddingModel
from sincere.settings.machine import ClusterSettings
from sincere.training.fit import TrainingError
from sincere.workflows.hardware import choose_precision

COMMUNICATION = ("gloo", "nccl", "connection", "socket")  # words of what it raises
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"  # name of the interface
WATCHER_SECONDS = 8.0  # Fabric looks at its processes every five


def start_processes(settings: ClusterSettings, device: torch.device) -> Fabric:
    """Start the processes that the settings ask for, unless torchrun or SLURM has; each gets its own Fabric.

    Without such a launcher the other processes of this machine run the same command again. One that dies takes all
    down within seconds, and its rank is printed.
    """
    n_processes = settings.devices * settings.nodes
    many = n_processes > 1
    started = int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else None  # by torchrun
    if started is not None and started != n_processes:
        requirement = f"devices x nodes must be {started}, the processes that torchrun has started"
        raise InputValueError(checks.wording("train", requirement, n_processes))
    try:
        fabric = Fabric(
            accelerator=device.type,
            devices=settings.devices,
            num_nodes=settings.nodes,
            strategy=(LoopbackStrategy() if settings.nodes == 1 else "ddp") if many else "auto",
            precision=cast(Any, choose_precision(settings.precision, device)),
            # A single process needs no launcher, whatever SLURM has set.
            plugins=None if many else LightningEnvironment(),
        )
    except (RuntimeError, ValueError) as error:
        raise InputValueError(f"train: the processes cannot be started ({first_line(error)})") from error
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    if many:
        watcher = logging.getLogger(subprocess_script.__name__)
        watcher.setLevel(logging.INFO)
        if not watcher.handlers:
            watcher.addHandler(logging.StreamHandler(sys.stderr))
            watcher.propagate = False
    try:
        fabric.launch()
    except ValueError as error:  # Fabric's check of what SLURM has set
        raise InputValueError(f"train: the processes cannot be started ({first_line(error)})") from error
    if many:
        atexit.register(_leave_process_group)  # gloo's threads that are left to the end of the process may abort it
    return fabric


def _leave_process_group() -> None:
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


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


def is_follower() -> bool:
    """Tell whether another process has started this one to share its run."""
    return any(int(os.environ.get(name, "0")) > 0 for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID"))


@contextmanager
def in_turn(fabric: Fabric) -> Iterator[None]:
    """Let the first process do something before the others, who find its files."""
    if not fabric.is_global_zero:
        fabric.barrier()
    yield
    if fabric.is_global_zero:
        fabric.barrier()


@contextmanager
def report_lost_processes(fabric: Fabric) -> Iterator[None]:
    """Turn what communication raises when another process is gone into one line.

    The watcher of the processes of this machine is quicker or as quick, and says which one it was: it gets its time.

    Raises:
        TrainingError: Another process is gone.
    """
    try:
        yield
    except RuntimeError as error:
        if fabric.world_size == 1 or not any(word in str(error).lower() for word in COMMUNICATION):
            raise
        time.sleep(WATCHER_SECONDS)
        lost = f"process {fabric.global_rank} of {fabric.world_size} lost another one"
        remedy = "resume with --resume"
        raise TrainingError(f"train: {lost} ({first_line(error)}); {remedy}") from error


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
    sizes = sizes_of(len(labels), None, labels.device)
    return gather(embeddings.contiguous(), sizes, None), gather(labels, sizes, None)


@torch.no_grad()
def embed_shared(model: EmbeddingModel, images: Samples, fabric: Fabric) -> EmbeddedImages:
    """Embed a set, each process a part of it; all get all, in order. The first process's running statistics count."""
    if fabric.world_size == 1:
        return embed(model.embed, plain_batches(images, device=fabric.device))
    for buffer in model.buffers():
        torch.distributed.broadcast(buffer, 0)
    edges = [len(images) * rank // fabric.world_size for rank in range(fabric.world_size + 1)]
    own = torch.arange(edges[fabric.global_rank], edges[fabric.global_rank + 1]).numpy()
    sizes = [end - start for start, end in pairwise(edges)]
    if len(own):
        own_part = embed(model.embed, plain_batches(images.subset(own), device=fabric.device))
    else:
        none = torch.zeros(0, dtype=torch.int64, device=fabric.device)
        own_part = EmbeddedImages(torch.zeros(0, model.spec.dim, device=fabric.device), none, none)
    return EmbeddedImages(*(gather(part, sizes, None) for part in (own_part.embeddings, own_part.labels, own_part.ids)))
