"""The database of the studies: a SQLite file, or a server that workers on any machine share."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import optuna
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from sincere.errors import DataError, InputValueError, MissingPackageError, first_line, missing_package

HEARTBEAT_SECONDS, GRACE_SECONDS = 20, 100  # a worker that is silent for so long is taken to be dead
CONNECT_SECONDS, BUSY_SECONDS = 10, 60  # to wait for a server, and for other writers of a file
MOST_RETRIES = 5  # of a trial whose worker died
POSTGRESQL = "postgresql"
REMEDY = "give an address such as postgresql://user@host/name, or leave out --storage for a file in the folder"


def open_storage(address: str) -> RDBStorage:
    """Connect to a database, and create Optuna's tables in it if they are missing.

    Raises:
        InputValueError: The address is no address of a database.
        DataError: The database cannot be reached or read; the message has no password.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        url = make_url(address)
    except (SQLAlchemyError, ValueError) as error:
        raise InputValueError(f"search: storage is no address of a database; {REMEDY}") from error
    shown = url.render_as_string(hide_password=True)
    if url.drivername == POSTGRESQL:  # SQLAlchemy's own default is the predecessor of psycopg
        url = url.set(drivername=f"{POSTGRESQL}+psycopg")
    timeouts = {POSTGRESQL: {"connect_timeout": CONNECT_SECONDS}, "sqlite": {"timeout": BUSY_SECONDS}}
    connection = timeouts.get(url.get_backend_name(), {})
    try:
        with warnings.catch_warnings(action="ignore", category=ExperimentalWarning):
            return RDBStorage(
                url.render_as_string(hide_password=False),
                engine_kwargs={"connect_args": connection, "pool_pre_ping": True},
                heartbeat_interval=HEARTBEAT_SECONDS,
                grace_period=GRACE_SECONDS,
                heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(max_retry=MOST_RETRIES),
            )
    except ModuleNotFoundError as error:
        raise MissingPackageError(missing_package("search", error)) from error
    except ImportError as error:  # Optuna's own message is about its other dependencies
        cause = error.__cause__ or error.__context__
        if isinstance(cause, ModuleNotFoundError):
            raise MissingPackageError(missing_package("search", cause)) from error
        raise InputValueError(f"search: storage {shown} is of a kind that is not supported; {REMEDY}") from error
    except (SQLAlchemyError, StorageInternalError, RuntimeError) as error:
        raise DataError(f"search: storage {shown} cannot be used ({_reason(error, url.password)})") from error


def file_address(path: Path) -> str:
    """Return the address of a SQLite file."""
    return f"sqlite:///{path.resolve()}"


def _reason(error: BaseException, password: object) -> str:
    """Return why a database cannot be used, without its password."""
    while isinstance(error, StorageInternalError) and error.__cause__ is not None:
        error = error.__cause__
    text = first_line(getattr(error, "orig", None) or error)
    return text.replace(str(password), "***") if password else text


@contextmanager
def storage_errors(shown: str) -> Iterator[None]:
    """Turn what a database raises into one line.

    Raises:
        DataError: The database failed.
    """
    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        raise DataError(f"search: {shown} cannot be used ({_reason(error, None)}); the same command resumes") from error


@contextmanager
def heartbeat(storage: RDBStorage, trial_id: int) -> Iterator[None]:
    """Tell the database every few seconds that the trial is alive, until the block ends."""
    stop = Event()

    def beat() -> None:
        while True:
            # The next one may get through; the trial itself notices a database that is gone.
            with suppress(SQLAlchemyError, StorageInternalError):
                storage.record_heartbeat(trial_id)
            if stop.wait(HEARTBEAT_SECONDS):
                return

    thread = Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(CONNECT_SECONDS)
