"""The comparison with the oracle can fail: faults that are put into the kernels on purpose are all caught by it."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from sincere.losses.kernels import triton_kernels, triton_ops
from sincere.losses.kernels.result import LossAndGradient
from tests.losses.kernels.interpreted.kernel_problems import KERNEL_PROBLEMS, largest_error

SOURCE = Path(triton_kernels.__file__).read_text()
TOLERANCE = 1e-5

# What is wrong: the kernel or function in which, the text that is replaced, and by what; each text is there once.
FAULTS = {
    "dimensions past the end are read": ("load_tile", "if D % CHUNK != 0:", "if False:"),
    "the last chunk of dimensions is left out": ("similarity_tile", "range(CHUNK, D, CHUNK)", "range(CHUNK, 0, CHUNK)"),
    "the scales of columns are ignored": ("similarity_tile", " * scales[None, :]", ""),
    "the last near tile counts as far": ("tile_ranges", "tl.cdiv(tl.max(last, axis=0), BLOCK_COLUMNS)", "near_start"),
    "the first near tile counts as far": (
        "tile_ranges",
        "tl.min(first, axis=0) // BLOCK_COLUMNS",
        "tl.cdiv(tl.min(first, axis=0), BLOCK_COLUMNS)",
    ),
    "splits overlap": ("tile_ranges", "tl.program_id(1) * tiles_per_split", "tl.program_id(1)"),
    "an anchor of another class is its own negative": ("log_denominators_kernel", "part == 1 or KEYED", "part == 1"),
    "positives are negatives": (
        "log_denominators_kernel",
        "part == 1 and not WITH_POSITIVES",
        "part == 1 and WITH_POSITIVES",
    ),
    "one negative too few": ("log_denominators_kernel", "< last[:, None]", "<= last[:, None]"),
    "the sum is not rescaled": ("log_denominators_kernel", "total * tl.exp(largest - finite)", "total"),
    "columns past the end are negatives": (
        "log_denominators_kernel",
        'mask=columns < m, other=float("-inf")',
        "mask=columns < m, other=0.0",
    ),
    "splits overwrite each other": ("log_denominators_kernel", "out + tl.program_id(1) * n + rows", "out + rows"),
    "no margin in the loss": ("positive_sums_kernel", " + epsilon", ""),
    "an anchor is its own positive": ("positive_sums_kernel", " & (columns[None, :] != itself[:, None])", ""),
    "softplus of the other sign": ("positive_sums_kernel", "tl.where(x < 0, -x, 0.0)", "tl.where(x > 0, x, 0.0)"),
    "sigmoid of the other sign": ("positive_sums_kernel", "tl.where(x < 0, 1.0, e) / u", "tl.where(x > 0, 1.0, e) / u"),
    "no margin in the gradient": ("coefficients", "t - epsilon", "t"),
    "positives repel": ("coefficients", "-pull / (1.0 + e)", "pull / (1.0 + e)"),
    "positives in the denominator are not attracted": ("coefficients", "tl.where(same, c - pull, c)", "c"),
    "an anchor attracts itself": ("coefficients", "itself | ", ""),
    "a far anchor repels itself": ("coefficients", "elif KEYED:", "elif False:"),
    "keys repel with the weight of positives": (
        "gradient_kernel",
        "column_statistics + m +",
        "column_statistics + 2 * m +",
    ),
    "weights of rows as keys are ignored": ("gradient_kernel", "s + bias_of_rows[:, None]", "s"),
    "weights of columns as keys are ignored": ("gradient_kernel", "s + bias[None, :]", "s"),
    "scales are missing in the gradient": ("gradient_kernel", "c * scales[None, :]", "c"),
    "the temperature is missing in the gradient": ("gradient_kernel", " * tl.load(inverse_temperature)", ""),
    "the gradient's second piece repeats the first": ("gradient_kernel", "m, first_out, D, OUT", "m, 0, D, OUT"),
}


@cache
def expected(problem: str) -> LossAndGradient:
    return KERNEL_PROBLEMS[problem].expected()


def faulty_source(function: str, right: str, wrong: str) -> str:
    start = SOURCE.index(f"def {function}(")
    stop = SOURCE.find("@triton.jit", start)
    stop = len(SOURCE) if stop == -1 else stop
    body = SOURCE[start:stop]
    assert body.count(right) == 1, f"{right!r} is {body.count(right)} times in {function}"
    return SOURCE[:start] + body.replace(right, wrong) + SOURCE[stop:]


def load(source: str, path: Path) -> ModuleType:
    path.write_text(source)  # the interpreter reads the source of what it runs
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def caught_by(monkeypatch: pytest.MonkeyPatch, kernels: ModuleType) -> str | None:
    """Return the first problem whose answer is wrong, None if all are right."""
    monkeypatch.setattr(triton_ops, "_kernels", lambda: kernels)
    for name, problem in KERNEL_PROBLEMS.items():
        if largest_error(problem.solve(), expected(name)) > TOLERANCE:
            return name
    return None


def test_no_fault_is_seen_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert caught_by(monkeypatch, load(SOURCE, tmp_path / "copied.py")) is None


OFTEN = 12  # every second one or so, from all kernels; the others are slow tests
QUICK = list(FAULTS)[:: len(FAULTS) // OFTEN]


@pytest.mark.parametrize(
    "fault", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in FAULTS]
)
def test_fault_is_caught(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = load(faulty_source(*FAULTS[fault]), tmp_path / "faulty.py")
    caught = caught_by(monkeypatch, kernels)
    print(f"{fault}: {caught}")
    assert caught is not None
