"""Encodings: tokenizers by identity, loaded lazily, once per process, and exact.

    get_encoding("gpt2").encode_array(texts)    Arrow strings in, ids and offsets out

encoding.py is the class, lookup.py finds an identity, loading.py builds its engine. Importing this
package imports no tokenizer library, and neither numpy nor pyarrow.
"""

from tokenmill.encodings.encoding import Encoding
from tokenmill.encodings.identity import EncodingId
from tokenmill.encodings.lookup import get_encoding
from tokenmill.encodings.published import ENCODING_NAMES
from tokenmill.encodings.tokens import TokenArray

__all__ = ["ENCODING_NAMES", "Encoding", "EncodingId", "TokenArray", "get_encoding"]
