"""Tables and the finding agree with the results, and fit the terminal."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from sincere.loss_catalog import RAW_FEATURES
from sincere.messages import Messages
from sincere.records.estimates import Estimate
from sincere.records.results import Difference, LossSummary, Results
from sincere.report.tables import finding, interval, number, show, summary_table
from tests.report.comparison_folder import make_comparison


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return Results.read(make_comparison(tmp_path_factory.mktemp("tables"), seeds=(0, 1)))


def printed(results: Results, width: int = 80) -> str:
    text = io.StringIO()
    show(results, Path("report.html"), Messages(Console(file=text, width=width)))
    return text.getvalue()


def test_every_loss_and_metric_is_printed_within_80_columns(results: Results) -> None:
    text = printed(results)
    table = text.split("report:")[0].split("note:")[0].split("These trained")[0]
    assert max(map(len, table.splitlines())) <= 80
    for summary in results.summaries:
        assert summary.loss in table
        for name, figure in summary.metrics.items():
            shown = f"{100 * figure.estimate:.1f}%" if results.metrics[name].share else f"{figure.estimate:.3f}"
            assert shown in table
    assert text.rstrip().endswith("report: report.html")
    assert all(note in text for note in results.notes)


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_value_is_cut_off_at_any_width(results: Results, width: int) -> None:
    text = printed(results, width)
    _, rows = summary_table(results, list(results.metrics))
    for row in rows:
        for cell in row:
            assert cell.text in text
            assert cell.detail in text
            if cell.interval:
                numbers = cell.interval.strip("[]").split(", ")
                assert any(between.join(numbers) in text for between in (" to ", "\N{EN DASH}"))
    assert all(len(line) <= max(width, 40) for line in text.split("note:")[0].split("These tr")[0].splitlines())


def test_the_table_has_bold_cells_intervals_and_the_spread_over_seeds(results: Results) -> None:
    header, rows = summary_table(results, list(results.metrics))
    assert header[0] == "loss"
    assert header[-2:] == ["training loss", "time"]
    for summary, row in zip(results.summaries, rows, strict=True):
        assert (row[0].text, row[0].detail) == (summary.loss, "2 seeds")
        for name, cell in zip(results.metrics, row[1:], strict=False):
            assert cell.bold == (name in summary.bold)
            assert cell.detail == f"sd over seeds {number(summary.seed_std[name], share=results.metrics[name].share)}"


def made(results: Results, estimates: tuple[float, float], difference: Difference) -> Results:
    figures = [Estimate(x, x - 0.1, x + 0.1) for x in estimates]
    summaries = [
        LossSummary(loss=loss, seeds=(0,), metrics={"margin": figure}, seed_std={}, bold=())
        for loss, figure in zip((difference.a, difference.b), figures, strict=True)
    ]
    metrics = {"margin": results.metrics["margin"]}
    return results.model_copy(
        update={"metrics": metrics, "summaries": tuple(summaries), "differences": (difference,), "notes": ()}
    )


@pytest.mark.parametrize("swapped", [False, True])
def test_the_finding_names_the_papers_losses_in_order(results: Results, swapped: bool) -> None:
    a, b = ("supcon", "sincere") if swapped else ("sincere", "supcon")
    sign = -1 if swapped else 1
    low, high = sorted((sign * 0.2, sign * 0.4))
    difference = Difference(metric="margin", a=a, b=b, estimate=sign * 0.3, low=low, high=high, significant=True)
    estimates = (0.5, 0.8) if swapped else (0.8, 0.5)
    text = finding(made(results, estimates, difference))
    assert (
        text == "These trained models: SINCERE against SupCon: margin 0.800, higher than 0.500 by 0.300 [0.200, 0.400]."
    )


def test_the_finding_says_lower_or_no_difference(results: Results) -> None:
    below = Difference(metric="margin", a="sincere", b="supcon", estimate=-0.3, low=-0.4, high=-0.2, significant=True)
    assert "lower than 0.800 by 0.300 [0.200, 0.400]" in finding(made(results, (0.5, 0.8), below))
    same = Difference(metric="margin", a="x", b="y", estimate=0.01, low=-0.1, high=0.1, significant=False)
    assert (
        finding(made(results, (0.5, 0.49), same))
        == "These trained models: x against y: no significant difference in margin."
    )


def test_the_finding_says_what_training_added_to_raw_features(results: Results) -> None:
    pair = Difference(metric="margin", a="sincere", b="supcon", estimate=0.3, low=0.2, high=0.4, significant=True)
    raw = pair.model_copy(update={"b": RAW_FEATURES, "estimate": 0.01, "low": -0.1, "significant": False})
    two = made(results, (0.8, 0.5), pair)
    summaries = (*two.summaries, two.summaries[1].model_copy(update={"loss": RAW_FEATURES}))
    text = finding(two.model_copy(update={"summaries": summaries, "differences": (pair, raw)}))
    assert text.startswith("These trained models: SINCERE against SupCon: margin 0.800, higher than 0.500")
    assert text.endswith("SINCERE against raw features: no significant difference in margin.")


def test_the_finding_is_about_the_losses_with_three_seeds(tmp_path: Path) -> None:
    results = Results.read(make_comparison(tmp_path, seeds=(0, 1, 2), n_test=30))
    assert results.scope == "losses"
    assert finding(results).startswith("SINCERE against SupCon: ")


def test_no_negative_zero() -> None:
    assert number(-0.0001, share=False) == "0.000"
    assert interval(Estimate(0.00123, 0.00118, 0.00131), share=False) == "[0.00118, 0.00131]"
    assert interval(Estimate(0.5, 0.4, 0.6), share=False) == "[0.400, 0.600]"
    assert interval(Estimate(1.0, 1.0, 1.0), share=True) == "[100.0, 100.0]"
    assert number(-0.1, share=False) == "-0.100"
    assert number(0.9995, share=True) == "100.0%"


def test_no_control_character_reaches_the_terminal(results: Results) -> None:
    noted = results.model_copy(update={"notes": ("red \x1b[31m\u202e",)})
    assert "note: red \\x1b[31m\\u202e" in printed(noted)


def test_class_names_and_notes_are_not_markup(results: Results) -> None:
    noted = results.model_copy(update={"notes": ("folder [bold]x[/bold] [red]",)})
    assert "note: folder [bold]x[/bold] [red]" in printed(noted)
