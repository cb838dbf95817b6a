"""The WhatsApp package; only its options are imported until a number is connected."""
