"""A PostgreSQL server for tests, from the system's packages, and a database for each store that a test opens."""

import atexit
import hashlib
import os
import pwd
import subprocess
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
from psycopg import errors, sql

from maestro.settings import Settings
from maestro.store import inspection
from maestro.store import store as store_module
from maestro.store.engine import database, schema

SWITCH = "MAESTRO_TEST_STORE"
SERVER = "MAESTRO_TEST_POSTGRESQL"
"""The URL of a running server, for tests that start none of their own."""
FIND = Path(__file__).parents[2] / "scripts" / "find-postgresql"
SYSTEM_USERS = ("postgres", "nobody")
"""The users that may run the server in place of root, which it refuses."""
OPTIONS = ("fsync=off", "full_page_writes=off", "autovacuum=off", "max_connections=400", "shared_buffers=64MB")
STOP_WITH_TESTS = 'cat >/dev/null; "$1" -D "$2/data" -m immediate stop >/dev/null 2>&1; rm -rf "$2"'
"""Waits for the end of the standard input, which comes with the end of the tests, even if they are killed."""
TEMPLATE_LOCK = 1


def wanted() -> bool:
    """Return whether stores of tests are to be PostgreSQL databases."""
    return os.environ.get(SWITCH) == "postgresql"


def use_postgresql() -> None:
    """Give each store that is opened in this process by a path a database of its own."""
    store_module.open_database = _open_database  # type: ignore[attr-defined]
    store_module.upgrade_database = _upgrade  # type: ignore[attr-defined]
    for module in (schema, inspection):
        module.administer = _administer  # type: ignore[attr-defined]
    before = vars(Settings)["database"].fget
    Settings.database = property(lambda settings: _url_of(before(settings)))  # type: ignore[method-assign, assignment]


def database_url(path: Path) -> str:
    """Return the URL of the database that stands for a file, and create it with the tables of this release."""
    path = path.absolute()
    _create(_name_of(path), str(path))
    return _url(_name_of(path))


def location_of(path: Path) -> database.Location:
    """Return where the store of a path is in this run."""
    return database_url(path) if wanted() else path


def empty_location(path: Path) -> database.Location:
    """Return where the store of a path is in this run, in which no tables have been made yet."""
    if not wanted():
        return path
    path = path.absolute()
    _create_database(_administration(), _name_of(path), str(path), "template1")
    return _url(_name_of(path))


def store_environment(path: Path) -> dict[str, str]:
    """Return what tells a process that is started without these replacements which database stands for a file."""
    return {"MAESTRO_STORE_URL": database_url(path)} if wanted() else {}


def drop_databases(folder: Path) -> None:
    """Drop the databases that stand for files below a folder."""
    listed = "SELECT datname, shobj_description(oid, 'pg_database') FROM pg_database WHERE datname LIKE 't\\_%'"
    for name, path in _administration().execute(listed).fetchall():
        if path and Path(path).is_relative_to(folder):
            # Forced, because not every test closes its store.
            drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
            _administration().execute(drop)


def start_server() -> str:
    """Start a server on a socket in a new folder, which ends with this process however it ends; return its URL."""
    binaries = Path(subprocess.run([FIND], check=True, stdout=subprocess.PIPE, text=True).stdout.strip())
    folder = Path(tempfile.mkdtemp(prefix="maestro-postgresql-"))
    identity = _server_identity(folder)
    options = " ".join((f"-k {folder}", "-c listen_addresses=''", *(f"-c {option}" for option in OPTIONS)))
    for command in (
        (binaries / "initdb", "-A", "trust", "-U", "maestro", "--no-sync", "-E", "UTF8", "--locale=C.UTF-8"),
        (binaries / "pg_ctl", "start", "-w", "-t", "120", "-o", options, "-l", folder / "log"),
    ):
        # The server inherits the standard streams of pg_ctl, so they are no pipes, which it would hold open.
        with (folder / "output").open("wb") as output:
            done = subprocess.run(
                (*command, "-D", folder / "data"), stdout=output, stderr=output, cwd=folder, check=False, **identity
            )
        if done.returncode:
            said = "\n".join(file.read_text() for file in (folder / "output", folder / "log") if file.exists())
            raise RuntimeError(f"PostgreSQL does not start: {command[0]} ended with {done.returncode}.\n{said}")
    watch = ("sh", "-c", STOP_WITH_TESTS, "sh", binaries / "pg_ctl", folder)
    # In a session of its own, because Ctrl-C must first end the tests.
    watcher = subprocess.Popen(watch, stdin=subprocess.PIPE, cwd="/", start_new_session=True, **identity)
    atexit.register(watcher.communicate)
    return f"postgresql://maestro@/postgres?host={folder}"


