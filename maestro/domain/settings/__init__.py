"""The sections of the settings: frozen values that any layer may take."""
