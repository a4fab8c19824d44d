"""What the trials of a loss say: where to look further, and how many are as good."""

from __future__ import annotations

from typing import Any

import pytest

from sincere.records.search import Dimension, TrialRow
from sincere.settings.search_space import parse_space
from sincere.tuning.winner import find_winner


@pytest.mark.parametrize(
    ("space", "value", "expected"),
    [
        ("weight_decay=0:0.1", 0.0, None),
        ("momentum=0.5:0.9", 0.5, "momentum=0.12:0.9"),
        ("n_views=1:4", 1, None),
        ("n_views=1,2,3", 1, None),
        ("epochs=10:100", 100, "epochs=25:400"),
        ("batch_size=4:64", 4, "batch_size=2:8"),
        ("feature_dropout=0.3,0.6,0.9", 0.9, None),
        ("temperature=0.02:0.5", 0.5, "temperature=0.12:2"),
        ("temperature=0.02:0.5", 0.1, None),
        ("head=mlp,linear", "mlp", None),
        ("epsilon=0:1", 0.0, None),
        ("epsilon=0,0.1,0.2", 0.0, None),
    ],
)
def test_what_to_try_next_can_be_tried(space: str, value: Any, expected: str | None) -> None:
    (dimension,) = parse_space([space]).values()
    row = TrialRow(loss="sincere", number=0, state="complete", value=0.9, settings={dimension.name: value})
    found = find_winner("sincere", [dimension], [row], n_validation=100, importance={})
    assert [edge.next for edge in found.edges] == ([] if expected is None else [expected])


def test_all_right_still_has_a_standard_error() -> None:
    dimension = Dimension(name="temperature", low=0.02, high=0.5, log=True)
    rows = [TrialRow(loss="sincere", number=i, state="complete", value=value, settings={"temperature": 0.1})
            for i, value in enumerate((1.0, 0.995, 0.9))]  # fmt: skip
    found = find_winner("sincere", [dimension], rows, n_validation=200, importance={})
    assert (found.trial, found.n_close) == (0, 1)
