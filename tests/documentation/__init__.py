"""What builds and checks the documentation: generated pages, command blocks, the site."""
