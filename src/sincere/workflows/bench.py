"""Measurements on the user's machine: losses, views, a training step, the neighbour search."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from rich.table import Table

from sincere.catalog import AUGMENTATIONS, OPTIMIZERS
from sincere.data.views import make_views
from sincere.device_memory import free_bytes
from sincere.errors import UnsupportedError
from sincere.evaluation.neighbours import find_neighbours
from sincere.losses.functional import sincere_loss
from sincere.losses.kernels.select import select
from sincere.messages import Messages
from sincere.models.embedding import build_model
from sincere.records.files import write_json
from sincere.records.manifest import make_manifest, now
from sincere.records.model import ModelSpec
from sincere.settings.bench_request import PARTS, BenchRequest
from sincere.training.optimizers import OptimizerSettings, make_optimizer
from sincere.workflows.hardware import choose_device, choose_precision
from sincere.workflows.loss_cases import buffers, make_batch, pytorch_metric_learning, step_of, three_gemms
from sincere.workflows.timing import ratio, summary, time_in_turns, wait

SCHEMA = 1
KERNELS = ("dense", "tiled", "triton")
N_CLASSES = 100
# Matrices of n x n floats that a case holds at its peak, measured at n = 8,192 on a CPU.
MATRICES = {"dense": 8, "pytorch-metric-learning": 12, "three GEMMs": 2}
VIEWS, SIDE, STEP_VIEWS = 1024, 32, 512
QUERIES, REFERENCES = 10_000, 50_000

Cases = dict[str, Callable[[], object]]


@dataclass(frozen=True, eq=False)
class Group:
    """Cases that take turns.

    Attributes:
        part: What they measure.
        size: Number of embeddings, views or test images.
        cases: What to time, by name; the first is ours, with which the others are compared.
        left_out: Why others cannot run here, by name.
    """

    part: str
    size: int
    cases: Cases
    left_out: Mapping[str, str] = field(default_factory=dict)


def run_bench(request: BenchRequest, messages: Messages | None = None) -> dict[str, Any]:
    """Measure, show a table, write a file, and return what is in it.

    Raises:
        InputValueError: There is no such device here.
    """
    messages = messages or Messages(quiet=request.quiet)
    device = choose_device(request.machine.device, caller="bench")
    if request.threads is not None:
        torch.set_num_threads(request.threads)
    started, rows, left_out = now(), [], []
    for part in dict.fromkeys(request.parts):
        messages.say(f"measuring {PARTS[part]}")
        for group in _MAKERS[part](request, device):
            times = time_in_turns(group.cases, seconds=request.seconds, least=3, device=device)
            first = next(iter(times.values()))
            for case, times_ms in times.items():
                memory = _peak_bytes(group.cases[case], device)
                about = {"part": part, "size": group.size, "case": case, "peak_extra_bytes": memory}
                rows.append({**about, **summary(times_ms), "times_as_long": 1 / ratio(times_ms, first)})
            left_out += [{"part": part, "size": group.size, "case": c, "why": w} for c, w in group.left_out.items()]
            del group
    manifest = make_manifest(seed=0, device=_device_name(device), started=started)
    del manifest["command"], manifest["git_commit"]
    manifest["threads"] = torch.get_num_threads()
    content = {"schema": SCHEMA, "machine": manifest, "dim": request.dim, "rows": rows, "left_out": left_out}
    write_json(request.out, content)
    _show(content, messages)
    messages.say(f"wrote {request.out}")
    return content


def _losses(request: BenchRequest, device: torch.device) -> Iterator[Group]:
    for n in dict.fromkeys(request.batch_sizes):
        batch = make_batch(n, request.dim, N_CLASSES, device)
        named = {kernel: partial(step_of(sincere_loss, kernel=kernel), batch) for kernel in KERNELS}
        named["pytorch-metric-learning"] = partial(pytorch_metric_learning, batch)
        named["three GEMMs"] = partial(three_gemms, batch)
        left_out = {name: why for name in named if (why := _obstacle(name, named[name], n, device)) is not None}
        chosen = select("auto", n_anchors=n, n_keys=n, device=device)
        order = [chosen, *(name for name in named if name != chosen)]
        cases: Cases = {name: named[name] for name in order if name not in left_out}
        yield Group("losses", n, cases, left_out)
        buffers.cache_clear()


def _obstacle(name: str, case: Callable[[], object], n: int, device: torch.device) -> str | None:
    """Return why a case cannot run; None if it can."""
    if name == "pytorch-metric-learning" and find_spec("pytorch_metric_learning") is None:
        return "it is not installed"
    if MATRICES.get(name, 0) * n * n * 4 > 0.75 * free_bytes(device):
        return "its matrices would not fit into memory"
    try:
        case()
    except UnsupportedError as error:  # a kernel that does not run here says why
        return str(error).partition(": ")[2] or str(error)
    return None


def _views(request: BenchRequest, device: torch.device) -> Iterator[Group]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (VIEWS, 3, SIDE, SIDE), dtype=torch.uint8, generator=generator).to(device)
    ids = torch.arange(VIEWS, device=device)
    cases: Cases = {
        name: partial(make_views, images, ids, ids, AUGMENTATIONS[name], size=SIDE, seed=0, n_views=2)
        for name in ("paper", "shifts")
    }
    yield Group("views", 2 * VIEWS, cases)


def _step(request: BenchRequest, device: torch.device) -> Iterator[Group]:
    grey = (0.5,) * 3
    spec = ModelSpec(encoder="small", head="linear", dim=request.dim, channels=3, size=SIDE, mean=grey, std=grey)
    model = build_model(spec, seed=0)
    model = model.to(device).to(memory_format=torch.channels_last)
    chosen = OPTIMIZERS["muon"]
    settings = OptimizerSettings("muon", learning_rate=chosen.learning_rate, weight_decay=chosen.weight_decay)
    optimizer = make_optimizer(model, settings)
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(STEP_VIEWS, 3, SIDE, SIDE, generator=generator).to(device)
    labels = torch.randint(10, (STEP_VIEWS,), generator=generator).to(device)

    def step(*, bfloat16: bool) -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bfloat16):
            embeddings = model(images)
        sincere_loss(embeddings.float(), labels).backward()
        optimizer.step()

    own = choose_precision("auto", device) != "32-true"
    names = {True: "small, bfloat16", False: "small, float32"}
    order = [True, False] if own else [False]
    yield Group("step", STEP_VIEWS, {names[way]: partial(step, bfloat16=way) for way in order})


def _neighbours(request: BenchRequest, device: torch.device) -> Iterator[Group]:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(QUERIES + REFERENCES, request.dim, generator=generator).to(device)
    rows = torch.nn.functional.normalize(rows, dim=1)
    labels = torch.randint(10, (len(rows),), generator=generator).to(device)
    search = partial(find_neighbours, rows[:QUERIES], labels[:QUERIES], rows[QUERIES:], labels[QUERIES:])
    yield Group("neighbours", QUERIES, {f"of {REFERENCES:,}": search})


_MAKERS: dict[str, Callable[[BenchRequest, torch.device], Iterator[Group]]] = {
    "losses": _losses,
    "views": _views,
    "step": _step,
    "neighbours": _neighbours,
}


def _peak_bytes(case: Callable[[], object], device: torch.device) -> int | None:
    """Return the memory that a case needs beyond what is there before it; None where the device does not count it."""
    if device.type != "cuda":
        return None
    wait(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    case()
    wait(device)
    return int(torch.cuda.max_memory_allocated(device)) - before


def _device_name(device: torch.device) -> str:
    return f"{device.type}: {torch.cuda.get_device_name(device)}" if device.type == "cuda" else device.type


def _show(content: Mapping[str, Any], messages: Messages) -> None:
    for why in dict.fromkeys(f"{row['case']} was left out: {row['why']}" for row in content["left_out"]):
        messages.say(why)
    if messages.quiet:
        return
    table = Table(box=None, header_style="bold")
    for column in ("measured", "size", "case", "median, ms", "quartiles, ms", "ratio"):
        table.add_column(column, justify="left" if column in ("measured", "case") else "right")
    for row in content["rows"]:
        quartiles = f"{row['low_ms']:,.1f}, {row['high_ms']:,.1f}"
        cells = (f"{row['size']:,}", row["case"], f"{row['median_ms']:,.1f}", quartiles, f"{row['times_as_long']:.2f}")
        table.add_row(row["part"], *cells)
    messages.console.print(table)
    messages.say("ratio: of the time to that of the first case of the same size, which is what is used by default")
