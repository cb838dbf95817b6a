"""The Slack package; only its options are imported until an app is connected."""
