"""Finds secrets in texts: keys, tokens, passwords, private keys."""

from maestro.domain.scanning import REDACTED, ScanResult, ScanRules, SecretScanner, Span

__all__ = ["REDACTED", "ScanResult", "ScanRules", "SecretScanner", "Span"]
