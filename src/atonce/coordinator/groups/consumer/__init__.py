"""Groups of the new protocol (KIP-848), whose assignment the broker makes."""
