"""What came out, read back and judged."""
