"""`python -m benchmarks.extras`: how much each extra adds on disk to an installation, here and now."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

from packaging.requirements import Requirement

from benchmarks.measure import RESULTS, machine

OWN, BASE = "sincere", ""
DEVELOPMENT = ("bench", "dev", "docs", "test")


def needed(package: str, extra: str, found: dict[tuple[str, str], None]) -> set[str]:
    """Return the names of all packages that a package with an extra needs, itself included."""
    if (package, extra) in found:
        return set()
    found[package, extra] = None
    names = {package}
    try:
        requirements = distribution(package).requires or []
    except PackageNotFoundError:  # for another platform
        return set()
    for text in requirements:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            name = requirement.name.lower().replace("_", "-")
            for wanted in {BASE, *requirement.extras}:
                names |= needed(name, wanted, found)
    return names


def size_bytes(package: str) -> int:
    """Return the size of the files of an installed package."""
    try:
        files = distribution(package).files or []
    except PackageNotFoundError:
        return 0
    return sum(path.stat().st_size for file in files if (path := file.locate()).is_file())  # type: ignore[attr-defined]


def measure() -> dict[str, Any]:
    """Return the packages and the size that `pip install sincere` brings, and what each extra adds to it."""
    extras = [name for name in distribution(OWN).metadata.get_all("Provides-Extra") or [] if name not in DEVELOPMENT]
    base = needed(OWN, BASE, {}) - {OWN}
    rows = [{"extra": "", "packages": len(base), "bytes": sum(map(size_bytes, base))}]
    for extra in extras:
        added = needed(OWN, extra, {}) - {OWN} - base
        rows.append({"extra": extra, "packages": len(added), "bytes": sum(map(size_bytes, added))})
    return {"machine": machine(), "extras": rows}


if __name__ == "__main__":
    (RESULTS / "extras.json").write_text(json.dumps(measure(), indent=1) + "\n")
