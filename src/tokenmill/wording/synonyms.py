"""What other tools call our options and commands, for `did you mean ...?` on the command line and
in Python. Names have underscores, as in Python.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection

_OPTIONS = {
    "num_proc": "workers num_workers nworkers n_workers nproc n_proc num_procs num_process procs "
    "num_processes processes preprocessing_num_workers jobs n_jobs num_jobs cpus num_cpus "
    "cpu_count threads num_threads parallelism tasks num_tasks j n p w",
    "tokenizer": "tokeniser tokenizer_name tokenizer_path tokenizer_name_or_path tokenizer_model "
    "tokenizer_type encoding encoding_name encoder model model_name vocab vocab_file bpe t",
    "out": "output output_dir output_folder output_path output_prefix out_dir outdir out_path "
    "out_folder dest destination target save_dir save_path save_to write_to o",
    "sources": "input inputs input_dir input_folder input_path input_file data data_dir data_path "
    "data_files data_folder dataset source src file files path paths i",
    "text_column": "column columns col text_col text_key text_field text_column_name json_key "
    "json_keys key field content_column dataset_text_field",
    "separator": "sep delimiter delim document_separator doc_separator doc_sep split_on",
    "input_format": "input_type file_type file_format data_format in_format reader",
    "limit_docs": "limit max_docs num_docs max_documents num_documents max_samples num_samples "
    "max_rows docs limit_documents",
    "template": "format_string text_template columns_template prompt_template",
    "lists": "list join_lists explode list_policy",
    "dedup": "deduplicate dedupe unique drop_duplicates exact_dedup",
    "where": "filter filters query condition predicate select",
    "keep": "keep_columns kept_columns metadata meta extra_columns remove_columns",
    "limit_tokens": "max_tokens num_tokens token_limit token_budget total_tokens tokens",
    "on_bad_document": "on_error on_bad errors skip_errors",
    "max_bad_fraction": "max_errors max_error_fraction max_bad",
    "pattern": "regex pat_str split_pattern pretokenizer",
    "eot_token": "eos_token eod_token end_token eot_text document_token",
    "eot": "eos eod append_eod append_eos append_eot add_eos eos_policy",
    "bos_token": "begin_token start_token bos_text",
    "bos": "add_bos prepend_bos add_bos_token bos_policy",
    "empty": "keep_empty drop_empty skip_empty",
    "format": "output_format out_format to_format target_format fmt writer f",
    "name": "prefix stem dataset_name shard_prefix shard_name",
    "shard_tokens": "shard_size tokens_per_shard tokens_per_file max_tokens_per_file "
    "max_tokens_per_shard max_shard_size chunk_size file_size",
    "seq_len": "block_size seq_length sequence_length context_length context_size context ctx_len "
    "max_length max_len max_seq_len max_seq_length",
    "dtype": "token_dtype np_dtype token_size data_type",
    "val_fraction": "val_ratio val_size val_split val_frac valid_fraction validation_fraction "
    "validation_split test_size eval_fraction holdout split",
    "no_val": "no_validation no_split no_test train_only",
    "shuffle": "randomize randomise permute",
    "seed": "random_seed shuffle_seed rng_seed random_state",
    "runner": "executor backend engine",
    "partition": "rank shard_id task_id world_size num_shards array",
    "ray_address": "address cluster",
    "worker_memory": "memory mem mem_per_worker",
    "worker_cpus": "cpus_per_worker cpus_per_task",
    "stall_timeout": "timeout worker_timeout",
    "keep_downloads": "keep_cache cache",
    "overwrite": "force clobber replace overwrite_output_dir overwrite_cache",
    "dry_run": "dryrun check plan simulate",
    "quiet": "silent no_progress disable_tqdm",
    "verbose": "debug log_level loglevel",
    "progress": "verbose tqdm show_progress progress_bar",
    "revision": "branch commit",
    "sample": "num_samples subsample sample_fraction sample_rate fraction",
    "full": "all thorough",
}
_COMMANDS = {
    "prepare": "tokenize tokenise encode build preprocess process run make create start map "
    "resume continue tok",
    "finish": "merge assemble combine join",
    "fineweb": "download fetch fineweb-edu fineweb_edu",
    "estimate": "count size wc",
    "verify": "check validate test audit",
    "inspect": "show view cat head info look peek print decode list ls grep search",
    "report": "stats statistics summary plot profile describe html dashboard compare diff",
    "convert": "export transform translate to",
    "formats": "format",
    "doctor": "diagnose debug watch",
    "demo": "example try quickstart",
    "completion": "completions autocomplete",
    "help": "usage man",
}


def option_meant(name: str, known: Collection[str]) -> str | None:
    """The known option that a user who types `name` probably means; None if none comes close."""
    name = name.replace("-", "_").lower()
    return option_called(name, known) or _nearest(name, known)


def option_called(name: str, known: Collection[str]) -> str | None:
    """The known option with exactly this name, here or in another tool."""
    return _called(name, known, _OPTIONS)


def command_meant(name: str, known: Collection[str]) -> str | None:
    name = name.lower()
    return _called(name, known, _COMMANDS) or _nearest(name, known)


def _called(name: str, known: Collection[str], synonyms: dict[str, str]) -> str | None:
    if name in known:
        return name
    found = (ours for ours, others in synonyms.items() if ours in known and name in others.split())
    return next(found, None)


def _nearest(name: str, known: Collection[str]) -> str | None:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    return near[0] if near else None
