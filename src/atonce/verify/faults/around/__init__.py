"""What happens around a subject: its input, its ledger, the store of its output."""
