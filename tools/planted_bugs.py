"""The bugs that `make teeth` plants (teeth.py): a line of the product each, and the tests that must
turn red.

A bug quotes its line: `python tools/teeth.py --list` fails if the line is not there any more.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bug:
    name: str
    file: str  # in src/tokenmill
    right: str
    wrong: str
    tests: str  # what must turn red, as arguments of pytest


CRASHES = "tests/faults/test_crash_points.py"
POWER = "tests/faults/test_power_loss.py"
ERRORS = "tests/faults/test_disk_errors.py"
DETERMINISM = "tests/faults/test_determinism.py"
CHANGED = "tests/faults/test_changed_world.py"
KILLS = "tests/faults/test_kills.py"
PARTITIONS = "tests/test_partition.py"
PUSH = "tests/dataset/test_push.py"
HUB = "tests/corpus/test_hub.py"
OVERWRITE = "tests/faults/test_overwrite.py"
PUBLICATION_S3 = "tests/dataset/test_publication_s3.py"
PART_SUMS = "tests/encode/test_part_sums.py"
CHECKPOINTS = "tests/encode/test_checkpoint.py tests/assemble/test_resume.py"
XET = "tests/corpus/test_xet.py"
LOADER = "tests/loader/test_loader.py"
KEEP = "tests/test_keep.py"
SHARD_WRITING = "tests/runners/test_shard_writing.py"
SHARD_TASKS = f"tests/assemble/test_shard_tasks.py {SHARD_WRITING}"

MOVE = "        _move_files(staged, out, manifest)\n"
WITHDRAW = "            disk.remove_for_good(manifest_path)\n"
WRITE = (
    "        if not is_in_place:\n            _require_plan(out, plan)\n"
    "            store_of(out).write(os.path.join(out, MANIFEST_NAME), data)\n"
)
REMOVE = "        _require_plan(out, plan, is_in_place)\n        _remove_files(out, removed)\n"

BUGS = [
    Bug(
        "leave the kept rows of a bucket in the order of its parts",
        "assemble/sidecars.py",
        "        return table.take(indices(order)).drop_columns([KEY])",
        "        return table.drop_columns([KEY])",
        f"{KEEP} -k shuffled",
    ),
    Bug(
        "leave the kept rows of a shuffled part in the order of its slice",
        "encode/part.py",
        "        rows = rows.take(indices(order))\n",
        "",
        f"{KEEP} -k shuffled",
    ),
    Bug(
        "leave a sidecar out of the manifest",
        "dataset/new_manifest.py",
        "            for f in output.sidecars\n",
        "            for f in output.sidecars[1:]\n",
        f"{KEEP} {CRASHES}",
    ),
    Bug(
        "trust kept rows by their record alone",
        "assemble/resume.py",
        "    for split, num_bytes in enumerate(record.kept_bytes):\n",
        "    for split, num_bytes in enumerate(()):\n",
        KEEP,
    ),
    Bug(
        "lose the row of a document that two splits share",
        "assemble/sidecars.py",
        "block.cut_at(0, whole)[1]",
        "block.cut_at(0, begun)[1]",
        KEEP,
    ),
    Bug(
        "take the first rows in place of those that are documents",
        "corpus/rows.py",
        "return replace(self, batch=self.batch.take(indices(positions)))",
        "return replace(self, batch=self.batch.slice(0, len(positions)))",
        KEEP,
    ),
    Bug(
        "keep the rows of other documents, where a part is written again without copies",
        "encode/pruning.py",
        "documents.take(indices(positions))",
        "documents.slice(0, len(positions))",
        f"{KEEP} -k copies",
    ),
    Bug(
        "take the kept rows of a part that another has replaced",
        "assemble/sidecars.py",
        "key = (record.part, len(chunks)",
        "key = (record.slice_index, len(chunks)",
        f"{KEEP} -k copies",
    ),
    Bug(
        "give the documents of a list the numbers of documents",
        "encode/kept_file.py",
        "indices(span.first_row + rows.file_rows)",
        "indices(span.first_row + rows.numbers)",
        f"{KEEP} -k list",
    ),
    Bug(
        "drop the fsync of a new file",
        "storage/new_file.py",
        "                if self._is_synced:\n                    os.fsync(fd)",
        "                pass",
        POWER,
    ),
    Bug(
        "drop the fsync of a folder after a rename",
        "storage/disk.py",
        "target)\n    if is_durable:\n        fsync_folder(os.path.dirname(target))\n",
        "target)\n",
        POWER,
    ),
    Bug(
        "drop the fsync of a shard's piece",
        "storage/file_piece.py",
        'with as_output_error("sync", self.path):\n            os.fsync(self._fd)',
        'with as_output_error("sync", self.path):\n            pass',
        POWER,
    ),
    Bug(
        "drop the fsync of the folder of a shard's piece",
        "storage/file_piece.py",
        "            os.fsync(self._fd)\n        disk.fsync_folder(os.path.dirname(self.path))\n",
        "            os.fsync(self._fd)\n",
        POWER,
    ),
    Bug(
        "take a shard task for done without a look at its bytes",
        "assemble/writing.py",
        "    if record.end != task.end:\n        return False\n",
        "    return True\n",
        CHANGED,
    ),
    Bug(
        "let a part go when its tasks are handed out, not when they are done",
        "assemble/parts_in_use.py",
        "        self._users.update(needed)\n",
        "",
        CRASHES,
    ),
    Bug(
        "forget that a part was used and removed",
        "assemble/parts_in_use.py",
        "            self._used.save(self._work)\n",
        "",
        KILLS,
    ),
    Bug(
        "forget where a shard ended whose lengths are gone",
        "assemble/stream.py",
        "        return None if record is None else record.end",
        "        return None",
        f"{CRASHES} {SHARD_TASKS}",
    ),
    Bug(
        "let go of the part that shows where a shard ends",
        "assemble/cuts.py",
        "        if not stretch.is_empty or (is_shard and self._held):",
        "        if not stretch.is_empty:",
        SHARD_TASKS,
    ),
    Bug(
        "write a piece from the beginning of its file",
        "assemble/writing.py",
        "    return len(header) + task.first_token * DTYPE_BYTES[task.layout.dtype]",
        "    return len(header)",
        SHARD_TASKS,
    ),
    Bug(
        "trust a part without its checksum",
        "assemble/resume.py",
        "    return not store.is_local or file_digest(",
        "    return True or file_digest(",
        POWER,
    ),
    Bug(
        "trust a part by its record alone",
        "assemble/resume.py",
        "all(_is_unchanged(file) for file in needed_files(work, record, used))",
        "True",
        f"{CHANGED} {POWER}",
    ),
    Bug(
        "write the record before the part is renamed",
        "encode/part.py",
        "            file.commit()\n        for writer in self._kept",
        "            pass\n        for writer in self._kept",
        f"{CRASHES} {ERRORS}",
    ),
    Bug(
        "trust the hashes of texts without their checksum",
        "encode/text_hashes.py",
        "    is_whole = xxhash.xxh3_128_digest(body) == data[-_CHECKSUM_BYTES:]\n",
        "    is_whole = True\n",
        "tests/test_dedup.py -k stopped",
    ),
    Bug(
        "believe that the hashes of texts are whole",
        "assemble/duplicates.py",
        "        return index, saved_hashes(work, plan_id, index) is not None\n",
        "        return index, True\n",
        "tests/test_dedup.py -k stopped",
    ),
    Bug(
        "let a task take slices whose hashes are lost for done",
        "run/partition.py",
        "        forget_without_hashes(job, records)\n",
        "        pass\n",
        "tests/test_dedup.py -k hashes_are_lost",
    ),
    Bug(
        "replace the checkpoint by one with fewer records",
        "encode/ledger.py",
        " or not records.covers_checkpoint:\n",
        ":\n",
        CHECKPOINTS,
    ),
    Bug(
        "keep the old manifest while its shards are replaced",
        "dataset/publication.py",
        WITHDRAW,
        "",
        OVERWRITE,
    ),
    Bug(
        "write the manifest before the shards are there",
        "dataset/publication.py",
        MOVE + REMOVE + WRITE,
        WRITE + MOVE + REMOVE,
        OVERWRITE,
    ),
    Bug(
        "remove the old dataset before the new one is there",
        "dataset/publication.py",
        "    names = {file.name for file in manifest.files}\n",
        "    _remove_files(out, replaced or ())\n"
        "    names = {file.name for file in manifest.files}\n",
        OVERWRITE,
    ),
    Bug(
        "leave an interrupted publication to nobody",
        "dataset/publication.py",
        "    with store_of(out).lock(lock_path(out)):\n"
        "        _complete(out, is_interrupted=True)\n",
        "    pass\n",
        OVERWRITE,
    ),
    Bug(
        "take the old shard of a name and size for the new one",
        "dataset/publication.py",
        "        not is_hashed or sha256_at(path, 0, file.num_bytes, len(pieces) > 1) == pieces\n",
        "        True\n",
        f"{OVERWRITE} -k staged_shard",
    ),
    Bug(
        "let a run in a bucket publish that another has taken over",
        "dataset/bucket_runs.py",
        "    if seen.run != run:\n        raise taken_over(out)\n    pointed",
        "    pointed",
        f"{PUBLICATION_S3} -k late_run",
    ),
    Bug(
        "replace an object whose content is another",
        "storage/objects/store.py",
        "        if version is None or self._content(url) != old:\n",
        "        if version is None:\n",
        "tests/storage/test_contract.py -k swap",
    ),
    Bug(
        "replace an object that changed meanwhile",
        "storage/objects/s3.py",
        """, IfMatch=f'"{version}"')""",
        ")",
        "tests/storage/test_objects.py -k swap",
    ),
    Bug(
        "take a part's bytes as they come",
        "encode/part_sums.py",
        "                if sum_of(block) != wanted:\n",
        "                if False:\n",
        PART_SUMS,
    ),
    Bug(
        "take a bucket's tokens as they come",
        "encode/part.py",
        "        require_sum(of_tokens, *tokens)\n",
        "        pass\n",
        PART_SUMS,
    ),
    Bug(
        "compare inputs with what is replaced by their names alone",
        "storage/address.py",
        "    return found.st_dev, found.st_ino",
        "    return os.path.abspath(path)",
        "tests/corpus/test_inputs_safe.py",
    ),
    Bug(
        "finish with parts that are missing or damaged",
        "run/finish.py",
        "    if missing := [index for index in indices if index not in records]:",
        "    if missing := []:",
        PARTITIONS,
    ),
    Bug(
        "rename without a temporary name",
        "storage/local.py",
        "NewFile(path + disk.unique_suffix(), place,",
        "NewFile(path, place,",
        CRASHES,
    ),
    Bug(
        "count a death for shards that wait",
        "runners/child.py",
        "*self.committing[:1]]",
        "*self.committing]",
        f"{SHARD_WRITING} -k for_ever",
    ),
    Bug(
        "count a death for an order that could not begin",
        "runners/child.py",
        "        return len(self.committing) > 1 + MAX_WAITING_DRAFTS",
        "        return False",
        f"{SHARD_WRITING} -k for_ever",
    ),
    Bug(
        "retry a task whose worker died beside others",
        "runners/shard_writing.py",
        "        return self._num_failed > 0",
        "        return False",
        f"{SHARD_WRITING} -k alone",
    ),
    Bug(
        "give a worker more to do beside a task that must be alone",
        "runners/supervisor.py",
        "                if child.is_alone or child is kept_free:",
        "                if child is kept_free:",
        f"{SHARD_WRITING} -k alone",
    ),
    Bug(
        "count the deaths of a shard that gets further as if it did not",
        "runners/shard_writing.py",
        "            self._num_failed = 0\n",
        "",
        f"{SHARD_WRITING} -k further",
    ),
    Bug(
        "go on for ever while workers die of one shard after the other",
        "runners/supervisor.py",
        "            self._shard_deaths.on_death(death)",
        "            pass",
        f"{SHARD_WRITING} -k after_every_shard",
    ),
    Bug(
        "leave a parent's files open in a fork",
        "runners/spawn.py",
        "            _close_all_but(3)\n",
        "",
        "tests/runners/test_spawn.py",
    ),
    Bug(
        "take a short write for a whole one",
        "storage/disk.py",
        "    while view:\n        view = view[os.write(fd, view) :]",
        "    os.write(fd, view)",
        f"{ERRORS} -k only_part",
    ),
    Bug(
        "swallow an error of the disk",
        "storage/output_errors.py",
        '        raise OutputError(f"cannot {doing} {path}: {reason}", hint=hint) from error',
        "        pass",
        ERRORS,
    ),
    Bug(
        "list inputs in the order of the folder",
        "corpus/inputs.py",
        "return sorted(inputs, key=lambda source: os.fsencode(source.name))",
        "return list(inputs)[::-1]",
        f"{DETERMINISM} tests/test_prepare.py",
    ),
    Bug(
        "let a task write its plan over another's",
        "storage/disk.py",
        "os.link(source, target)",
        "os.replace(source, target)",
        PARTITIONS,
    ),
    Bug(
        "let a task keep the lock for itself",
        "storage/lock.py",
        "fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX",
        "fcntl.LOCK_EX",
        PARTITIONS,
    ),
    Bug(
        "take a record of another plan",
        "encode/record.py",
        "record if record.plan_id == plan_id and record.slice_index == slice_index else None",
        "record",
        PARTITIONS,
    ),
    Bug(
        "take a checkpoint of another plan",
        "encode/ledger.py",
        "rest or not data.startswith(head) or hashlib",
        "rest or hashlib",
        CHECKPOINTS,
    ),
    Bug(
        "trust a checkpoint without its checksum",
        "encode/ledger.py",
        " or hashlib.sha256(body).digest() != digest:",
        ":",
        CHECKPOINTS,
    ),
    Bug(
        "remove record files before their checkpoint is there",
        "encode/ledger.py",
        "        file.commit()\n    saved = records.mark_saved()\n",
        "        pass\n    saved = records.mark_saved()\n",
        f"{CRASHES} -k checkpoint",
    ),
    Bug(
        "take the row of a slice that was encoded again since",
        "assemble/resume.py",
        "            records.discard(index)  # its file counts, even if it is damaged\n",
        "            pass\n",
        CHECKPOINTS,
    ),
    Bug(
        "put the time into the manifest",
        "dataset/manifest.py",
        'return {"tokenmill_manifest": MANIFEST_VERSION, **plain}',
        'import time\n\n        return {\n            "tokenmill_manifest": MANIFEST_VERSION,\n'
        '            **plain,\n            "at": time.time(),\n        }',
        DETERMINISM,
    ),
    Bug(
        "choose the split by Python's hash",
        "encode/documents.py",
        "(hashed(data[a:b], seed) < below for a, b in itertools.pairwise(bounds))",
        "((hash(bytes(data[a:b])) & (1 << 64) - 1) < below for a, b in itertools.pairwise(bounds))",
        DETERMINISM,
    ),
    Bug(
        "leave an option out of a run's identity",
        "config/options.py",
        'meta.text is a field of meta", of_source=True,',
        'meta.text is a field of meta", of_source=True, in_identity=False,',
        CHANGED,
    ),
    Bug(
        "do not notice that an input changed",
        "corpus/plan.py",
        "        if now != then:",
        "        if False:",
        CHANGED,
    ),
    Bug(
        "cast ids without a check",
        "encode/documents.py",
        "    if largest > np.iinfo(dtype).max:",
        "    if False:",
        "tests/faults/test_text_properties.py",
    ),
    Bug(
        "leave a bad row out without counting it",
        "encode/mill.py",
        "self.counts += Counts(num_quarantined=len(bad), num_duplicates=num_duplicates)",
        "self.counts += Counts(num_duplicates=num_duplicates)",
        "tests/corpus/test_bad_input.py",
    ),
    Bug(
        "rule out a row group by the nulls in a struct's fields",
        "corpus/readers/parquet.py",
        "if paths == [field.path] and not pa.types.is_nested(field.type):",
        "if paths:",
        "tests/where/test_where.py",
    ),
    Bug(
        "take a file that went to another source for unchanged",
        "run/request.py",
        "before = {source.label: (source.num_bytes, source.digest) for source in manifest.inputs}\n"
        "        after = {source.label: ",
        "before = {source.path: (source.num_bytes, source.digest) for source in manifest.inputs}\n"
        "        after = {source.name: ",
        "tests/test_sources.py -k conflict",
    ),
    Bug(
        "hold out the last tokens of a corpus that is repeated",
        "assemble/fitting.py",
        "    if options.is_repeated:\n",
        "    if False:\n",
        "tests/test_sources.py -k too_few",
    ),
    Bug(
        "count the slice that reaches a limit for the last source",
        "dataset/source_totals.py",
        "plan.slices.source_of(place)",
        "plan.slices.source_of(min(index, len(plan.slices) - 1))",
        "tests/test_sources.py -k limit_tokens",
    ),
    Bug(
        "draw another sample where the corpus was moved to",
        "corpus/rows.py",
        'name = source.name.rpartition("/")[2]',
        "name = source.name",
        "tests/test_choosing_rows.py",
    ),
    Bug(
        "cut a CSV file at a line end within a field",
        "corpus/readers/records.py",
        "    if not _are_in_place(array, quotes, delimiter[0]):",
        "    if False:",
        "tests/corpus/readers/test_delimited.py",
    ),
    Bug(
        "look at a record of a CSV file only when it has doubled, even beyond the limit",
        "corpus/readers/records.py",
        "wanted = min(2 * num_bytes, MAX_DOCUMENT_BYTES + 1)",
        "wanted = 2 * num_bytes",
        "tests/corpus/readers/test_delimited.py",
    ),
    Bug(
        "take a number that is not whole for text in a template",
        "corpus/readers/json_values.py",
        '    if isinstance(value, ExactNumber) and value.digits.removeprefix("-").isdecimal():\n'
        "        return value.digits, False",
        "    if isinstance(value, float):\n        return repr(value), False",
        "tests/corpus/readers/test_row_text.py",
    ),
    Bug(
        "lose a byte order mark where a block of a CSV file begins",
        "corpus/readers/delimited.py",
        "    if block.startswith(UTF8_BOM):",
        "    if False:",
        "tests/corpus/readers/test_delimited.py",
    ),
    Bug(
        "take a compressed stream that was cut short for a whole one",
        "corpus/readers/decompression.py",
        'raise BrokenStream("Truncated compressed stream")',
        'return b""',
        "tests/corpus/readers/test_compression.py",
    ),
    Bug(
        "take half a number at the end of a block for an element of an array",
        "corpus/readers/json_array.py",
        "may_go_on = self._text[end - 1] not in",
        "may_go_on = not self._text[end - 1] not in",
        "tests/corpus/readers/test_json_array.py",
    ),
    Bug(
        "count a filtered list of documents as none",
        "corpus/rows.py",
        "rows.num_covered + len(own) - len(rows),",
        "len(own),",
        "tests/corpus/readers/test_row_text.py",
    ),
    Bug(
        "let special tokens in text become control tokens",
        "encodings/tiktoken.py",
        "special_tokens={}",
        'special_tokens={"<|endoftext|>": identity.eot_token}',
        "tests/test_prepare.py tests/faults/test_text_properties.py",
    ),
    Bug(
        "split words of a rank file that are tokens",
        "encodings/rank_engine.py",
        '"ignore_merges": True',
        '"ignore_merges": False',
        "tests/encodings/test_rank_files.py",
    ),
    Bug(
        "take only one cut of each token for a merge",
        "encodings/rank_engine.py",
        '                yield f"{token[:cut]} {token[cut:]}"',
        '                yield f"{token[:cut]} {token[cut:]}"\n                break',
        "tests/encodings/test_rank_files.py",
    ),
    Bug(
        "use the fast engine for ranks though it differs from tiktoken",
        "encodings/rank_engine.py",
        "        if is_exact(identity, agrees):",
        "        if True:",
        "tests/encodings/test_rank_files.py",
    ),
    Bug(
        "let a pattern of the user's leave out text",
        "encodings/own_pattern.py",
        "if self.decode_bytes(ids) != text.encode():",
        "if False:",
        "tests/encodings/test_rank_files.py",
    ),
    Bug(
        "go on with merges that changed",
        "encodings/vocab_merges.py",
        "if _sha256(plain) != identity.file_sha256:",
        "if False:",
        "tests/encodings/test_vocab_merges.py",
    ),
    Bug(
        "check a vocabulary again in every worker",
        "runners/worker.py",
        'remember(identity, order["verdict"])',
        "remember(identity, None)",
        "tests/encodings/test_verdict.py",
    ),
    Bug(
        "follow a link out of the folder",
        "storage/folder_files.py",
        "        if os.path.commonpath(",
        "        if False and os.path.commonpath(",
        "tests/faults/test_security.py",
    ),
    Bug(
        "push what was not verified",
        "dataset/push/upload.py",
        "    if not report.is_whole:\n",
        "    if False:\n",
        PUSH,
    ),
    Bug(
        "believe the Hub",
        "dataset/push/upload.py",
        "            _require_same(there.name, wanted, present)\n",
        "",
        PUSH,
    ),
    Bug(
        "commit over somebody else's commit",
        "dataset/push/upload.py",
        "                    parent_commit=parent,\n",
        "",
        PUSH,
    ),
    Bug(
        "commit the manifest of a dataset first",
        "dataset/push/upload.py",
        "    for name, content in ((CARD_NAME, card), (MANIFEST_NAME, data)):\n"
        "        if content is not None:\n"
        "            digest = hashlib.sha256(content).hexdigest()\n"
        "            found.append(",
        "    for name, content in ((CARD_NAME, card), (MANIFEST_NAME, data)):\n"
        "        if content is not None:\n"
        "            digest = hashlib.sha256(content).hexdigest()\n"
        "            found.insert(0, ",
        PUSH,
    ),
    Bug(
        "resume with the newest commit of a branch",
        "corpus/hub_listing.py",
        "self._hub.commit(repo, kept or revision)",
        "self._hub.commit(repo, revision)",
        "tests/corpus/test_hub_revisions.py",
    ),
    Bug(
        "print a document as it is",
        "wording/escapes.py",
        'unicodedata.category(char)[0] not in "CZ"',
        "unicodedata.category(char)",
        "tests/faults/test_security.py",
    ),
    Bug(
        "let a document's text become markup",
        "look/web/markup.py",
        "return html.escape(printable(text, keep_lines=True))",
        "return printable(text, keep_lines=True)",
        "tests/look/report/test_page.py",
    ),
    Bug(
        "answer whatever name a web site gave to 127.0.0.1",
        "look/view/guard.py",
        "if len(asked) != 1 or asked[0] not in hosts:",
        "if len(asked) != 1:",
        "tests/look/view/test_guard.py",
    ),
    Bug(
        "answer without the secret",
        "look/view/guard.py",
        "return secrets.compare_digest(given, prefix)",
        "return True",
        "tests/look/view/test_guard.py",
    ),
    Bug(
        "answer requests of other origins",
        "look/view/guard.py",
        'if any(origin != f"http://{asked[0]}" for origin in headers("Origin")):',
        "if False:",
        "tests/look/view/test_guard.py",
    ),
    Bug(
        "make markup of a document's text in the viewer",
        "look/view/page/dom.js",
        "  made.append(...children); // strings become text nodes\n",
        "  for (const one of children) {\n    if (one.nodeType) made.append(one);\n"
        "    else made.innerHTML += one;\n  }\n",
        "tests/look/view/test_browser.py",
    ),
    Bug(
        "leave the end of a long page out",
        "look/view/page/tokens.js",
        "  if (own === shown) showUpTo(shown.length);\n",
        "",
        "tests/look/view/test_browser.py",
    ),
    Bug(
        "show the name of a kept column as it is",
        "look/view/dataset_view.py",
        "[printable(name), text_runs(_shown(value))]",
        "[name, text_runs(_shown(value))]",
        "tests/look/view/test_accessible.py",
    ),
    Bug(
        "follow EOT ids anew in each piece of a file",
        "dataset/verify/scan.py",
        "after._first_text[(state + self.num_eot) % 2]",
        "after._first_text[state]",
        "tests/dataset/test_verify.py",
    ),
    Bug(
        "take a source row for the same without a look",
        "dataset/verify/source_row.py",
        '    if at is None:\n        return RowComparison("same", text=number)',
        '    if True:\n        return RowComparison("same", text=number)',
        "tests/dataset/test_source_row.py",
    ),
    Bug(
        "let all ranks leave a shard at the same step",
        "look/view/steps.py",
        "beyond = 1 + rank * leap",
        "beyond = 1",
        "tests/look/view/test_steps.py",
    ),
    Bug(
        "leave out the counts of a process that died",
        "runners/forks.py",
        "yield work(item, lambda count: None) if found is None else found",
        "if found is not None:\n                yield found",
        "tests/look/report/test_figures.py",
    ),
    Bug(
        "take documents with the same ends for the same",
        "look/report/duplicates.py",
        "(key[1:] != key[:-1]) | (digest[1:] != digest[:-1])",
        "key[1:] != key[:-1]",
        "tests/look/report/test_figures.py",
    ),
    Bug(
        "take a download without its hash",
        "storage/hub.py",
        "            if found == file.digest:\n",
        "            if found:\n",
        HUB,
    ),
    Bug(
        "believe what is in the cache",
        "storage/hub.py",
        "            if digest_of(here, algorithm) == file.digest:\n",
        "            if True:\n",
        HUB,
    ),
    Bug(
        "leave wrong bytes in the cache",
        "storage/hub.py",
        "        for wrong in (os.path.realpath(path), path):\n            disk.remove(wrong)\n",
        "",
        HUB,
    ),
    Bug(
        "take a CDN's expired address for a lack of rights",
        "storage/hub.py",
        "        return urlsplit(_url_of(error))[:2] != endpoint[:2]",
        "        return False",
        HUB,
    ),
    Bug(
        "forget the shared store",
        "storage/hub.py",
        "os.path.basename(os.readlink(path))",
        "os.path.basename(os.path.realpath(path))",
        "tests/corpus/test_hub_revisions.py",
    ),
    Bug(
        "wait for ever for Xet storage that is silent",
        "storage/hub.py",
        "                if transfer.is_silent:\n",
        "                if False:\n",
        XET,
    ),
    Bug(
        "wait for the lock of a download that was left behind",
        "storage/hub.py",
        "                    self._unlock(file, cache)\n",
        "",
        XET,
    ),
    Bug(
        "keep what killed downloads left",
        "storage/hub.py",
        "        self._remove_unused(file, cache)\n",
        "",
        HUB,
    ),
    Bug(
        "use an unchecked footer",
        "corpus/hub_inputs.py",
        "                self._require_footer(name, here[name])\n",
        "                pass\n",
        HUB,
    ),
    Bug(
        "forget the footers of the plan when a run is resumed",
        "prepare.py",
        "    remote.footers |= plan.footers\n",
        "",
        HUB,
    ),
    Bug(
        "read files of the Hub that have not arrived",
        "corpus/hub_inputs.py",
        "while self._downloads is not None and not needed <= self._downloads.here.keys():",
        "while False:",
        "tests/corpus/test_hub_inputs.py tests/corpus/test_hub.py",
    ),
    Bug(
        "fetch files before the plan that --where may rule out",
        "corpus/hub_inputs.py",
        "(config.limit_docs or config.limit_tokens or config.where)",
        "(config.limit_docs or config.limit_tokens)",
        "tests/corpus/test_hub_inputs.py",
    ),
    Bug(
        "take a config for the whole dataset when the Hub is away",
        "dataset/pinned_revisions.py",
        "        elif isinstance(source, DatasetName):\n            return False\n",
        "        elif isinstance(source, DatasetName):\n            return True\n",
        "tests/corpus/test_hub_revisions.py",
    ),
    Bug(
        "count rows that the loader prepared ahead as read",
        "loader/loader.py",
        "                yield self._maker.batch(planned.popleft())\n",
        "                self._rows = place\n"
        "                yield self._maker.batch(planned.popleft())\n",
        f"{LOADER} -k yielded",
    ),
    Bug(
        "round the loader's counter down to whole steps",
        "loader/loader.py",
        "        self._rows = rows\n        self._version += 1\n",
        "        self._rows = rows - rows % self.options.batch_size\n        self._version += 1\n",
        f"{LOADER} -k divide",
    ),
    Bug(
        "load a loader's state on other data",
        "loader/state.py",
        "        elif was[name] != now[name]:",
        "        elif False:",
        f"{LOADER} -k refused",
    ),
    Bug(
        "shuffle a loader's rows once for all epochs",
        "loader/order.py",
        'self._permutation(self.num_rows, "rows", epoch)',
        'self._permutation(self.num_rows, "rows", 0)',
        f"{LOADER} -k another_order",
    ),
    Bug(
        "look a loader's row up one turn too early",
        "loader/order.py",
        "[turns - number * TURNS_AT_ONCE]",
        "[turns - number * TURNS_AT_ONCE - 1]",
        "tests/loader/test_order.py",
    ),
    Bug(
        "let a loader's permutation leave its domain by one",
        "loader/order.py",
        "outside = np.flatnonzero(found >= self.size)",
        "outside = np.flatnonzero(found > self.size)",
        "tests/loader/test_permutation.py -k edges",
    ),
    Bug(
        "let the last target of a loader's row begin no document",
        "loader/rows.py",
        "found[place, bounds.ends_between(start, start + self.seq_len) - start] = True",
        "found[place, bounds.ends_between(start, start + self.seq_len - 1) - start] = True",
        f"{LOADER} -k masks",
    ),
    Bug(
        "pack pieces of the last row of a length twice",
        "loader/packing/best_fit.py",
        "    num_last = len(placed) - (num_used - 1) * per_row",
        "    num_last = per_row + 0 * (num_used - 1) * per_row",
        "tests/loader/packing/test_packing.py -k quadratic",
    ),
    Bug(
        "read rows of a plan that was damaged",
        "loader/packing/row_plan.py",
        "if xxhash.xxh3_128_hexdigest(data.data) == unit.checksum:",
        "if True:",
        "tests/loader/packing/test_packing.py -k damaged",
    ),
    Bug(
        "follow a plan out of its tokens",
        "loader/packing/row_plan.py",
        "            if found.is_sound(seq_len, num_tokens):",
        "            if True:",
        "tests/loader/packing/test_packing.py -k lead_out",
    ),
    Bug(
        "take a plan for other tokens than it was made for",
        "loader/packing/pack.py",
        "if known is None or other:",
        "if known is None:",
        "tests/loader/packing/test_packing.py -k refused",
    ),
    Bug(
        "count padding in the loss",
        "loader/batch_maker.py",
        "    return (~starts[:, 1:] | is_end) & is_real",
        "    return ~starts[:, 1:] | is_end",
        "tests/loader/packing/test_packing.py -k packed_run",
    ),
    Bug(
        "mix packed sources by rows and not by tokens",
        "loader/mixing.py",
        "Fraction(str(w)) / row_tokens[name]",
        "Fraction(str(w))",
        "tests/loader/packing/test_packing.py -k mixture",
    ),
    Bug(
        "take half an index of documents for a whole one",
        "dataset/cache_folder.py",
        "data[:_HEAD_BYTES] != xxhash.xxh3_64_digest(body)",
        "False",
        "tests/dataset/test_open.py -k index",
    ),
    Bug(
        "read a map of a file that was cut off",
        "dataset/open_shards.py",
        "                self._require_size(position, found)\n",
        "                pass\n",
        "tests/dataset/test_open.py -k cut_off",
    ),
]
