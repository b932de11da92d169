"""What the history and the output may show at each level."""
