"""datatrove's tokenization pipeline, as its README has it, without the merge that may follow.

Not shuffled, which spares it a second pass over its files. One task a file, so there are as many
files as workers, or a multiple.

    python benchmarks/peers/run_datatrove.py CORPUS OUT NUM_PROC
"""

from __future__ import annotations

import os
import sys


def main(corpus: str, out: str, num_proc: int) -> None:
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import ParquetReader
    from datatrove.pipeline.tokens.tokenizer import DocumentTokenizer

    LocalPipelineExecutor(
        pipeline=[
            ParquetReader(corpus),
            DocumentTokenizer(
                output_folder=os.path.join(out, "tokens"),
                tokenizer_name_or_path=os.environ["PEER_TOKENIZER"],
                eos_token="<|endoftext|>",
                shuffle_documents=False,
            ),
        ],
        tasks=len(os.listdir(corpus)),
        workers=num_proc,
        logging_dir=os.path.join(out, "logs"),
    ).run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
