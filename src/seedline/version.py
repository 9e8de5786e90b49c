"""The version of the distribution: one constant, read by the build, the command line and the HTTP client."""

__version__ = "0.1.0"
