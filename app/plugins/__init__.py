"""Plugins: manifests, discovery by entry point, pins, selection and sealed settings."""
