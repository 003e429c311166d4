"""datatrove, as its README and examples/tokenize_from_hf_to_s3.py have it: tokenize, then merge.

One task a file, two workers, completions in a logging_dir that stays the same from run to run. The
seeds are there so that two runs can be compared; without them datatrove shuffles anew each time.

    run_datatrove.py write SOURCE OUT        run_datatrove.py read OUT TOKENS
"""

import glob
import os
import sys

import mishap


def watched(data, rank, world_size):
    for document in data:
        mishap.document(document.text)
        yield document


def write(source: str, out: str) -> None:
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens.merger import DocumentTokenizerMerger
    from datatrove.pipeline.tokens.tokenizer import DocumentTokenizer

    tokenize = LocalPipelineExecutor(
        pipeline=[
            JsonlReader(source),
            watched,
            DocumentTokenizer(
                output_folder=f"{out}/tokenized",
                tokenizer_name_or_path=os.environ["PEER_TOKENIZER"],
                eos_token="<|endoftext|>",
                save_filename="corpus_tokenized",
                seed=1,
            ),
        ],
        tasks=len(os.listdir(source)),
        workers=2,
        logging_dir=f"{out}/logs/tokenization",
    )
    merge = LocalPipelineExecutor(
        pipeline=[
            DocumentTokenizerMerger(
                input_folder=f"{out}/tokenized",
                output_folder=f"{out}/dataset",
                save_filename="corpus",
                seed=1,
            ),
        ],
        tasks=1,
        logging_dir=f"{out}/logs/merged",
    )
    tokenize.run()
    merge.run()


def read(out: str, tokens: str) -> None:
    """Its own dataset class goes over all windows; then the files' bytes, which they are cut of."""
    from datatrove.utils.dataset import DatatroveFolderDataset

    dataset = DatatroveFolderDataset(f"{out}/dataset", 255, filename_pattern="*.ds", token_size=2)
    for position in range(len(dataset)):
        dataset[position]
    with open(tokens, "wb") as sink:
        for path in sorted(glob.glob(f"{out}/dataset/*.ds")):
            with open(path, "rb") as file:
                sink.write(file.read())


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](*sys.argv[2:])
