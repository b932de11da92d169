"""Transactions, groups and offsets: decide → journal → apply. No sockets, no clock of its own."""
