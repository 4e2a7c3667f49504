"""Knowledge bases: named containers of documents, and who owns them."""
