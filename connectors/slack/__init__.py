"""The Slack package. Only its options are imported until an app is connected."""
