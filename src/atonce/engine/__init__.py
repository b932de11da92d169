"""Spark: the session, the `atonce` source, and one micro-batch delivered."""
