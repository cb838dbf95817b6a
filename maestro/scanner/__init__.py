"""Finds secrets in texts: keys, tokens, passwords, private keys."""

from maestro.domain.redaction import REDACTED, ScanResult, ScanRules, SecretScanner, TextSpan

__all__ = ["REDACTED", "ScanResult", "ScanRules", "SecretScanner", "TextSpan"]
