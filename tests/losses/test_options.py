"""The options are written once and shown everywhere: signatures, help, defaults and documentation."""

from __future__ import annotations

import inspect
import pydoc
from typing import Any

import pytest

import sincere
from sincere.loss_catalog import LOSSES
from sincere.losses.options import DEFAULTS, KeyOptions, LossOptions, ModuleOptions, lists_options

FUNCTIONS = [sincere.sincere_loss, sincere.supcon_loss, sincere.eps_supinfonce_loss, sincere.info_nce_loss]
SHARED = [name for name, loss in LOSSES.items() if not loss.over_sets and not loss.needs_classes]  # who take all
MODULES = [LOSSES[name].load() for name in SHARED]
functions = pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
modules = pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)


def shown(function: Any) -> dict[str, Any]:
    """The arguments after the tensors, with their defaults, as `inspect` shows them."""
    parameters = inspect.signature(function).parameters.values()
    assert all(parameter.kind is not inspect.Parameter.VAR_KEYWORD for parameter in parameters)
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


def test_every_option_has_a_default() -> None:
    assert list(DEFAULTS) == [*KeyOptions.__annotations__, *ModuleOptions.__annotations__]
    assert DEFAULTS.keys() == LossOptions.__annotations__.keys()


@functions
def test_functions_show_every_option_with_its_default(function: Any) -> None:
    own = {"epsilon": 0.25} if function is sincere.eps_supinfonce_loss else {}
    assert shown(function) == {**own, "temperature": 0.1, **DEFAULTS}
    keyword_only = inspect.signature(function).parameters["group"].kind
    assert keyword_only is inspect.Parameter.KEYWORD_ONLY


@modules
def test_modules_show_the_options_they_hold(module: Any) -> None:
    held = shown(module)
    assert held == {name: value for name, value in held.items() if name not in KeyOptions.__annotations__}
    assert held.keys() >= {"temperature", *ModuleOptions.__annotations__}
    assert shown(module.forward) == dict.fromkeys(KeyOptions.__annotations__)


@pytest.mark.parametrize("name", SHARED)
def test_defaults_of_hyper_parameters_are_those_of_the_table(name: str) -> None:
    held = shown(LOSSES[name].load())
    own = {parameter.name: parameter.default for parameter in LOSSES[name].hyper_parameters}
    extra = held.keys() - ModuleOptions.__annotations__.keys() - {"temperature"}
    shared = {"positives_in_denominator", "draw"}  # of how a loss is computed, not of what it is
    assert {argument: held[argument] for argument in extra - shared} == own


@functions
def test_help_documents_every_argument(function: Any) -> None:
    text = pydoc.plain(pydoc.render_doc(function))
    for argument in inspect.signature(function).parameters:
        assert f"\n        {argument}: " in text, argument
    assert "**options" not in text
    assert "https://arxiv.org/abs/" in text


@modules
def test_help_of_modules_documents_every_argument(module: Any) -> None:
    for function in (module.__init__, module.forward):
        text = inspect.getdoc(function)
        for argument in list(inspect.signature(function).parameters)[1:]:
            assert f"\n    {argument}: " in text, argument


def test_the_decorator_puts_the_documentation_where_it_belongs() -> None:
    @lists_options(KeyOptions)
    def function(x: int, **options: Any) -> None:
        """Do nothing.

        Args:
            x: A number.
            **options: Replaced,
                also where it is long.

        Returns:
            Nothing.
        """

    lines = function.__doc__.splitlines()
    assert lines[3] == "    x: A number."
    assert lines[4].startswith("    keys: (m, d)")
    assert lines[-2:] == ["Returns:", "    Nothing."]
    assert "Replaced" not in function.__doc__
    assert "long" not in function.__doc__
