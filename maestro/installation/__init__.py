"""The installation on this machine: its data folder, keys, store and configuration file."""
