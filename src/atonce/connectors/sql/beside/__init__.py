"""Tables of ours beside the output: dead letters, and the columns that it had."""
