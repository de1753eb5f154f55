"""Training of a network on the windows of a table, by Lightning."""
