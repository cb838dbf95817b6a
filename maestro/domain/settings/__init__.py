"""The sections of the settings, as immutable values that every layer may import."""