def _server_identity(folder: Path) -> dict[str, Any]:
    """Return who runs the server, as arguments for ``subprocess``, and give them the folder; root may not."""
    if os.geteuid() != 0:
        return {}
    for name in SYSTEM_USERS:
        with suppress(KeyError):
            user = pwd.getpwnam(name)
            os.chown(folder, user.pw_uid, user.pw_gid)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": ()}
    raise RuntimeError(f"PostgreSQL refuses to run as root, and none of these users exists: {', '.join(SYSTEM_USERS)}.")


def prepare() -> None:
    """Start the server if it is not there, and make the empty store that new databases are copied from."""
    with psycopg.connect(server(), autocommit=True) as connection:
        _template(connection)


@cache
def server() -> str:
    """Return the URL of the server that all tests of a run share; start it if it is not there."""
    if SERVER not in os.environ:
        os.environ[SERVER] = start_server()
    return os.environ[SERVER]


def _name_of(path: Path) -> str:
    return f"t_{hashlib.sha256(os.fsencode(path)).hexdigest()[:24]}"


def _url(name: str) -> str:
    return server().replace("/postgres?", f"/{name}?")


@cache
def _administration() -> psycopg.Connection[Any]:
    return psycopg.connect(server(), autocommit=True)


@cache
def _create(name: str, path: str) -> None:
    # A connection of its own, because processes under test are forked from one that has created databases.
    with psycopg.connect(server(), autocommit=True) as connection:
        if _exists(connection, name):
            return
        template = _template(connection)
        with suppress(errors.DuplicateDatabase, errors.UniqueViolation):  # by another process of the same test
            _create_database(connection, name, path, template)


def _create_database(connection: psycopg.Connection[Any], name: str, path: str, template: str) -> None:
    create = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY")
    connection.execute(create.format(sql.Identifier(name), sql.Identifier(template)))
    connection.execute(sql.SQL("COMMENT ON DATABASE {} IS {}").format(sql.Identifier(name), sql.Literal(path)))


def _exists(connection: psycopg.Connection[Any], name: str) -> bool:
    return connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone() is not None


@cache
def _template_name() -> str:
    """Return a name that changes with the migrations, for servers that outlive a run."""
    files = sorted(file for file in schema.MIGRATIONS.rglob("*") if file.suffix in {".py", ".sql"})
    return f"template_{hashlib.sha256(b''.join(map(Path.read_bytes, files))).hexdigest()[:16]}"


def _template(connection: psycopg.Connection[Any]) -> str:
    """Return the name of an empty store, and create it if this is the first test."""
    name = _template_name()
    if _exists(connection, name):
        return name
    connection.execute("SELECT pg_advisory_lock(%s)", (TEMPLATE_LOCK,))
    if not _exists(connection, name):
        unfinished = f"{name}_unfinished"
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(unfinished)))
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(unfinished)))
        _migrate(_url(unfinished))
        rename = sql.SQL("ALTER DATABASE {} RENAME TO {}")
        connection.execute(rename.format(sql.Identifier(unfinished), sql.Identifier(name)))
    connection.execute("SELECT pg_advisory_unlock(%s)", (TEMPLATE_LOCK,))
    return name


def _migrate(url: str) -> None:
    before, schema.administer = schema.administer, database.administer  # type: ignore[attr-defined]
    try:
        schema.upgrade_database(url)
    finally:
        schema.administer = before  # type: ignore[attr-defined]


def _url_of(location: database.Location) -> str:
    return location if isinstance(location, str) else database_url(location)


def _open_database(location: database.Location, busy_seconds: float = database.BUSY_SECONDS) -> database.Database:
    return database.open_database(_url_of(location), busy_seconds)


def _upgrade(location: database.Location) -> None:
    schema.upgrade_database(_url_of(location))


def _administer(location: database.Location, *, write: bool = False, observe: bool = False):  # type: ignore[no-untyped-def]
    return database.administer(_url_of(location), write=write, observe=observe)
