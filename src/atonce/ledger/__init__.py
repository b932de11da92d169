"""Where progress lives, and the three-row rule that says what to do with a batch."""
