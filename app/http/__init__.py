"""HTTP: sessions, problem details, request ids, health. No domain noun."""
