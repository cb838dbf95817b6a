"""Commands that are generated from operations: list, show, edit, remove and every switch of a noun."""

from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter, Signature
from typing import Generic, TypeVar

from pydantic import BaseModel, JsonValue, RootModel

from maestro.cli.commands import Commands
from maestro.cli.field_options import FieldOptions
from maestro.cli.opened import ACTOR, Opened, opened
from maestro.cli.options import Given
from maestro.cli.output import write
from maestro.cli.pages import MOST, Limit, TextCursor
from maestro.domain.reading import read
from maestro.operations.inputs import LIMIT

Operations = TypeVar("Operations")
Page = TypeVar("Page", bound=BaseModel)
View = TypeVar("View", bound=BaseModel)
New = TypeVar("New", bound=BaseModel)
Change = TypeVar("Change", bound=BaseModel)
Texts = Callable[[View], Iterable[str]] | str
"""What a person reads of a view: its lines, or what follows its name in one line."""


class Removal(RootModel[Mapping[str, JsonValue]]):
    """What is removed, by the field that names it."""


class OperationCommands(Commands, Generic[Operations]):
    """The commands of a noun, most of them generated; they are in the help in the order in which they are added.

    ``open_operations`` makes its operations, ``field`` is the field of a view that names one of it, and ``ref`` the
    argument that does so on the command line, ``new_ref`` that of ``add``.
    """

    def __init__(
        self,
        about: str,
        open_operations: Callable[[Opened], Operations],
        field: str,
        ref: object,
        new_ref: object = None,
    ) -> None:
        super().__init__(about)
        self._open = open_operations
        self._field = field
        self._ref = _parameter("ref", ref)
        self._new_ref = _parameter("ref", new_ref)

    def list(
        self,
        about: str,
        operation: Callable[[Operations, int, str | None], Page],
        texts: Callable[[Page], Iterable[str]],
        *,
        paged: bool = True,
    ) -> None:
        """Add ``list``; not ``paged``, it shows all at once."""

        def run(given: Given, limit: int = MOST, cursor: str | None = None) -> None:
            with opened(given) as at:
                page = operation(self._open(at), limit, cursor)
            write(page, texts(page), given.as_json)

        options = [_parameter("limit", Limit, LIMIT), _parameter("cursor", TextCursor, None)] if paged else []
        self._add("list", about, run, *options)

    def one(self, name: str, about: str, operation: Callable[[Operations, str], View], texts: Texts[View]) -> None:
        """Add a command that shows one, or does something to it."""

        def run(given: Given, ref: str) -> None:
            with opened(given) as at:
                view = operation(self._open(at), ref)
            write(view, self._lines(view, texts), given.as_json)

        self._add(name, about, run, self._ref)

    def add(
        self,
        about: str,
        operation: Callable[[Operations, New, str], View],
        new: type[New],
        options: type[FieldOptions],
        texts: Texts[View],
    ) -> None:
        """Add ``add``: the argument names the new one, and the options are its other fields."""

        def run(given: Given, ref: str, options: FieldOptions) -> None:
            with opened(given) as at:
                view = operation(self._open(at), read(new, {self._field: ref, **options.fields()}), ACTOR)
            write(view, self._lines(view, texts), given.as_json)

        self._add("add", about, run, self._new_ref, _parameter("options", options))

    def change(
        self,
        name: str,
        about: str,
        operation: Callable[[Operations, str, Change, str], View],
        change: Change,
        texts: Texts[View],
    ) -> None:
        """Add a command that makes always the same change, such as ``enable``."""
        self.one(name, about, lambda operations, ref: operation(operations, ref, change, ACTOR), texts)

    def edit(
        self,
        about: str,
        operation: Callable[[Operations, str, Change, str], View],
        change: type[Change],
        options: type[FieldOptions],
        texts: Texts[View] = " is changed",
    ) -> None:
        """Add ``edit``; the ``fields()`` of the options are what is given of the change."""

        def run(given: Given, ref: str, options: FieldOptions) -> None:
            with opened(given) as at:
                view = operation(self._open(at), ref, read(change, options.fields()), ACTOR)
            write(view, self._lines(view, texts), given.as_json)

        self._add("edit", about, run, self._ref, _parameter("options", options))

    def remove(
        self,
        about: str,
        operation: Callable[[Operations, str, str], None],
        show: Callable[[Operations, str], View] | None = None,
    ) -> None:
        """Add ``remove``; ``show`` is needed where one has several names, to write the one that its view has."""

        def run(given: Given, ref: str) -> None:
            with opened(given) as at:
                operations = self._open(at)
                name = getattr(show(operations, ref), self._field) if show is not None else ref
                operation(operations, name, ACTOR)
            write(Removal({self._field: name}), [f"{name} is gone"], given.as_json)

        self._add("remove", about, run, self._ref)

    def _lines(self, view: View, texts: Texts[View]) -> Iterable[str]:
        return [f"{getattr(view, self._field)}{texts}"] if isinstance(texts, str) else texts(view)

    def _add(self, name: str, about: str, run: Callable[..., None], *parameters: Parameter) -> None:
        run.__doc__ = about
        run.__signature__ = Signature([_parameter("given", Given), *parameters])  # type: ignore[attr-defined] # where inspect looks first
        self.command(name)(run)


def _parameter(name: str, annotation: object, default: object = Parameter.empty) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
