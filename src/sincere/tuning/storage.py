"""The database of the studies: a SQLite file, or a PostgreSQL server that workers on any machine share."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import optuna
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from sqlalchemy import text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import SQLAlchemyError

from sincere.errors import DataError, InputValueError, MissingPackageError, first_line, missing_package
from sincere.records.manifest import without_password

HEARTBEAT_SECONDS, GRACE_SECONDS = 20, 100  # a worker that is silent for so long is taken to be dead
CONNECT_SECONDS, BUSY_SECONDS = 10, 60  # to wait for a server, and for other writers of a file
MOST_RETRIES = 5  # of a trial whose worker died
POSTGRESQL, SQLITE = "postgresql", "sqlite"
ADVISORY_LOCK = 7_466_232_311  # of PostgreSQL: any number that others do not use
REMEDY = "give an address such as postgresql://user@host/name, or leave out --storage for a file in the folder"


def open_storage(address: str | Path) -> RDBStorage:
    """Connect to a database, and create Optuna's tables in it if they are missing.

    Args:
        address: Address of a database, or path of a SQLite file.

    Raises:
        InputValueError: The address is no address of a database, or one of another kind.
        DataError: The database cannot be reached or read; the message has no password.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    shown = without_password(str(address))
    try:
        is_path = isinstance(address, Path)
        url = URL.create(SQLITE, database=str(address)) if is_path else make_url(str(address))
    except (SQLAlchemyError, ValueError) as error:
        raise InputValueError(f"search: storage is no address of a database; {REMEDY}") from error
    kind = url.get_backend_name()
    if kind not in (POSTGRESQL, SQLITE):
        raise InputValueError(f"search: storage {shown} is of a kind that is not supported; {REMEDY}")
    if url.drivername == POSTGRESQL:  # SQLAlchemy's own default is the predecessor of psycopg
        url = url.set(drivername=f"{POSTGRESQL}+psycopg")
    waits = {POSTGRESQL: {"connect_timeout": CONNECT_SECONDS}, SQLITE: {"timeout": BUSY_SECONDS}}
    try:
        with warnings.catch_warnings(action="ignore", category=ExperimentalWarning):
            return RDBStorage(
                url.render_as_string(hide_password=False),
                engine_kwargs={"connect_args": waits[kind], "pool_pre_ping": True},
                heartbeat_interval=HEARTBEAT_SECONDS,
                grace_period=GRACE_SECONDS,
                heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(max_retry=MOST_RETRIES),
            )
    except ImportError as error:
        cause = error if isinstance(error, ModuleNotFoundError) else error.__cause__ or error.__context__
        if isinstance(cause, ModuleNotFoundError):
            raise MissingPackageError(missing_package("search", cause)) from error
        raise InputValueError(f"search: storage {shown} is of a kind that is not supported; {REMEDY}") from error
    except (SQLAlchemyError, StorageInternalError, RuntimeError) as error:
        passwords = [url.password, *(value for name, value in url.query.items() if "password" in name)]
        raise DataError(f"search: storage {shown} cannot be used ({_reason(error, passwords)})") from error


def _reason(error: BaseException, passwords: Sequence[object]) -> str:
    """Return why a database cannot be used, without these passwords."""
    while isinstance(error, StorageInternalError) and error.__cause__ is not None:
        error = error.__cause__
    reason = first_line(getattr(error, "orig", None) or error)
    for password in filter(None, passwords):
        reason = reason.replace(str(password), "***")
    return reason


@contextmanager
def storage_errors(shown: str) -> Iterator[None]:
    """Turn what a database raises into one line.

    Raises:
        DataError: The database failed, or the study was removed from it.
    """
    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        raise DataError(f"search: {shown} cannot be used ({_reason(error, [])}); the same command resumes") from error
    except KeyError as error:
        if "Record does not exist" not in str(error):
            raise
        raise DataError(f"search: the study was removed from {shown} by another process") from error


@contextmanager
def exclusive(storage: RDBStorage) -> Iterator[None]:
    """Keep all other processes that use this database out of such blocks, on any machine."""
    url = make_url(storage.url)
    if url.get_backend_name() == POSTGRESQL:
        with storage.engine.connect() as connection:  # a lost connection releases the lock
            connection.execute(text(f"SELECT pg_advisory_lock({ADVISORY_LOCK})"))
            try:
                yield
            finally:
                connection.execute(text(f"SELECT pg_advisory_unlock({ADVISORY_LOCK})"))
        return
    if sys.platform == "win32":
        yield
        return
    import fcntl

    # SQLite has no row locks: Optuna alone would hand one trial to two workers.
    with Path(f"{url.database}.lock").open("a") as file:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


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
