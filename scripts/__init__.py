"""Programs for development: the environment, sample texts, and releases."""
