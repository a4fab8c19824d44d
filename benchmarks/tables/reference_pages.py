"""The generated parts of docs/reference: what the parser knows of each verb, and all settings of the records."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from cyclopts import App, Argument, Group

from sincere.cli import VERBS
from sincere.cli.flags import MOST_USED, add_command
from sincere.settings.record import Request
from sincere.settings.verbs import REQUESTS

OWN = Request.title  # the group of settings that belong to a verb, not to a concern that verbs share
HEADINGS = {"Arguments": "argument", MOST_USED: "most used", OWN: "of this command"}
MANY_NAMES = 12  # more are left to --help
SETTINGS_PAGE = "settings.md"


def command_line() -> str:
    """Return the section of each verb: usage, description, examples, and its flags by group."""
    app = App(name="sincere", help_flags=[], version_flags=[])
    for verb, about in VERBS.items():
        add_command(app, REQUESTS[verb], about=about)
    overview = _table(["command", "what it does"], [[f"[{v}](#sincere-{v})", about] for v, about in VERBS.items()])
    return "\n\n".join([overview, *(_verb(app[verb], REQUESTS[verb]) for verb in VERBS)])


def settings() -> str:
    """Return a table of the settings of each concern: name, flag, default, meaning, and the verbs that take them."""
    concerns: dict[str, dict[tuple[str, str, str], list[str]]] = {}
    for verb in VERBS:
        for setting in REQUESTS[verb].settings():
            choices = () if setting.choices is None or setting.choices.paths else tuple(setting.choices.names)
            default = _default(setting.default, required=setting.required)
            row = (setting.name, default, _meaning(setting.help, choices))
            concerns.setdefault(setting.concern, {}).setdefault(row, []).append(verb)
    titles = sorted(concerns, key=lambda title: title == OWN)  # what belongs to single verbs comes last
    header = ["name", "flag", "default", "meaning", "of"]
    parts = []
    for title in titles:
        rows = [
            [f"`{name}`", _flag(verbs[0], name), default, about, ", ".join(verbs)]
            for (name, default, about), verbs in concerns[title].items()
        ]
        parts.append(f"## {title}\n\n{_table(header, rows)}")
    return "\n\n".join(parts)


def _verb(app: App, record: type[Request]) -> str:
    groups: dict[str, list[Argument]] = {}
    for argument in app.assemble_argument_collection():
        (group,) = cast("tuple[Group]", argument.parameter.group)
        groups.setdefault(group.name, []).append(argument)
    shared = {setting.name for concern in record.concerns().values() for setting in concern.settings()}
    positional = " ".join(argument.name for argument in groups.get("Arguments", []))
    usage = f"```text\nsincere {record.verb} {positional} [OPTIONS]\n```".replace("  ", " ")
    parts = [f"## sincere {record.verb}", usage, *_paragraphs(record), _examples(record)]
    further = []
    for title, arguments in groups.items():
        if title != MOST_USED and all(_setting(argument) in shared for argument in arguments):
            names = ", ".join(f"`{argument.name}`" for argument in arguments)
            further.append(f"- [{title}]({SETTINGS_PAGE}#{_slug(title)}): {names}")
        else:
            parts.append(_table([HEADINGS.get(title, title.lower()), "default", "meaning"], map(_row, arguments)))
    if further:
        parts.append("Further settings:\n\n" + "\n".join(further))
    return "\n\n".join(filter(None, parts))


def _paragraphs(record: type[Request]) -> Iterator[str]:
    for part in re.split(r"\n\s*\n", (record.__doc__ or "").strip()):
        yield _one_line(part)


def _examples(record: type[Request]) -> str:
    if not record.examples:
        return ""
    return "```bash\n" + "\n".join(f"{command}  # {about}" for command, about in record.examples) + "\n```"


def _setting(argument: Argument) -> str:
    return argument.name.lstrip("-").replace("-", "_")


def _row(argument: Argument) -> list[str]:
    names = [name for name in argument.names if not name.startswith("--no-")] or list(argument.names)
    default = argument.field_info.default
    shown = _default(None if default is argument.field_info.empty else default, required=argument.required)
    return [", ".join(f"`{name}`" for name in names), shown, _meaning(argument.parameter.help, argument.get_choices())]


def _meaning(about: str | None, choices: Sequence[str] | None) -> str:
    """Return a help text as a cell, with the names to choose from where they are few and it does not explain them."""
    text = _one_line(about or "")
    if choices and len(choices) <= MANY_NAMES and f"{choices[0]}: " not in text:
        text += f" One of {', '.join(f'`{choice}`' for choice in choices)}."
    return text.replace("|", "\\|").replace("<", "&lt;")


def _flag(verb: str, name: str) -> str:
    """Return the flag of a setting, or its place holder where it is given by position."""
    setting = next(setting for setting in REQUESTS[verb].settings() if setting.name == name)
    return f"`{name.upper()}`" if setting.positional else f"`--{name.replace('_', '-')}`"


def _default(value: Any, *, required: bool) -> str:
    if required:
        return "required"
    if value is None or value == ():
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"`{' '.join(map(str, value)) if isinstance(value, tuple) else value}`"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _slug(title: str) -> str:
    return re.sub(r"[^\w-]+", "-", title.lower()).strip("-")


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    columns = list(header)
    return "\n".join("| " + " | ".join(line) + " |" for line in [columns, ["---"] * len(columns), *rows])
