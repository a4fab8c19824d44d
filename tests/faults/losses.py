"""Random batches of every loss and kernel against the formulas of `sincere.losses.equations`, in float64.

They run in processes of their own, because the suite itself computes nothing with torch: `python -m
tests.faults.losses --seed 0 --first 0 --count 500` prints a line of JSON for every batch that differs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.faults.case import Case, Kind, Verdict
from tests.faults.command import ONE_THREAD

GROUP = "losses"
KERNELS = ("dense", "tiled", "auto")
ROOT = Path(__file__).parents[2]


def verdicts(source: Path, seed: int, only: list[str] | None, *, short: bool, jobs: int) -> list[Verdict]:
    """Run all batches, or the one that `only` names."""
    first, count = 0, 500 if short else 10_000
    for name in only or []:
        if name.startswith(f"{GROUP}/batch-"):
            first, count, jobs = int(name.rsplit("-", 1)[1]), 1, 1
    share = math.ceil(count / jobs)
    environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}"}
    start = time.monotonic()
    commands = [_command(seed, first + i * share, min(share, count - i * share)) for i in range(jobs)]
    workers = [
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) for command in commands
    ]
    lines = [json.loads(line) for worker in workers for line in worker.communicate()[0].splitlines()]
    if any(worker.returncode for worker in workers):
        lines.append({"batch": -1, "detail": "the process that computes batches did not end well"})
    seconds = (time.monotonic() - start) / count
    failed = {line["batch"]: line["detail"] for line in lines}
    return [
        _verdict(number, failed.get(number), seconds)
        for number in [*range(first, first + count), *(n for n in failed if n < 0)]
    ]


def _command(seed: int, first: int, count: int) -> list[str]:
    module = [sys.executable, "-m", "tests.faults.losses"]
    return [*module, "--seed", str(seed), "--first", str(first), "--count", str(count)]


def _verdict(number: int, detail: str | None, seconds: float) -> Verdict:
    case = Case(GROUP, f"batch-{number}", lambda world: None)
    kind = Kind.SURVIVED if detail is None else Kind.WRONG
    return Verdict(case.full_name, GROUP, kind, detail or "", "", "", "", seconds)


def make_batch(seed: int, number: int) -> dict[str, Any]:
    """Return the arguments of a random batch: odd labels, views, keys, temperatures and lengths."""
    import torch

    generator = torch.Generator().manual_seed(seed * 1_000_003 + number)
    draw = lambda low, high: int(torch.randint(low, high + 1, (1,), generator=generator))  # noqa: E731
    normal = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    n, d, views = draw(1, 10), draw(1, 9), draw(1, 3)
    loss = ("sincere", "supcon", "eps-supinfonce", "infonce")[draw(0, 3)]
    n_classes = (1, 2, 3, n, 1000)[draw(0, 4)]
    shape = (n, views, d) if views > 1 else (n, d)
    batch: dict[str, Any] = {
        "loss": loss,
        "embeddings": normal(*shape) * _lengths(generator, shape),
        "labels": torch.randint(-1 if draw(0, 1) else 0, n_classes, (n,), generator=generator),
        "temperature": 10 ** (4 * float(torch.rand(1, generator=generator)) - 3),
        "epsilon": float(torch.rand(1, generator=generator)),
        "normalize": bool(draw(0, 5)),
        "weights": normal(*shape[:-1]),
    }
    if draw(0, 3) == 0:  # nearly the same rows: similarities near 1
        batch["embeddings"] = normal(d).expand(shape) + 1e-7 * normal(*shape)
    if not batch["normalize"]:
        batch["embeddings"] = torch.nn.functional.normalize(batch["embeddings"], dim=-1) * 2
    needs_keys = loss == "infonce" and views == 1
    if needs_keys or draw(0, 2) == 0:
        m = n if loss == "infonce" else draw(1, 12)
        batch["keys"] = normal(m, d) * (_lengths(generator, (m, d)) if batch["normalize"] else 1.0)
        batch["key_labels"] = torch.randint(-1, n_classes, (m,), generator=generator)
        if draw(0, 1):
            batch["anchor_index"] = torch.randint(-1, m, shape[:-1], generator=generator)
    return batch


def _lengths(generator: Any, shape: tuple[int, ...]) -> Any:
    """Return lengths of rows from tiny to huge, in half of the batches."""
    import torch

    ones = torch.ones(*shape[:-1], 1, dtype=torch.float64)
    if torch.rand(1, generator=generator) < 0.5:
        return ones
    exponents = 16 * torch.rand(*shape[:-1], 1, generator=generator, dtype=torch.float64) - 8
    return 10**exponents


def expected(batch: dict[str, Any], leaves: dict[str, Any]) -> Any:
    """Return each anchor's loss by the formulas, views as rows."""
    import torch

    from sincere.losses import equations

    pair_losses: dict[str, Callable[..., Any]] = {
        "sincere": equations.sincere_pair, "supcon": equations.supcon_pair, "infonce": equations.sincere_pair,
        "eps-supinfonce": partial(equations.eps_supinfonce_pair, epsilon=batch["epsilon"]),
    }  # fmt: skip
    unit = partial(torch.nn.functional.normalize, dim=1) if batch["normalize"] else lambda rows: rows
    embeddings = leaves["embeddings"]
    n, infonce = len(embeddings), batch["loss"] == "infonce"
    views = embeddings.shape[1] if embeddings.ndim == 3 else 1
    labels = torch.arange(n) if infonce else batch["labels"]
    labels = torch.where(labels == -1, 10_000 + torch.arange(n), labels).repeat_interleave(views)
    options: dict[str, Any] = {}
    if "keys" in batch:
        m = len(batch["keys"])
        key_labels = torch.arange(m) if infonce else batch["key_labels"]
        options["keys"] = unit(leaves["keys"])
        options["key_labels"] = torch.where(key_labels == -1, 20_000 + torch.arange(m), key_labels)
        index = batch.get("anchor_index")
        options["anchor_index"] = None if index is None else index.flatten()
    rows = unit(embeddings.reshape(-1, embeddings.shape[-1]))
    losses = equations.anchor_losses(pair_losses[batch["loss"]], rows, labels, leaves["temperature"], **options)
    return losses.view(embeddings.shape[:-1])


