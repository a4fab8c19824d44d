"""Records of settings: checked values with help texts, and requests that compose several of them.

A request (`TrainRequest`, `CompareRequest`, ...) holds one record for each concern. Users see the settings of all its
records as one flat list of names: as flags, as keys of a TOML file and as Python keywords.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError, core_schema

from sincere import checks
from sincere.catalog import PYTHON
from sincere.errors import InputValueError

MANY = 10**6  # more than anyone needs, and far from where numbers overflow
# What pydantic's errors mean in plain words, by their kind.
REQUIREMENTS = {
    "int_parsing": "must be an integer",
    "int_type": "must be an integer",
    "int_from_float": "must be an integer",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "tuple_type": "must be a list",
    "too_short": "must have at least one value",
    "string_too_short": "must not be empty",
    "string_type": "must be text",
    "bool_parsing": "must be true or false",
    "path_type": "must be a path",
}
Seed = Annotated[int, FieldInfo(ge=0, lt=2**63)]


@dataclass(frozen=True)
class Choices:
    """Marks a setting that takes one of some names.

    Attributes:
        names: The names; a table of the catalog is read each time.
        prefix: What may also begin a value, such as "timm:".
        paths: Whether the path of a file or folder will do as well; then names are only suggested.
        read: Maps what was given to a name; None to take it as it is.
    """

    names: Collection[str]
    prefix: str | None = None
    paths: bool = False
    read: Callable[[str], str] | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        """Check a value after its type; a path becomes text before."""
        if self.paths:
            return core_schema.no_info_before_validator_function(_text, handler(source))
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def check(self, value: Any) -> Any:
        """Return the value if it can be chosen, else raise with the nearest name."""
        if self.read is not None and value is not None:
            try:
                value = self.read(value)
            except InputValueError as error:
                problem = str(error).partition(": ")[2]
                raise PydanticCustomError("choice", "{message}", {"message": problem}) from error
        if value is None or value in self.names or (self.prefix is not None and value.startswith(self.prefix)):
            return value
        if value.startswith(PYTHON):  # of a run that was started in Python with an object
            return value
        names = [*self.names, *([f"{self.prefix}NAME"] if self.prefix else [])]
        message = checks.not_one_of(value, names)
        raise PydanticCustomError("choice", "{message}", {"message": message})

    def explained(self) -> str:
        """Return what each name stands for, if their table says so."""
        table = self.names if isinstance(self.names, Mapping) else {}
        lines = [f"{name}: {item.about}" for name, item in table.items() if getattr(item, "about", "")]
        return f" {'; '.join(lines)}." if lines else ""


def _text(value: Any) -> Any:
    if value == "":  # not by a constraint, for which pydantic would refuse file names that are not UTF-8
        raise PydanticCustomError("choice", "must not be empty; got ''")
    if not isinstance(value, Path):
        return value
    return str(value) if len(value.parts) > 1 else f"./{value}"  # Path("digits") is a path, "digits" a name


@dataclass(frozen=True)
class Positional:
    """Marks a setting that is given without its name on the command line."""


@dataclass(frozen=True)
class Setting:
    """One setting of a request, as flags, help texts and keywords see it.

    Attributes:
        name: Flag, key and keyword.
        annotation: Its type.
        default: None where the default depends on the data or the machine.
        required: Whether it must be given.
        help: What it is.
        concern: Title of the record that holds it.
        choices: The names it can take, if it is a name.
        positional: Whether it is given without its name on the command line.
    """

    name: str
    annotation: Any
    default: Any
    required: bool
    help: str
    concern: str
    choices: Choices | None = None
    positional: bool = False


class Settings(BaseModel):
    """Settings of one concern."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)
    title: ClassVar[str] = "Other"  # of its group in help texts

    @classmethod
    def settings(cls) -> Iterator[Setting]:
        """Yield the settings of this record."""
        for attribute, field in cls.model_fields.items():
            marks = [*field.metadata, *(mark for item in get_args(field.annotation) for mark in get_args(item)[1:])]
            choices = next((mark for mark in marks if isinstance(mark, Choices)), None)
            yield Setting(
                name=field.alias or attribute,
                annotation=field.annotation,
                default=None if field.is_required() else field.default,
                required=field.is_required(),
                help=(field.description or "") + (choices.explained() if choices is not None else ""),
                concern=cls.title,
                choices=choices,
                positional=any(isinstance(mark, Positional) for mark in marks),
            )

    @classmethod
    def names(cls) -> set[str]:
        """Return the names of its settings."""
        return {setting.name for setting in cls.settings()}

    def flat(self) -> dict[str, Any]:
        """Return the values by name, as JSON and TOML can hold them."""
        return {name: _plain(value) for name, value in self.model_dump(by_alias=True).items()}


