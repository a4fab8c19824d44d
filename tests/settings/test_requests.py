"""Settings are bounded, so that no value overflows somewhere deep; a run's stored ones are protected by a checksum."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sincere.errors import DataError, InputValueError
from sincere.records.config import read_config, read_settings, write_config
from sincere.settings.evaluation_requests import EvaluateRequest
from sincere.settings.record import Request
from sincere.settings.requests import CompareRequest, RunSettings, TrainRequest, differing
from sincere.settings.search_request import SearchRequest
from sincere.settings.verbs import REQUESTS

NUMBERS = [
    (record, setting.name)
    for record in (TrainRequest, EvaluateRequest, CompareRequest, SearchRequest)
    for setting in record.settings()
    if setting.name not in ("seed", "seeds")
    and ("int" in str(setting.annotation) or "float" in str(setting.annotation))
    and "Path" not in str(setting.annotation)
]


@pytest.mark.parametrize("value", [10**30, -1, float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(("record", "name"), NUMBERS)
def test_no_number_is_without_bounds(record: type[Request], name: str, value: float) -> None:
    unbounded = {
        "temperature",
        "learning_rate",
        "encoder_lr",
        "weight_decay",
        "clip_norm",
        "epsilon",
    }  # any finite number
    if name in unbounded and value == 10**30:
        return
    given = (value,) if name == "ks" else value
    run = {"run": "x"} if record is EvaluateRequest else {}
    with pytest.raises(InputValueError, match=rf"^{record.verb}: {name} "):
        record.make(**run, **{name: given})


def test_the_bounds_are_looked_at() -> None:
    assert len(NUMBERS) > 40


@pytest.mark.parametrize("record", REQUESTS.values())
def test_every_setting_has_a_help_text_and_one_place(record: type[Request]) -> None:
    names = [setting.name for setting in record.settings()]
    assert len(names) == len(set(names))
    assert all(setting.help for setting in record.settings())
    assert set(record.most_used) <= set(names)


def test_the_run_of_a_comparison_has_its_settings() -> None:
    chosen = {"epsilon": 0.5, "epochs": 7, "classes": ("a", "b"), "threads": 2, "encoder": "resnet18", "out": "c"}
    run = CompareRequest.make(**chosen, losses=("eps-supinfonce",)).run("eps-supinfonce", 3, resume=False)
    same = TrainRequest.make(**{**chosen, "out": "c/runs/eps-supinfonce-3"}, loss="eps-supinfonce", seed=3)
    assert run == same
    assert run.hyper_parameters() == {"epsilon": 0.5}
    assert TrainRequest.make(loss="sincere", epsilon=0.5).hyper_parameters() == {}


@pytest.mark.parametrize(
    ("record", "settings", "message"),
    [
        (TrainRequest, {"loss": "supcn"}, "train: loss must be one of 'sincere', .* Did you mean 'supcon'[?]"),
        (TrainRequest, {"encoder": "resnet8"}, "'timm:NAME'; got 'resnet8'. Did you mean 'resnet18'[?]"),
        (TrainRequest, {"sampler": "balance"}, "Did you mean 'balanced'[?]"),
        (TrainRequest, {"device": "gpu"}, "device must be one of 'auto', 'cpu', 'cuda'; got 'gpu'"),
        (TrainRequest, {"epsilon": -1}, "epsilon must be at least 0; got -1"),
        (TrainRequest, {"early_stop": 3}, "early_stop needs images to check on: set validation"),
        (TrainRequest, {"loss": "infonce", "n_views": 1}, "n_views must be at least 2 for infonce"),
        (CompareRequest, {"losses": ["infonce"], "n_views": 1}, "n_views must be at least 2 for infonce"),
        (CompareRequest, {"loss": "supcon"}, "compare: loss is not a setting; did you mean 'losses'[?]"),
        (CompareRequest, {"devices": 0}, "compare: devices must be at least 1; got 0"),
        (CompareRequest, {"metrics": ["magrin"]}, "metrics must be one of .* Did you mean 'margin'[?]"),
        (CompareRequest, {"seeds": [1, 1]}, "losses and seeds must be given, and each one once"),
        (TrainRequest, {"data": "a\0b"}, "data must not contain a null character"),
    ],
)
def test_wrong_settings_are_explained(record: type[Request], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputValueError, match=message):
        record.make(**settings)


def test_a_name_of_timm_is_left_to_timm() -> None:
    assert TrainRequest.make(encoder="timm:vit_tiny").model.encoder == "timm:vit_tiny"


def test_where_a_run_is_computed_does_not_tell_runs_apart() -> None:
    one, other = RunSettings.make(data="a", threads=1), RunSettings.make(data="b", threads=2, device="cpu")
    assert differing(one, other) == []
    assert differing(one, RunSettings.make(temperature=0.2, epochs=3)) == ["temperature", "epochs"]


def test_a_stored_configuration_comes_back_and_every_change_is_noticed(tmp_path: Path) -> None:
    settings = RunSettings.make(data="caf\udce9/photos", classes=("a", "b"), epochs=3)
    write_config(settings.stored(), tmp_path)
    assert RunSettings.make(**read_config(tmp_path)) == settings
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
    write_config(RunSettings.make(epochs=3).stored(), tmp_path)
    path = tmp_path / "config.toml"
    path.write_text(path.read_text().replace("epochs = 3", "epochs = 4"))
    assert read_settings(path)["epochs"] == 4
    with pytest.raises(DataError, match="was damaged or changed since the run began"):
        read_config(tmp_path)


def test_a_setting_called_like_an_argument_is_unknown() -> None:
    with pytest.raises(InputValueError, match="cls is not a setting"):
        RunSettings.make(**{"cls": 1})
