"""How a session starts quickly: prepared classes, warm workers."""
