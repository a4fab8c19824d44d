"""Settings are bounded, so that no value overflows somewhere deep; a run's stored ones are protected by a checksum."""

from __future__ import annotations

from pathlib import Path

import pytest

from sincere.errors import DataError, InputValueError
from sincere.records.comparing import CompareRequest
from sincere.records.config import TrainRequest, TrainSettings, read_config, read_settings, write_config
from sincere.records.measuring import MeasureSettings

NUMBERS = [
    (record, name)
    for record in (TrainRequest, MeasureSettings, CompareRequest)
    for name, field in record.model_fields.items()
    if name not in ("seed", "seeds") and ("int" in str(field.annotation) or "float" in str(field.annotation))
]


@pytest.mark.parametrize("value", [10**30, -1, float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(("record", "name"), NUMBERS)
def test_no_number_is_without_bounds(record: type[TrainRequest], name: str, value: float) -> None:
    unbounded = {"temperature", "learning_rate", "weight_decay", "clip_norm", "epsilon"}  # any finite number
    if name in unbounded and value in (10**30, -1):
        return
    given = (value,) if name == "ks" else value
    with pytest.raises(InputValueError, match=rf"settings: {name}"):
        record.make(**{name: given})


def test_a_stored_configuration_comes_back_and_every_change_is_noticed(tmp_path: Path) -> None:
    settings = TrainSettings(data="caf\udce9/photos", classes=("a", "b"), epochs=3)
    write_config(settings, tmp_path)
    assert TrainSettings.make(**read_config(tmp_path)) == settings
    path = tmp_path / "config.toml"
    content = path.read_bytes()
    for position in range(0, len(content) - 65, 7):  # the checksum itself comes last
        changed = bytearray(content)
        changed[position] ^= 1
        path.write_bytes(changed)
        with pytest.raises(DataError):
            read_config(tmp_path)
    path.write_bytes(b"")
    with pytest.raises(DataError, match="was damaged or changed since the run began"):
        read_config(tmp_path)


def test_a_copy_may_be_edited_and_used_as_a_configuration(tmp_path: Path) -> None:
    write_config(TrainSettings(epochs=3), tmp_path)
    path = tmp_path / "config.toml"
    path.write_text(path.read_text().replace("epochs = 3", "epochs = 4"))
    assert read_settings(path)["epochs"] == 4
    with pytest.raises(DataError, match="was damaged or changed since the run began"):
        read_config(tmp_path)


def test_a_setting_called_like_an_argument_is_unknown() -> None:
    with pytest.raises(InputValueError, match="cls is not a setting"):
        TrainSettings.make(**{"cls": 1})
