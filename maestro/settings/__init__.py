"""All settings, and the only package that reads the environment."""

from maestro.settings.environment import read_environment
from maestro.settings.loading import Loaded, Survey, load, survey_settings
from maestro.settings.model import Settings

__all__ = ["Loaded", "Settings", "Survey", "load", "read_environment", "survey_settings"]
