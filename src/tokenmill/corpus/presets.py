"""Corpora that people train on: what the bare name of their repository stands for.

`files` is used if the dataset card lists no configs, `recommended` if it lists several and no
default. `example` is a config for messages, if only the user can choose; `samples` has the paths of
some configs, for messages when the card cannot be read. All keep their text in the column `text`,
the default of --text-column. Each entry says where its facts were found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tokenmill.corpus.fineweb import REPOS, VERSIONS


@dataclass(frozen=True, slots=True)
class Preset:
    """What is known of one repository besides its dataset card."""

    source: str  # where this was found
    recommended: tuple[str, ...] = ()  # configs
    example: str | None = None  # a config
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # globs by split
    samples: Mapping[str, str] = field(default_factory=dict)  # globs by config

    def globs(self, config: str | None, split: str | None) -> tuple[str, ...]:
        """The files of a config and split, as far as they are known without the card."""
        if config is None:
            return self.files.get(split or "train", ())
        return (self.samples[config],) if config in self.samples else ()


PRESETS = {
    **{
        repo: Preset(
            "public code that loads it by this config",
            example="sample-10BT",
            samples={path.replace("/", "-"): f"{path}/*.parquet" for path in VERSIONS.values()},
        )
        for repo in REPOS.values()
    },
    "HuggingFaceFW/fineweb-2": Preset(
        "the repository's tree: data/LANGUAGE_Script/{train,test}/*.parquet, one config each",
        example="deu_Latn",
    ),
    "mlfoundations/dclm-baseline-1.0": Preset(
        "a public `hf download` script: global-shard_NN_of_10/local-shard_N_of_10/*.jsonl.zst",
        files={"train": ("global-shard_*/local-shard_*/*.jsonl.zst",)},
    ),
    "mlfoundations/dclm-baseline-1.0-parquet": Preset(
        "the repository's tree: filtered/OH_eli5_vs_rw_v2_bigram_200k_train/...",
        files={"train": ("filtered/**/*.parquet",)},
    ),
    "HuggingFaceTB/cosmopedia": Preset(
        "the dataset viewer: eight configs; the card: `text` in those that were seen",
        recommended=(
            *("auto_math_text", "khanacademy", "openstax", "stanford", "stories"),
            *("web_samples_v1", "web_samples_v2", "wikihow"),
        ),
    ),
    "HuggingFaceTB/smollm-corpus": Preset(
        "the dataset card: the third config, python-edu, has file ids in place of text",
        recommended=("cosmopedia-v2", "fineweb-edu-dedup"),
    ),
    "Skylion007/openwebtext": Preset(
        "a copy of the dataset card: plain_text, plain_text/train-*, is the default",
        files={"train": ("plain_text/train-*.parquet",)},
    ),
    "roneneldan/TinyStories": Preset(
        "the repository's tree: data/train-* and data/validation-*; beside them .txt and a .tar.gz",
        files={"train": ("data/train-*.parquet",), "validation": ("data/validation-*.parquet",)},
    ),
    "allenai/c4": Preset(
        "a copy of the dataset card: en/c4-train.*.json.gz is the first of its configs",
        recommended=("en",),
    ),
}
_BY_LOWER_CASE = {repo.lower(): preset for repo, preset in PRESETS.items()}


def preset_of(repo: str) -> Preset | None:
    """The preset of a repository, whose name is not case-sensitive on the Hub either."""
    return _BY_LOWER_CASE.get(repo.lower())
