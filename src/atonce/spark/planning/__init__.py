"""What a query's plan says: where it can run, whether it keeps state, in which order rows come."""
