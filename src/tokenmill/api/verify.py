"""`tokenmill.verify`: `tokenmill verify`, as a function."""

from __future__ import annotations

import os
from collections.abc import Iterable

from tokenmill.api.tokenizer import encoding_named
from tokenmill.config.arguments import suggesting
from tokenmill.dataset.verify import Report as VerifyReport
from tokenmill.dataset.verify import verify as verified
from tokenmill.encodings import Encoding
from tokenmill.loader.packing.plan_check import check_row_plans
from tokenmill.wording.quantities import Quantity, count_of

__all__ = ["VerifyReport", "verify"]


@suggesting
def verify(
    folder: str | os.PathLike[str],
    *,
    sample: Quantity = 0,
    full: bool = False,
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
    format: str | None = None,
    dtype: str | None = None,
    tokenizer: str | os.PathLike[str] | Encoding | None = None,
    pattern: str | None = None,
    eot_token: str | None = None,
    eot: str | None = None,
    num_proc: int | None = None,
) -> VerifyReport:
    """Check every file and token of a dataset. Faults are reported, not raised:

        report = tokenmill.verify("data/mine", sample=1000)
        assert report, report.failures

    `sample` documents, or all of them with `full`, are encoded again from the inputs and compared;
    `sources` is where the inputs are now, if they moved. The other arguments describe a folder that
    tokenmill did not write; `tokenizer` may also be the file of a dataset's tokenizer.
    """
    if isinstance(sources, (str, os.PathLike)):
        sources = (sources,)
    return verified(
        folder,
        format_name=format,
        dtype=dtype,
        encoding=encoding_named(tokenizer, pattern, eot_token),
        eot=eot,
        sample=count_of("sample", sample),
        full=full,
        sources=[os.fspath(source) for source in sources],
        num_proc=num_proc,
        also=(check_row_plans,),
    )
