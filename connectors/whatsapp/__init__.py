"""The WhatsApp package. Only its options are imported until a number is connected."""
