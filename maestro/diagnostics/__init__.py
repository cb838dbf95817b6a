"""The checks of ``maestro doctor``."""
