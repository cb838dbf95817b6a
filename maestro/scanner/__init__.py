"""Finds secrets in texts: keys, tokens, passwords, private keys."""
