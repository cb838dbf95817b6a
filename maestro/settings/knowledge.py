"""The settings of what agents know: memory and skills."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from maestro.settings.checks import Folder, Seconds
from maestro.settings.section import LIVE, Section


class MemorySettings(Section):
    """What agents remember."""

    scope: Literal["agent", "conversation"] = Field(
        default="agent",
        description="where an agent remembers what it learned: everywhere, or only in the channel it learned it in",
        json_schema_extra=LIVE,
    )


class SkillSettings(Section):
    """Instructions that are given to a model when a message needs them."""

    folder: Folder = Field(
        default=Path("skills"), description="the folder with your own skills, from the folder Maestro is started in"
    )
    look_seconds: Seconds = Field(default=2, description="how often the files of skills are looked at for changes")
