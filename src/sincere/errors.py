"""The exceptions this package raises on bad input."""

from __future__ import annotations


class SincereError(Exception):
    """Base of every error raised on purpose by this package."""

    exit_code = 2  # of the command that it ends


class InputValueError(SincereError, ValueError):
    """An argument has the right type and a wrong value or shape."""


class DataError(SincereError, ValueError):
    """A data set is missing, damaged or not what its name promises."""


class LockedError(DataError):
    """Another process is working in a folder."""


class UnsupportedError(SincereError, RuntimeError):
    """The combination of arguments is not supported; the message names one that works."""


class InputTypeError(SincereError, TypeError):
    """An argument has the wrong type."""


class MissingPackageError(SincereError, ImportError):
    """A package that this part of `sincere` needs is not installed."""


EXTRAS = {  # packages that are not a part of `sincere[all]`, and the extra that brings each
    "datasets": "datasets",
    **dict.fromkeys(("huggingface_hub", "onnx", "onnxruntime", "onnxscript"), "export"),
    **dict.fromkeys(("optuna", "psycopg", "sqlalchemy"), "search"),
    "lightning": "lightning",
    "pyarrow": "parquet",
    "pytorch_metric_learning": "metric-learning",
    "sentence_transformers": "sentence-transformers",
    "timm": "timm",
    **dict.fromkeys(("accelerate", "transformers"), "transformers"),
}


def missing_package(caller: str, error: ModuleNotFoundError, *, extra: str | None = None) -> str:
    """Return one line that says what to install: an extra of this package, the one that brings what is missing.

    Raises:
        ModuleNotFoundError: What is missing is a part of this package.

    Example:
        >>> missing_package("train", ModuleNotFoundError("...", name="pydantic.fields"))
        "train needs pydantic, which is not installed; install it with: pip install 'sincere[all]'"
        >>> missing_package("search", ModuleNotFoundError("...", name="optuna"))
        "search needs optuna, which is not installed; install it with: pip install 'sincere[search]'"
    """
    name = (error.name or "").partition(".")[0]
    if name in ("", "sincere"):
        raise error
    extra = extra or EXTRAS.get(name, "all")
    return f"{caller} needs {name}, which is not installed; install it with: pip install 'sincere[{extra}]'"


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says, or its kind if it says nothing.

    Example:
        >>> first_line(ValueError("cut off" + chr(10) + "at byte 3")), first_line(EOFError())
        ('cut off', 'EOFError')
    """
    return (str(error).strip() or type(error).__name__).splitlines()[0]
