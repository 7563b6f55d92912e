"""mtool's version, and the name under which pip installs it."""

__version__ = "0.1.0"
DISTRIBUTION = "mtool"
