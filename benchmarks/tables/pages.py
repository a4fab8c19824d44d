"""All generated tables, and the pages that show them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from benchmarks.measure import RESULTS
from benchmarks.tables import frozen, losses, project, reference_pages, reproduction, training, triton_tables
from benchmarks.tables.markdown import markdown
from sincere.records.results import Results
from sincere.records.search import SearchResults

ROOT = Path(__file__).parents[2]
MARK = "<!-- begin generated: "
PAGES = tuple(
    str(path.relative_to(ROOT))
    for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")))
    if MARK in path.read_text()
)


def stored(name: str) -> Any:
    """Return the results of a benchmark."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def tables() -> dict[str, str]:
    """Return every generated table by name."""
    speed, data, use, scaling, triton = map(stored, ("losses", "data", "use", "scaling", "triton"))
    minutes, faults, features = map(stored, ("minutes", "faults", "frozen"))
    return {
        "losses": losses.losses(speed),
        "losses-short": losses.losses_short(speed),
        "crossing": losses.crossing(speed),
        "bench": losses.bench(stored("bench")),
        "theory": losses.theory(stored("theory")),
        "label-sets": losses.label_sets(stored("label_sets")),
        "set-loss": losses.set_loss(stored("set_loss")),
        "spread": losses.spread(scaling),
        "micro": losses.micro(scaling),
        "triton-kernels": losses.triton_kernels(triton),
        "triton-estimates": markdown(*triton_tables.estimated(triton)),
        **{f"family-{case}": losses.loss_family(about) for case, about in stored("loss_family").items()},
        "views": training.views(data),
        "real-data": training.real_data(data),
        "photos": training.photos(stored("photos")),
        "adapter": training.adapter(stored("adapter")),
        "training": training.training(stored("training")),
        "recipe": training.recipe(stored("recipe")),
        "minutes": training.minutes(minutes),
        "minutes-cat-dog": training.minutes(minutes, classes=["cat", "dog"]),
        "kills": training.kills(stored("kill_and_resume")),
        "evaluation": training.evaluation(stored("evaluation"), stored("bootstrap")),
        "significance": training.significance(stored("significance")),
        "recipes": reproduction.recipes(),
        "headline": reproduction.headline(ROOT),
        **reproduction.reproduction(ROOT),
        "transfer-layers": reproduction.transfer_layers(stored("transfer_layers")),
        "class-sampler": reproduction.class_sampler(stored("class_sampler")),
        "frozen-photos": frozen.frozen_photos(features),
        "frozen-cifar10": frozen.frozen_cifar10(features),
        "tuned": frozen.tuned(stored("tuned")),
        "classifiers": frozen.classifiers(use),
        "collapse": frozen.collapse(use),
        "unknown": frozen.unknown(use),
        "extras": project.extras(stored("extras")),
        "geometry": project.geometry(),
        "schema": project.schema(Results, "results.json"),
        "search-schema": project.schema(SearchResults, "search.json"),
        "faults": project.faults(faults),
        "load": project.load(faults),
        "command-line": reference_pages.command_line(),
        "settings": reference_pages.settings(),
    }


def rewritten(page: str, generated: dict[str, str]) -> str:
    """Return the text of a page with its tables replaced."""

    def replace(match: re.Match[str]) -> str:
        name = match[1]
        return f"<!-- begin generated: {name} -->\n{generated[name]}\n<!-- end generated: {name} -->"

    pattern = r"<!-- begin generated: ([\w-]+) -->.*?<!-- end generated: \1 -->"
    return re.sub(pattern, replace, page, flags=re.DOTALL)


def write_pages() -> None:
    """Bring the tables of all pages up to date."""
    generated = tables()
    for name in PAGES:
        path = ROOT / name
        path.write_text(rewritten(path.read_text(), generated))
