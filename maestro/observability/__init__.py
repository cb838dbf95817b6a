"""The log, the health port and the readiness of a process."""
