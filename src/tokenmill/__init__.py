"""tokenmill: raw text in, training-ready token shards out."""

__version__ = "0.1.0"
