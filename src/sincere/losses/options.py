"""The options that all losses share: their types, defaults and documentation, written once.

A loss function takes them as `**options: Unpack[LossOptions]`, so that type checkers and editors know every name, and
is decorated with `lists_options`, so that `help` and `inspect.signature` show them, too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, TypeVar

from torch import Tensor

from sincere.errors import InputTypeError

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

Reduction: TypeAlias = Literal["mean", "sum", "none"]
Kernel: TypeAlias = Literal["auto", "dense", "tiled", "triton"]
Exchange: TypeAlias = Literal["auto", "gather", "ring"]
LabelSimilarity: TypeAlias = Literal["overlap", "tanimoto"]
REDUCTIONS = ("mean", "sum", "none")
KERNELS = ("auto", "dense", "tiled", "triton")
EXCHANGES = ("auto", "gather", "ring")
LABEL_SIMILARITIES = ("overlap", "tanimoto")


class KeyOptions(TypedDict, total=False):
    """What the embeddings are contrasted with, if not with each other.

    Attributes:
        keys: (m, d) or (m, views, d). Contrast the embeddings with this set (a memory queue, the output of a teacher)
            instead of with each other.
        key_labels: (m,), needed with `keys`. A key with label -1 is a negative for every anchor. In `info_nce_loss`
            the label is the image, 0 to n - 1, that the key shows.
        anchor_index: (n,) or (n, views): for each anchor the row of `keys` (views counted one by one) that is the
            anchor itself and is left out; -1 for none.
        key_weights: Positive weight of each key, (m,); without `keys`, of each image among the others, (n,). A key of
            weight 2 counts as two of weight 1 in the softmax, numerator and denominator; the mean over an anchor's
            positives stays as it is. Takes no gradient.
    """

    keys: Tensor | None
    key_labels: Tensor | None
    anchor_index: Tensor | None
    key_weights: Tensor | None


class ModuleOptions(TypedDict, total=False):
    """How a loss is computed: what a module holds besides its hyper-parameters.

    Attributes:
        soft: Whether label sets, (n, L), are probabilities: two images are of one class with probability
            q = <y_i, y_j>, so that a pair counts as positive with weight q and as negative with weight 1 - q.
        label_similarity: Weight of two label sets that are not `soft`: "overlap", the number of labels they share, or
            "tanimoto", that number divided by the number of labels that either has.
        ignore_index: Rows with this label are neither anchor nor key; in a label set, a row filled with it.
        normalize: Scale embeddings and keys to unit length. A zero vector stays zero and gets a zero gradient.
        reduction: "mean" over the anchors that have a positive, "sum", or "none" for each anchor's loss in the
            embeddings' shape without d, 0 where an anchor has no positive.
        kernel: "auto", "dense" (autograd, for small batches and second derivatives), "tiled" (nothing n x m is
            stored) or "triton" (the same on CUDA in one kernel per step; for integer labels and the losses SINCERE,
            SupCon, eps-SupInfoNCE and InfoNCE). A kernel that is requested by name and cannot run raises
            UnsupportedError with the reason; "auto" takes another.
        group: None for the batch of this process alone. A `torch.distributed.ProcessGroup` for the batch of all its
            processes, each of which makes the same call with its own part, of any size; or "world" for the default
            process group, looked up at each call: without one, or with a single process, the call is the plain loss,
            so that one script serves both. "mean" and "sum" are then over the anchors of all processes, the same
            number in each; "none" returns the losses of this process's anchors. Gradients are right after the
            averaging of DistributedDataParallel: what flows back in a process is the gradient for its own rows (of
            the sum of all processes' results for "none") times the number of processes of the group, which DDP
            divides by. Without DDP, divide by it yourself. Cannot be combined with `keys`.
        exchange: How the rows of a group's processes meet: "gather" holds the rows of all processes in each, "ring"
            sends them around in blocks and holds two at a time, for 1.5 times the traffic. "auto" gathers up to
            1 GiB.
    """

    soft: bool
    label_similarity: LabelSimilarity
    ignore_index: int
    normalize: bool
    reduction: Reduction
    kernel: Kernel
    group: ProcessGroup | Literal["world"] | None
    exchange: Exchange


class LossOptions(KeyOptions, ModuleOptions, total=False):
    """All options of the loss functions; see `KeyOptions` and `ModuleOptions`."""


KEY_DEFAULTS: KeyOptions = {"keys": None, "key_labels": None, "anchor_index": None, "key_weights": None}
MODULE_DEFAULTS: ModuleOptions = {
    "soft": False,
    "label_similarity": "overlap",
    "ignore_index": -100,
    "normalize": True,
    "reduction": "mean",
    "kernel": "auto",
    "group": None,
    "exchange": "auto",
}
DEFAULTS: LossOptions = {**KEY_DEFAULTS, **MODULE_DEFAULTS}

Function = TypeVar("Function", bound=Callable[..., Any])


def lists_options(*records: type) -> Callable[[Function], Function]:
    """Return a decorator that shows the options of these records in a function's signature and help.

    The function stays as it is, with `**options`. Its docstring has an entry `**options:` in the section Args, in
    whose place the documentation of each option is put.
    """

    def decorate(function: Function) -> Function:
        own = inspect.signature(function)
        parameters = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        parameters += [parameter for record in records for parameter in _parameters(record)]
        function.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        if function.__doc__:  # python -OO has none
            function.__doc__ = _with_documentation(inspect.cleandoc(function.__doc__), records)
        return function

    return decorate


def complete_options(
    function: Callable[..., Any],
    options: Mapping[str, Any],
    defaults: Mapping[str, Any] = DEFAULTS,
    *,
    caller: str | None = None,
) -> dict[str, Any]:
    """Return the options with the defaults of those that were not given.

    Args:
        function: The function that takes them; its signature has the names to suggest.
        options: What was given.
        defaults: Every option there is.
        caller: Name for messages, if not the function's.

    Raises:
        InputTypeError: A name is no argument of the function; the message has the nearest one.
    """
    for name in options:
        if name not in defaults:
            near = get_close_matches(name, list(inspect.signature(function).parameters), n=1)
            remedy = f". Did you mean {near[0]!r}?" if near else ""
            raise InputTypeError(f"{caller or function.__name__}: unexpected keyword argument {name!r}{remedy}")
    return {**defaults, **options}


def _parameters(record: type) -> Iterator[inspect.Parameter]:
    defaults: Mapping[str, Any] = DEFAULTS
    for name, annotation in record.__annotations__.items():
        text = getattr(annotation, "__forward_arg__", annotation)  # as the annotations of the functions are shown
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=text)


def _with_documentation(docstring: str, records: tuple[type, ...]) -> str:
    """Replace the entry `**options:` of a docstring by the attributes that the records document."""
    attributes = [inspect.cleandoc(record.__doc__ or "").partition("Attributes:\n")[2] for record in records]
    lines = docstring.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("    **options:"))
    stop = start + 1
    while stop < len(lines) and lines[stop].startswith("        "):
        stop += 1
    return "\n".join([*lines[:start], *attributes, *lines[stop:]])
