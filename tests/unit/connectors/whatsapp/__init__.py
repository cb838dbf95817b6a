"""The WhatsApp connector, piece by piece."""
