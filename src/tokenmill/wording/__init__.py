"""Numbers, nouns and names as people write them, for options, hints and messages."""
