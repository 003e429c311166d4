"""What each loader imports but never uses to read from a local disk, and how to do without it.

The trainers' packages import clouds and models as they start (boto3, google-cloud-storage,
transformers, torchvision: gigabytes), and their readers use none of it. Leaving those out keeps the
loaders' environment to torch and some small packages; all the code that reads is the trainers' own.
A stand-in that is used after all fails: it has no attributes but the ones its importer asks for.
"""

import os
import sys
from importlib.util import find_spec, module_from_spec
from types import ModuleType, SimpleNamespace


def cached_path(path: str, quiet: bool) -> None:
    """OLMo-core fetches what is not in its local cache with this: our files are all there."""
    raise FileNotFoundError(path)


# Packages whose __init__ is not run; their modules are imported one by one.
BARE = {
    "datatrove": ["datatrove.pipeline.tokens"],
    "mds": ["streaming", "streaming.base"],
    "megatron": ["megatron.core"],  # nothing is missing: this saves 2 seconds of models
    "olmo": ["olmo_core.data"],
}

STAND_INS: dict[str, dict[str, dict[str, object]]] = {
    "datatrove": {
        "huggingface_hub": {"HfFileSystem": object, "cached_assets_path": object},
        "tokenizers.processors": {"TemplateProcessing": object},
    },
    "litdata": {
        "boto3": {},
        "botocore": {},
        "botocore.credentials": {"InstanceMetadataProvider": object},
        "botocore.utils": {"InstanceMetadataFetcher": object},
    },
    "mds": {"brotli": {}, "snappy": {}, "zstd": {}},  # compressed shards, which we do not write
    "olmo": {
        "cached_path": {"cached_path": cached_path},
        "cached_path.schemes": {
            "S3Client": SimpleNamespace(recoverable_errors=()),
            "SchemeClient": object,
            "add_scheme_client": object,
        },
    },
}


def leave_out(name: str) -> None:
    """Make the loader's modules importable: call it before their import."""
    if name == "olmo":
        os.environ["OLMO_DISABLE_PER_RANK_TRITON_CACHE"] = "1"  # else it makes folders in /tmp
    for module_name, attributes in STAND_INS.get(name, {}).items():
        module = ModuleType(module_name)
        vars(module).update(attributes)
        sys.modules[module_name] = module
    for package in BARE.get(name, []):
        spec = find_spec(package)
        if spec is None:
            raise ModuleNotFoundError(package)
        sys.modules[package] = module_from_spec(spec)
    if name == "megatron":
        # First, because it and megatron.core.utils import each other.
        import megatron.core.parallel_state  # noqa: F401
