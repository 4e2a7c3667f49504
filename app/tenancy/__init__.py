"""Tenancy: organizations, users, Works, roles and API keys; answers `Authenticator` and `Access`."""
