"""The faults, and how each is injected: one function per variant."""
