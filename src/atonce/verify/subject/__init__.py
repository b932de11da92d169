"""What is verified: a pipeline or a command, its input and its processes."""
