"""The Matrix connector for Maestro; only the platform's options are imported until an account is connected."""
