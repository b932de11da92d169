"""What happens to requests, answers, transactions and the broker itself."""