class Request(Settings):
    """All settings of a verb: records of several concerns, and settings of its own."""

    title: ClassVar[str] = "Run"
    verb: ClassVar[str] = ""  # its name on the command line, for messages
    most_used: ClassVar[tuple[str, ...]] = ()  # settings that stand first in the help
    takes_config: ClassVar[bool] = True  # whether a TOML file may hold its settings
    examples: ClassVar[tuple[tuple[str, str], ...]] = ()  # commands, and what each does

    @classmethod
    def concerns(cls) -> dict[str, type[Settings]]:
        """Return the records it composes, by attribute."""
        return {
            name: field.annotation
            for name, field in cls.model_fields.items()
            if isinstance(field.annotation, type) and issubclass(field.annotation, Settings)
        }

    @classmethod
    def settings(cls) -> Iterator[Setting]:
        """Yield the settings of all its records, then its own."""
        concerns = cls.concerns()
        own = [setting for setting in super().settings() if setting.name not in concerns]
        seen = set[str]()
        for setting in [*(setting for record in concerns.values() for setting in record.settings()), *own]:
            if setting.name in seen:
                problem = f"two settings are called {setting.name!r}"
                raise InputValueError(f"{cls.verb}: {problem}; give the hyper-parameter of the loss another name")
            seen.add(setting.name)
            yield setting

    @classmethod
    def make(cls, /, **settings: Any) -> Self:
        """Return a checked request from settings by name.

        Raises:
            InputValueError: One line that names the setting, what it must be, and what came.
        """
        known = {setting.name: setting for setting in cls.settings()}
        for name, value in settings.items():
            if name not in known:
                near = get_close_matches(name, known, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise InputValueError(f"{cls.verb}: {name} is not a setting{hint}")
            if isinstance(value, str | Path) and "\0" in str(value):
                raise InputValueError(f"{cls.verb}: {name} must not contain a null character; got {value!r}")
            if isinstance(value, bool) and bool not in (known[name].annotation, *get_args(known[name].annotation)):
                raise InputValueError(f"{cls.verb}: {name} must not be a boolean; got {value!r}")
        concerns = cls.concerns()
        values = dict(settings)
        try:
            for attribute, record in concerns.items():
                own = {name: values.pop(name) for name in record.names() & settings.keys()}
                values[attribute] = record(**own)
            return cls(**values)
        except ValidationError as error:
            raise InputValueError(f"{cls.verb}: {_one_line(error)}") from error

    def flat(self) -> dict[str, Any]:
        """Return the values of all its records and its own, by name."""
        concerns = self.concerns()
        own = self.model_dump(by_alias=True, exclude=set(concerns))
        values = {name: value for record in concerns for name, value in getattr(self, record).flat().items()}
        return values | {name: _plain(value) for name, value in own.items()}

    def replaced(self, /, **settings: Any) -> Self:
        """Return the same request with some settings changed, checked again."""
        return self.make(**{**self.flat(), **settings})


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value


def named_folder(value: object) -> object:
    """Return the name of a folder to write to, but not the current one, which is what an empty name means.

    Raises:
        ValueError: It is.
    """
    if value is not None and not str(value).strip(". "):
        raise ValueError("out must be the name of a folder")
    return value


def _one_line(error: ValidationError) -> str:
    """Return the first of pydantic's errors in the package's wording."""
    first = error.errors()[0]
    name = ".".join(map(str, first["loc"][:1]))
    if first["type"] == "choice":
        return f"{name} {first['msg']}"
    if first["type"] == "value_error":
        return str(first["msg"].removeprefix("Value error, "))
    requirement = REQUIREMENTS.get(first["type"]) or first["msg"].replace("Input should", "must")
    for long, short in (("greater than or equal to", "at least"), ("less than or equal to", "at most")):
        requirement = requirement.replace(long, short)
    return f"{name} {requirement[:1].lower()}{requirement[1:]}; got {checks.printable(repr(first['input']))}"
