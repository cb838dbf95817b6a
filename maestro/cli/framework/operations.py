"""Commands that are generated from the operations on a noun: list, show, add, edit, remove, and every switch."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, Concatenate, TypeVar, get_args

from pydantic import BaseModel

from maestro.cli.framework.commands import Commands, configured
from maestro.cli.framework.inputs import MOST, InputOptions, Limit, QueryOptions, TextCursor, row_number
from maestro.cli.framework.options import Given
from maestro.cli.framework.output import Columns, Lines, Portrait, Result, listing, write
from maestro.domain.fields import read
from maestro.installation.storage import open_existing_store
from maestro.operations.inputs import LIMIT
from maestro.settings import Loaded
from maestro.settings.live import LiveSettings
from maestro.store.store import Store

ACTOR = "operator"
"""The author of every change by a command in the audit log."""
Texts = Callable[[Any], Lines] | str
"""The lines for people about a view, or what follows its name in one line."""
Operation = TypeVar("Operation", bound=Callable[Concatenate[Any, ...], Result])


@dataclass(frozen=True)
class Opened:
    """The settings and the open store; ``live`` are the settings with the changes made while Maestro runs."""

    loaded: Loaded
    store: Store
    live: LiveSettings


@contextlib.contextmanager
def opened(given: Given) -> Iterator[Opened]:
    """Open the store of the data folder, beside a running Maestro; raises ``ConfigurationError`` without one."""
    loaded = configured(given, accounts=False)
    with contextlib.closing(open_existing_store(loaded.settings)) as store:
        live = LiveSettings(loaded)
        live.look(store)
        yield Opened(loaded, store, live)


@dataclass(frozen=True)
class Reference:
    """How a command names one of a noun: the field ``key`` of its view, and the argument ``ref``.

    ``new_ref`` is the argument of ``add``. ``row`` is the noun where the argument is the number of a row.
    """

    key: str = "id"
    ref: Any = str
    new_ref: Any = None
    row: str = ""

    def read(self, text: str) -> Any:
        """Return the argument, as a number where it is one; raises ``typer.BadParameter``."""
        word = str(get_args(self.ref)[-1]).partition(":")[0]
        return row_number(text, self.row, word) if self.row else text


class OperationCommands(Commands):
    """The commands of a noun; they are in the help in the order in which they are added.

    ``operations`` makes the operations on the noun from what ``context`` opens; the generated commands call their
    methods ``list``, ``show``, ``add``, ``change`` and ``remove``.
    """

    def __init__(
        self,
        about: str | None,
        operations: Callable[[Any], Any],
        reference: Reference = Reference(),
        context: Callable[[Given], AbstractContextManager[Any]] = opened,
    ) -> None:
        super().__init__(about)
        self._operations, self._context = operations, context
        self._reference, self._key = reference, reference.key
        self._ref = _parameter("ref", reference.ref)
        self._new_ref = _parameter("ref", reference.new_ref or reference.ref)

    def operation(self, name: str | None = None, **more: Any) -> Callable[[Operation], Operation]:
        """Make a command of a function that gets the operations and its options, and returns a view and its lines."""

        def add(function: Operation) -> Operation:
            @wraps(function)
            def run(given: Given, **options: Any) -> None:
                with self._context(given) as at:
                    view, lines = function(self._operations(at), **options)
                write(view, lines, given.as_json)

            own = [_parameter(one.name, one.annotation, one.default) for one in signature(function).parameters.values()]
            # Inspect.signature reads it first.
            run.__signature__ = Signature([_parameter("given", Given), *own[1:]])  # type: ignore[attr-defined]
            self.command(name, **more)(run)
            return function

        return add

    def list(
        self, about: str, columns: Columns, empty: str, query: QueryOptions | None = None, *, paged: bool = False
    ) -> None:
        """Add ``list``, of what a query finds; neither with a query nor ``paged``, it shows everything."""

        def run(operations: Any, limit: int = MOST, cursor: str | None = None, query: Any = None) -> Result:
            page = operations.list(limit, cursor) if query is None else operations.list(query)
            return page, listing(page, columns, empty)

        paging = [_parameter("limit", Limit, LIMIT), _parameter("cursor", TextCursor, None)] if paged else []
        self._add("list", about, run, *paging, *([_parameter("query", query)] if query else []))

    def show(self, about: str, portrait: Portrait) -> None:
        """Add ``show``."""
        self.one("show", about, lambda operations, ref: operations.show(ref), portrait.lines)

    def one(self, name: str, about: str, operation: Callable[[Any, Any], BaseModel], texts: Texts) -> None:
        """Add a command that reads one of the noun, or changes it."""

        def run(operations: Any, ref: Any) -> Result:
            view = operation(operations, self._reference.read(ref))
            return view, self._lines(view, texts)

        self._add(name, about, run, self._ref)

    def switch(self, name: str, about: str, texts: Texts, change: BaseModel) -> None:
        """Add a command that always makes the same change, such as ``enable``."""
        self.one(name, about, lambda operations, ref: operations.change(ref, change, ACTOR), texts)

    def add(self, about: str, new: type[BaseModel], options: InputOptions, texts: Texts) -> None:
        """Add ``add``: the argument names the new one, and the options are its other fields."""

        def run(operations: Any, ref: str, options: dict[str, Any]) -> Result:
            view = operations.add(read(new, {self._key: ref, **options}), ACTOR)
            return view, self._lines(view, texts)

        self._add("add", about, run, self._new_ref, _parameter("options", options))

    def edit(self, about: str, change: type[BaseModel], options: InputOptions, texts: Texts = " is changed") -> None:
        """Add ``edit``: the options are the fields that change."""

        def run(operations: Any, ref: Any, options: dict[str, Any]) -> Result:
            view = operations.change(ref, read(change, options), ACTOR)
            return view, self._lines(view, texts)

        self._add("edit", about, run, self._ref, _parameter("options", options))

    def remove(self, about: str, *, by_view: bool = False) -> None:
        """Add ``remove``; with ``by_view`` one that has several names is removed by the name in its view."""

        def run(operations: Any, ref: Any) -> Result:
            name = getattr(operations.show(ref), self._key) if by_view else ref
            operations.remove(name, ACTOR)
            return {self._key: name}, f"{name} is gone"

        self._add("remove", about, run, self._ref)

    def _lines(self, view: BaseModel, texts: Texts) -> Lines:
        return f"{getattr(view, self._key)}{texts}" if isinstance(texts, str) else texts(view)

    def _add(self, name: str, about: str, run: Callable[..., Result], *parameters: Parameter) -> None:
        run.__doc__ = about
        # Inspect.signature reads it first.
        run.__signature__ = Signature([_parameter("operations", Any), *parameters])  # type: ignore[attr-defined]
        self.operation(name)(run)


def _parameter(name: str, annotation: object, default: object = Parameter.empty) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
