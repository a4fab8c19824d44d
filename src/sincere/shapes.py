"""Tensor types with shapes, checked in the test run (see tests/conftest.py) and free otherwise.

Legend: n anchors, m keys, d dimensions. Inside the losses every view is a row of its own, so n counts
images times views. Without jaxtyping, which only the tests need, every one of them is a plain `Tensor`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from typing import Annotated as Float
    from typing import Annotated as Int64
else:
    try:
        from jaxtyping import Float, Int64
    except ModuleNotFoundError:

        class Float:
            """A tensor type whose shape nobody checks."""

            def __class_getitem__(cls, tensor_and_shape: tuple[type, str]) -> type:
                return tensor_and_shape[0]

        Int64 = Float

Rows = Float[Tensor, "n d"]
KeyRows = Float[Tensor, "m d"]
PerAnchor = Float[Tensor, " n"]
AnchorIds = Int64[Tensor, " n"]
KeyIds = Int64[Tensor, " m"]
Scalar = Float[Tensor, ""]
PerKey = Float[Tensor, " m"]
LabelRows = Float[Tensor, "n labels"]
KeyLabelRows = Float[Tensor, "m labels"]
