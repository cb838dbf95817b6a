"""Slack: nothing here is imported before an app is connected, but what can be set of one."""
