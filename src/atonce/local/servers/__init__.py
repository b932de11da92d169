"""Real servers from their own packages, one file each."""
