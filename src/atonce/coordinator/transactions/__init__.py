"""Transactional ids, their transactions, and producer ids."""
