"""The processes that share a batch: what `group` and `exchange` of a loss mean and what they can be combined with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.distributed as dist

from sincere import checks
from sincere.errors import InputTypeError, InputValueError, UnsupportedError
from sincere.losses.options import EXCHANGES

WORLD = "world"


def check_group(caller: str, options: Mapping[str, Any]) -> None:
    """Raise unless the options `group` and `exchange` are right by themselves."""
    checks.choice(caller, "exchange", options["exchange"], EXCHANGES)
    group = options["group"]
    if group is None or group == WORLD:
        return
    requirement = f'group must be None, "{WORLD}" or a torch.distributed.ProcessGroup'
    if group is getattr(getattr(dist, "GroupMember", None), "NON_GROUP_MEMBER", ()):
        got = "a group that this process is not a member of"
        raise InputValueError(checks.wording(caller, requirement, got, "Call the loss in the group's processes only"))
    if not dist.is_available() or not isinstance(group, dist.ProcessGroup):
        got = repr(group) if isinstance(group, str) else type(group).__name__
        raise InputTypeError(checks.wording(caller, requirement, got))


def find_group(caller: str, options: Mapping[str, Any]) -> dist.ProcessGroup | None:
    """Return the processes whose batch a loss is computed on; None for this process alone.

    Combinations that do not exist are refused with one process, too, so that a script that runs there runs on many.

    Raises:
        InputTypeError, InputValueError: `group` or `exchange` is wrong.
        UnsupportedError: It cannot be combined with another option.
    """
    check_group(caller, options)
    group = options["group"]
    if group is None:
        return None
    for name in ("keys", "key_labels", "anchor_index"):
        if options[name] is not None:
            remedy = "the keys are the rows of all processes; use group=None with keys that you gathered yourself"
            raise UnsupportedError(f"{caller}: {name} cannot be combined with group: {remedy}")
    if options["exchange"] == "ring" and options["kernel"] != "auto":
        remedy = 'the ring has a kernel of its own; use kernel="auto", or exchange="gather"'
        raise UnsupportedError(
            f'{caller}: kernel="{options["kernel"]}" cannot be combined with exchange="ring": {remedy}'
        )
    if group == WORLD:
        if not (dist.is_available() and dist.is_initialized()):
            return None
        group = dist.group.WORLD
    processes: dist.ProcessGroup = group
    return processes if dist.get_world_size(processes) > 1 else None


def default_as_none(group: dist.ProcessGroup) -> dist.ProcessGroup | None:
    """Return None for the default group, so that a graph that outlives the processes keeps no connection of theirs."""
    return None if group is dist.group.WORLD else group
