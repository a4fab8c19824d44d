"""What holds for all tests: shape checks of the kernels, which the package never pays for, and a cache of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from jaxtyping import install_import_hook

import sincere

# Before anything imports the kernels. Those in Triton's language are no Python functions that could be checked.
KERNELS = [path.stem for path in (Path(sincere.__file__).parent / "losses" / "kernels").glob("*.py")]
CHECKED = [f"kernels.{name}" for name in KERNELS if name not in ("__init__", "triton_kernels")]
install_import_hook([f"sincere.losses.{name}" for name in (*CHECKED, "pairs", "equations")], "beartype.beartype")

# On a person's machine Hypothesis looks for new examples each time; CI tests a change, not luck.
settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("ci")

# On a CPU that announces AMX but cannot run it, tests of bfloat16 take its older instructions: before any arithmetic.
from sincere.workflows.hardware import runs_bfloat16  # noqa: E402

if not runs_bfloat16():
    os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"
    runs_bfloat16.cache_clear()

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # one process per core already


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing is read from or written to the cache of the person who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SINCERE_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
