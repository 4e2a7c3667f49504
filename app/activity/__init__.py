"""Activity: what happened, and the receipts of deletions."""
