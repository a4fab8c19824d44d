"""The user's own files beside those of a run: never deleted, never changed."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.faults.case import Case
from tests.faults.judges import check_ended, check_kept, checksums
from tests.faults.scene import Scene
from tests.faults.verbs import VERBS, Verb
from tests.faults.world import COMPARISON, HOME, PARTIAL, PICTURES, RUN, TRAIN, World

GROUP = "foreign"
FILES = {
    "figures/mine.txt", "figures/paper.pdf", "checkpoints/mine.pt", "checkpoints/copy/step-000000001.pt",
    "transfer/notes.txt",
    "transfer/mine/data.npz", "notes.txt", "my.json", ".hidden", "results.json.bak", "results-old.json",
    "report-final.html",
    "model.safetensors.backup", "sub/folder/file.txt", "tensorboard/mine.txt", "config.toml~", "map.png",
    "step-000000001.pt",
    "backup.unfinished", "per_image.csv", "old.lock",
}  # fmt: skip
_overwrite = Verb(
    "train-overwrite", ("train", "--data", PICTURES, "--out", RUN, *TRAIN, "--overwrite"), (PICTURES, HOME, RUN),
    (f"{RUN}/**/*",), (), lambda world: None, (),
)  # fmt: skip
_FOLDERS = {
    "train-overwrite": RUN, "evaluate": RUN, "report": RUN, "transfer": f"{RUN}/transfer/other", "resume": PARTIAL,
    "compare-overwrite": COMPARISON, "compare-unreported": COMPARISON, "compare-done": COMPARISON,
}  # fmt: skip


def cases(world: World, seed: int, *, short: bool) -> list[Case]:
    """Every file in every folder that a verb writes to; for comparisons also in the folder of a run."""
    found = []
    verbs = {**VERBS, _overwrite.name: _overwrite}
    for verb, folder in _FOLDERS.items():
        for place in [folder, f"{folder}/runs/sincere-0"] if folder == COMPARISON else [folder]:
            for name in sorted(FILES)[:: 6 if short else 1]:
                run = partial(_beside, verb=verbs[verb], path=f"{place}/{name}")
                found.append(Case(GROUP, f"{verb}/{place}/{name}", run))
        for kind in ("link-to-file", "link-to-folder", "folder-as-file"):
            run = partial(_linked, verb=verbs[verb], folder=folder, kind=kind)
            found.append(Case(GROUP, f"{verb}/{kind}", run))
    return found


def _beside(world: World, *, verb: Verb, path: str) -> None:
    scene = Scene(world, verb)
    mine = world.here / path
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_text("the user's own\n")
    before = checksums(world.here, (path, f"{PICTURES}/**/*"))
    outcome = scene.run()
    check_kept(world.here, before, outcome)
    check_ended(outcome)


def _linked(world: World, *, verb: Verb, folder: str, kind: str) -> None:
    """Links out of the folder: what they lead to stays as it is."""
    scene = Scene(world, verb)
    outside = world.here / "outside"
    outside.mkdir()
    (outside / "mine.txt").write_text("the user's own\n")
    _replace(world.here / folder, outside, kind)
    before = checksums(world.here, ("outside/**/*",))
    outcome = scene.run()
    check_kept(world.here, before, outcome)
    check_ended(outcome)


def _replace(folder: Path, outside: Path, kind: str) -> None:
    figures, results = folder / "figures", folder / "results.json"
    if kind == "link-to-folder":
        if figures.is_dir():
            figures.rename(outside / "figures")
        else:
            (outside / "figures").mkdir()
        figures.symlink_to(outside / "figures", target_is_directory=True)
        (outside / "figures" / "mine.txt").write_text("the user's own\n")
    elif kind == "link-to-file":
        for name in ("notes.txt", ".results.json.unfinished", ".report.html.unfinished", ".config.toml.unfinished"):
            if not (folder / name).exists():
                (folder / name).symlink_to(outside / "mine.txt")
    else:
        results.unlink(missing_ok=True)
        results.mkdir()
        (results / "mine.txt").write_text("the user's own\n")
