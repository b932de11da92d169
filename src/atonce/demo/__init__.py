"""The demo: the same pipeline under each of the four levels, killed at the worst moment, and what is left of it."""