def computed(batch: dict[str, Any], leaves: dict[str, Any], kernel: str) -> Any:
    """Return each anchor's loss by the package's function."""
    import torch

    import sincere

    infonce = batch["loss"] == "infonce"
    options: dict[str, Any] = {"temperature": leaves["temperature"], "normalize": batch["normalize"], "kernel": kernel}
    if batch["loss"] == "eps-supinfonce":
        options["epsilon"] = batch["epsilon"]
    if "keys" in batch:
        options["keys"] = leaves["keys"]
        options["key_labels"] = torch.arange(len(batch["keys"])) if infonce else batch["key_labels"]
        options["anchor_index"] = batch.get("anchor_index")
    names = {"sincere": "sincere_loss", "supcon": "supcon_loss", "eps-supinfonce": "eps_supinfonce_loss"}
    if infonce:
        return sincere.info_nce_loss(leaves["embeddings"], reduction="none", **options)
    return getattr(sincere, names[batch["loss"]])(leaves["embeddings"], batch["labels"], reduction="none", **options)


def with_gradients(batch: dict[str, Any], loss: Callable[[dict[str, Any]], Any]) -> tuple[Any, dict[str, Any]]:
    """Return the losses and the gradients of their weighted sum."""
    import torch

    given = {name: batch[name] for name in ("embeddings", "keys") if name in batch}
    leaves = {name: value.detach().clone().requires_grad_() for name, value in given.items()}
    leaves["temperature"] = torch.tensor(batch["temperature"], dtype=torch.float64, requires_grad=True)
    losses = loss(leaves)
    (losses * batch["weights"]).sum().backward()
    return losses.detach(), {name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}


def difference(batch: dict[str, Any]) -> str | None:
    """Return in which way a kernel differs from the formulas; None if none does."""
    value, gradients = with_gradients(batch, partial(expected, batch))
    for kernel in KERNELS:
        found, found_gradients = with_gradients(batch, lambda leaves, kernel=kernel: computed(batch, leaves, kernel))
        where = f"{batch['loss']}, kernel {kernel}, temperature {batch['temperature']:.2g}"
        if not _near(found, value, scale=1 / batch["temperature"]):
            return f"{where}: value differs by {float((found - value).abs().max()):.3g}"
        for name, gradient in gradients.items():
            other = found_gradients.get(name)
            if other is None or not other.isfinite().all():
                return f"{where}: gradient of {name} is not finite"
            if not _near(_by_row(other, batch, name), _by_row(gradient, batch, name), scale=batch["temperature"] ** -2):
                return f"{where}: gradient of {name} differs"
    return None


def _by_row(gradient: Any, batch: dict[str, Any], name: str) -> Any:
    """Return a gradient free of the length of its row, which divides it."""
    if name == "temperature" or not batch["normalize"]:
        return gradient
    return gradient * batch[name].norm(dim=-1, keepdim=True)


def _near(one: Any, other: Any, *, scale: float) -> bool:
    tolerance = 1e-10 * (1 + scale) + 1e-9 * other.abs().max()
    return bool(one.isfinite().all()) and bool(((one - other).abs() <= tolerance).all())


def main() -> None:
    """Compute the batches that are asked for."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("seed", "first", "count"):
        parser.add_argument(f"--{name}", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for number in range(options.first, options.first + options.count):
        try:
            detail = difference(make_batch(options.seed, number))
        except Exception as error:
            detail = f"{type(error).__name__}: {error}"
        if detail is not None:
            print(json.dumps({"batch": number, "detail": detail}), flush=True)


if __name__ == "__main__":
    main()
