"""How many tokens a corpus will be, how large and how long in the making: in seconds, by a sample.

    frame.py      what there is: the plan's spans, from footers and file sizes alone
    sample.py     which stretches of it are looked at: two from each stratum, chosen by a seed
    cells.py      such a stretch as documents, from tables     stretches.py  from files of bytes
    ratio.py      sample -> total, with its standard error
    publisher.py  the `token_count` column, where every file has one
    estimation.py all of it together: read this first

Half an estimate is its interval. A stretch of half a megabyte (a cell) is the unit that varies;
the corpus is cut into strata of neighbouring cells, so that files which differ from one another (by
language, by crawl) are each looked at in proportion, and their difference does not widen the
interval. Tokens are extrapolated as a ratio to what is known of every cell without reading it: the
footer's size of the text column, or the bytes of the file.

A corpus that is no larger than the sample is counted, not estimated.

Measured: see docs/decisions.md. 32 GB of text in FineWeb's layout take 3 s on 2 cores.
"""

from tokenmill.estimate.estimation import Estimate, estimate
from tokenmill.estimate.sample import Sample

__all__ = ["Estimate", "Sample", "estimate"]
