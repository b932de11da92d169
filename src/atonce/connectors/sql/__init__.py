"""What databases share: one transaction for rows and ledger, and tables as input."""
