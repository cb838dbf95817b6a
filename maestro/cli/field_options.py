"""Options that stand for the fields of an input: what is not given stays as it is."""

from pathlib import Path
from typing import ClassVar

import typer

from maestro.cli.given_files import text_of


class FieldOptions:
    """The base of dataclasses of options, each named as the field that it stands for; None where not given.

    The option ``prompt_file`` gives the text of the field ``prompt_field``.
    """

    prompt_field: ClassVar[str] = "prompt"

    def fields(self) -> dict[str, object]:
        """Return the fields that were given; raises ``ConfigurationError`` for a file that cannot be read."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        file = given.pop("prompt_file", None)
        if not isinstance(file, Path):
            return given
        if self.prompt_field in given:
            raise typer.BadParameter("give --prompt or --prompt-file, not both")
        return {**given, self.prompt_field: text_of(file)}
