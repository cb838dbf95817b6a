"""Histories of real runs; code that can no longer replay them would break what is running when it is installed."""
