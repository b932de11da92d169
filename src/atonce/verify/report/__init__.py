"""The verdict for a terminal, as JSON and as a page."""
