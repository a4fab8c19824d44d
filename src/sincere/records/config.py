"""config.toml: the settings of a run, with a checksum in the last line."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import Any

import tomli_w

from sincere.errors import DataError
from sincere.records.files import read_bytes, write_atomic

CONFIG = "config.toml"
_SEAL = "# SHA-256 of the lines above: "


def write_config(settings: dict[str, Any], folder: Path) -> None:
    """Write config.toml with a checksum in its last line."""
    text = tomli_w.dumps(settings)
    write_atomic(folder / CONFIG, f"{text}{_SEAL}{_sha256(text)}\n")


def read_config(folder: Path) -> dict[str, Any]:
    """Return the settings of a run, unchecked.

    Raises:
        DataError: There are none, or they were changed since the run began.
    """
    path = folder / CONFIG
    text = _read_text(path)
    content, _, stored = text.partition(_SEAL)
    if stored.strip() != _sha256(content):
        remedy = "restore it, or start over with --overwrite"
        raise DataError(f"{path}: was damaged or changed since the run began: its checksum does not match; {remedy}")
    return _parsed(path, text)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def read_settings(path: Path) -> dict[str, Any]:
    """Return the settings in a TOML file, unchecked.

    Raises:
        DataError: There is no such file, or it is no TOML.
    """
    return _parsed(path, _read_text(path))


def _read_text(path: Path) -> str:
    try:
        return read_bytes(path).decode("utf-8", "surrogateescape")  # names of files may be of any bytes
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also of numbers with thousands of digits
        raise DataError(f"{path}: is not readable TOML ({error})") from error
