"""A plugin whose import fails."""

raise RuntimeError("this module was built for another version")
