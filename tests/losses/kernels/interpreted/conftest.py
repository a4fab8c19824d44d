"""Tests of the Triton kernels in Triton's interpreter, which must be chosen before Triton is imported.

`tests/losses/kernels/test_triton.py` runs them in processes of their own, so that no other test meets the interpreter.
By hand: `TRITON_INTERPRET=1 pytest tests/losses/kernels/interpreted`.
"""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["test_*.py"]
