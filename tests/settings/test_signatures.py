"""The Python functions show every setting, to editors and to `help`."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

import sincere
from sincere.settings import keywords, signatures
from sincere.settings.verbs import REQUESTS

FUNCTIONS = ("train", "compare", "evaluate", "transfer")
OBJECTS_ONLY = {
    "train": {"loggers"},
    "evaluate": {"encoder"},
    "transfer": {"encoder"},
}  # keywords that the command line cannot have


def test_the_generated_keywords_are_fresh() -> None:
    assert Path(keywords.__file__).read_text() == signatures.keywords_source()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_signatures_show_every_setting_with_its_default(name: str) -> None:
    shown = inspect.signature(getattr(sincere, name)).parameters
    settings = {setting.name: setting for setting in REQUESTS[name].settings()}
    assert shown.keys() == settings.keys() | OBJECTS_ONLY.get(name, set())
    for key, parameter in shown.items():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and key in settings:
            assert parameter.default == settings[key].default


@pytest.mark.parametrize("name", FUNCTIONS)
def test_typed_keywords_are_those_of_the_signature(name: str) -> None:
    typed = get_type_hints(getattr(keywords, f"{name.capitalize()}Keywords"))
    shown = inspect.signature(getattr(sincere, name)).parameters
    keyword_only = {key for key, p in shown.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}
    assert typed.keys() == keyword_only - OBJECTS_ONLY.get(name, set())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_help_documents_every_setting(name: str) -> None:
    text = inspect.getdoc(getattr(sincere, name)) or ""
    for setting in REQUESTS[name].settings():
        assert f"    {setting.name}: " in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("start over with --overwrite", "start over with overwrite=True"),
        ("leave out --no-pretrained", "leave out pretrained=False"),
        ("try --batch-size 256, or --micro-batch 256", "try batch_size=256, or micro_batch=256"),
        ("use --devices 1.", "use devices=1."),
        ("a higher --temperature helps", "a higher temperature helps"),
        ("--encoder small --size 8", 'encoder="small" size=8'),
        ("resume it with: sincere train --resume --out run", "resume it with: sincere train --resume --out run"),
        ("start `sincere train --resume` or --resume", "start `sincere train --resume` or resume=True"),
        ("with --overwrite (overwrite=True in Python)", "with overwrite=True"),
        ("--overwrite (in Python: overwrite=True) replaces it", "overwrite=True replaces it"),
        ("--nonsense is not a setting", "--nonsense is not a setting"),
    ],
)
def test_errors_name_keywords_in_place_of_flags(text: str, expected: str) -> None:
    assert signatures.with_keywords(text, REQUESTS["train"]) == expected


@pytest.mark.slow
def test_a_type_checker_rejects_what_fails_at_run_time(tmp_path: Path) -> None:
    """Wrong names and wrong types are errors for mypy, sensible calls are not."""
    pytest.importorskip("mypy")
    code = """
from pathlib import Path
import sincere, torch
sincere.train(data=Path("photos"), epochs=3, classes=["a", "b"], out="run")
sincere.evaluate("run", data=Path("photos"), ks=(1, 5))
loss: torch.Tensor = sincere.SINCERELoss(temperature=0.1, group="world")(torch.eye(4), torch.arange(4))
"""
    wrong = {
        "sincere.nosuch": "attr-defined",
        "sincere.train(epohs=3)": "call-arg",
        "sincere.train(epochs='x')": "arg-type",
    }
    (tmp_path / "good.py").write_text(code)
    (tmp_path / "bad.py").write_text("import sincere\n" + "\n".join(wrong) + "\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(tmp_path / "cache")]
    good, bad = (
        subprocess.run([*command, name], capture_output=True, text=True, check=False, cwd=tmp_path).stdout
        for name in ("good.py", "bad.py")
    )
    assert good == ""
    errors = [line for line in bad.splitlines() if ": error:" in line]
    assert [line.rpartition("[")[2].rstrip("]") for line in errors] == list(wrong.values())
