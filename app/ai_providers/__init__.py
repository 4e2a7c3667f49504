"""AI providers: the contract, batching and retry, the packaged model and any OpenAI-compatible service."""
