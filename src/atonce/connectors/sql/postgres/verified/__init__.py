"""PostgreSQL under `atonce verify`: a scratch schema, a proxy that sees COMMITs, its own code for input and output."""
