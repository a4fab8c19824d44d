"""Tensor types with shapes, checked in the test run (see tests/conftest.py) and free otherwise.

Legend: n anchors, m keys, d dimensions. Inside the losses every view is a row of its own, so n counts
images times views.
"""

from __future__ import annotations

from jaxtyping import Float, Int64
from torch import Tensor

Rows = Float[Tensor, "n d"]
KeyRows = Float[Tensor, "m d"]
PerAnchor = Float[Tensor, " n"]
AnchorIds = Int64[Tensor, " n"]
KeyIds = Int64[Tensor, " m"]
Scalar = Float[Tensor, ""]
