"""Our accounts on platforms: the bots, the channels they saw, and what became of them."""
