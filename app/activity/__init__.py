"""Activity: what happened; at present the receipts of deletions."""
