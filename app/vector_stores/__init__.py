"""Vector stores: the contract, the base class, the importable contract suite and one module per store."""
