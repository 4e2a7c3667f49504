"""Object storage: originals and extracted texts as blobs under keys that the service invents."""
