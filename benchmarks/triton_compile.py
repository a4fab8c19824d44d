"""`python -m benchmarks.triton_compile`: compile the Triton kernels for GPUs that are not here.

Triton's ahead-of-time compiler and the ptxas of its wheel give registers, spills and shared memory for sm_80 (A100),
sm_90 (H100) and sm_100 (B200); from these follow the occupancy and, with `benchmarks.triton_roofline`, an estimate of
the time. Nothing is run. Writes results/triton.json; fails if a kernel spills at the block sizes that are chosen.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.metadata
import io
import json
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from benchmarks.measure import RESULTS, write
from benchmarks.triton_roofline import rooflines
from sincere.losses.kernels import triton_kernels
from sincere.losses.kernels.triton_ops import Blocks, choose_blocks

TRITON = importlib.metadata.version("triton")
SOURCE_SHA256 = hashlib.sha256(Path(triton_kernels.__file__).read_bytes()).hexdigest()
ARCHITECTURES = {80: "A100", 90: "H100", 100: "B200"}
TYPES = {  # name in the tables: type, Triton's type, whether in tf32
    "bfloat16": (torch.bfloat16, "bf16", False),
    "float16": (torch.float16, "fp16", False),
    "float32 in tf32": (torch.float32, "fp32", True),
    "float32": (torch.float32, "fp32", False),
}
INTEGERS = ("ranges", "self_index", "row_self", "column_self")
SCALARS = {"epsilon": "fp32", "n": "i32", "m": "i32", "tiles_per_split": "i32"}
FLAGS: dict[str, tuple[str, dict[str, bool]]] = {  # title: kernel, what it is compiled for besides types and sizes
    f"{title}, {loss}": (kernel, {**flags, "WITH_POSITIVES": loss == "SupCon"})
    for loss in ("SINCERE", "SupCon")
    for title, kernel, flags in (
        ("denominators, batch", "log_denominators", {"KEYED": False}),
        ("denominators, keys", "log_denominators", {"KEYED": True}),
        ("positives", "positive_sums", {}),
        ("gradient, batch", "gradient", {"AS_ANCHORS": True, "AS_KEYS": True}),
        ("gradient of anchors", "gradient", {"AS_ANCHORS": True, "AS_KEYS": False}),
        ("gradient of keys", "gradient", {"AS_ANCHORS": False, "AS_KEYS": True}),
    )
}
MAIN = ("denominators, batch, SINCERE", "positives, SINCERE", "gradient, batch, SINCERE")
# Per multiprocessor, by architecture: bytes of shared memory (1 KB of it is reserved for each program).
SHARED_BYTES = {80: 164 * 1024, 90: 228 * 1024, 100: 228 * 1024}
REGISTERS, WARPS, PROGRAMS = 65536, 64, 32


@dataclass(frozen=True)
class Variant:
    """One kernel as it is compiled."""

    title: str
    type: str
    d: int
    architecture: int

    @property
    def blocks(self) -> Blocks:
        dtype, _, tf32 = TYPES[self.type]
        return choose_blocks(dtype, self.d, tf32=tf32, gradient=FLAGS[self.title][0] == "gradient")


def variants() -> Iterator[Variant]:
    """Yield all kernels in bfloat16 at d = 128, and the three of a step of SINCERE in all types and dimensions."""
    for architecture in ARCHITECTURES:
        for title in FLAGS:
            for kind in TYPES:
                for d in (128, 256, 1024):
                    is_main = title in MAIN and (kind != "float16" or d == 128)
                    if is_main or (kind == "bfloat16" and d == 128):
                        yield Variant(title, kind, d, architecture)


def source(variant: Variant) -> ASTSource:
    """Return what Triton compiles, as a launch with contiguous tensors would."""
    name, flags = FLAGS[variant.title]
    _, triton_type, tf32 = TYPES[variant.type]
    kernel, blocks = getattr(triton_kernels, f"{name}_kernel"), variant.blocks
    operand = {"bf16": tl.bfloat16, "fp16": tl.float16, "fp32": tl.float32}[triton_type]
    constants: dict[str, Any] = {
        **flags,
        "BLOCK_ROWS": blocks.rows,
        "BLOCK_COLUMNS": blocks.columns,
        "D": variant.d,
        "CHUNK": blocks.chunk,
        "OPERAND": operand,
        "PRECISION": "tf32" if tf32 else "ieee",
    }
    if name == "gradient":
        constants |= {
            "OUT": blocks.out,
            "GRADIENT_PRECISION": "tf32" if tf32 or triton_type != "fp32" else "ieee",
        }
    signature, attributes = {}, {}
    for i, argument in enumerate(kernel.arg_names):
        if argument in constants:
            signature[argument] = "constexpr"
        elif argument in SCALARS:
            signature[argument] = SCALARS[argument]
        else:
            values = "i32" if argument in INTEGERS else triton_type if argument.endswith("values") else "fp32"
            signature[argument] = f"*{values}"
            attributes[i,] = [["tt.divisibility", 16]]
    return ASTSource(kernel, signature, constexprs=constants, attrs=attributes)


def compile_variant(variant: Variant) -> dict[str, Any]:
    """Return registers, spilled bytes, shared memory and occupancy of a kernel."""
    start, output, blocks = time.perf_counter(), io.StringIO(), variant.blocks
    with tempfile.TemporaryDirectory() as cache, triton.knobs.cache.scope(), triton.knobs.nvidia.scope():
        triton.knobs.cache.dir = cache  # a kernel that was compiled before would not tell its registers
        triton.knobs.nvidia.dump_ptxas_log = True
        with contextlib.redirect_stdout(output):
            compiled = triton.compile(
                source(variant),
                target=GPUTarget("cuda", variant.architecture, 32),
                options={"num_warps": blocks.warps, "num_stages": blocks.stages},
            )
    registers = re.search(r"Used (\d+) registers", output.getvalue())
    spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", output.getvalue())
    assert registers is not None, output.getvalue()
    assert spills is not None, output.getvalue()
    found = {
        "registers": int(registers[1]),
        "spilled_bytes": int(spills[1]) + int(spills[2]),
        "shared_bytes": int(compiled.metadata.shared),
    }
    found["programs_per_processor"] = programs_per_processor(
        variant.architecture, found["registers"], found["shared_bytes"], blocks.warps
    )
    return {
        **asdict(variant),
        "blocks": blocks._asdict(),
        **found,
        "occupancy": found["programs_per_processor"] * blocks.warps / WARPS,
        "compile_s": round(time.perf_counter() - start, 1),
    }


def programs_per_processor(architecture: int, registers: int, shared_bytes: int, warps: int) -> int:
    """Return how many programs a multiprocessor holds: registers are given in steps of 8 per thread."""
    by_registers = REGISTERS // (-(-registers // 8) * 8 * 32 * warps)
    by_memory = SHARED_BYTES[architecture] // (shared_bytes + 1024)
    return min(by_registers, by_memory, WARPS // warps, PROGRAMS)


def kept() -> dict[Variant, dict[str, Any]]:
    """Return what the stored results know of the same kernels, compiled by the same Triton."""
    path = RESULTS / "triton.json"
    stored = json.loads(path.read_text()) if path.exists() else {}
    if (stored.get("triton"), stored.get("source_sha256")) != (TRITON, SOURCE_SHA256):
        return {}
    rows = {Variant(**{name: row[name] for name in Variant.__annotations__}): row for row in stored["kernels"]}
    return {variant: row for variant, row in rows.items() if row["blocks"] == variant.blocks._asdict()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="also compile what the stored results have already")
    known = {} if parser.parse_args().all else kept()
    compiled = []
    for variant in variants():
        compiled.append(known.get(variant) or compile_variant(variant))
        print(compiled[-1], flush=True)
    results = {"triton": TRITON, "source_sha256": SOURCE_SHA256, "kernels": compiled, "estimates": rooflines()}
    write("triton", results)
    spilled = [row for row in compiled if row["spilled_bytes"]]
    if spilled:
        raise SystemExit(f"{len(spilled)} kernels spill: {spilled}")


if __name__ == "__main__":
    main()
