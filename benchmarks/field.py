"""The field that races are run on: corpora, scratch folders, cores; and one contestant's races."""

from __future__ import annotations

import dataclasses
import fcntl
import functools
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass

from answers import Answer, answer, differs
from contestants import TOKENMILL, Contestant, surroundings
from corpus import Recipe, text_bytes
from measure import Cost, Failed, compile_package, cost

# (dtype of the ids in a nanogpt or raw file, EOT)
ENCODINGS = {
    "gpt2": ("<u2", 50256),
    "cl100k_base": ("<u4", 100257),
    "o200k_base": ("<u4", 199999),
}
START_BYTES = 400_000  # of the corpus that only start-up is to be seen in
START_RUNS = 2
FIRST_TOKEN = """
import sys, time
from tokenmill import prepare
from tokenmill.run import SilentWatch
class First(SilentWatch):
    def step(self, slice_, step):
        if step.done_tokens:
            print(time.time() - float(sys.argv[1])); sys.stdout.flush(); raise KeyboardInterrupt
try:
    prepare(sys.argv[2], sys.argv[3], num_proc=int(sys.argv[4]), watch=First())
except KeyboardInterrupt:
    pass
"""


class Field:
    """Everything below `folder`; `num_proc` cores for everybody, the benchmark included."""

    def __init__(
        self,
        folder: str,
        source: str | None,
        num_proc: int,
        minutes: float = 0.0,  # 0: as long as it takes
        keep: bool = False,
    ) -> None:
        self.folder = folder
        self.source = source
        self.num_proc = num_proc
        self.out = os.path.join(folder, "trial")
        self.log = os.path.join(folder, "log")
        self._corpora = os.path.join(folder, "corpora")
        self._keep = keep
        self._minutes = minutes
        self._began = time.monotonic()
        self._texts: dict[Recipe, int] = {}
        self._answers: dict[tuple[Recipe, str], Answer] = {}
        os.makedirs(self._corpora, exist_ok=True)
        self._lock = open(os.path.join(folder, "lock"), "w")  # noqa: SIM115
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(f"another benchmark is running in {folder}: wait for it") from None
        self.cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, self.cores[:num_proc])
        self.environment = surroundings(os.path.join(folder, "scratch"), num_proc)
        compile_package()

    def is_late(self, share: float) -> bool:
        """Whether this share of the minutes has passed."""
        passed = time.monotonic() - self._began
        return bool(self._minutes) and passed > share * 60 * self._minutes

    def say(self, line: str) -> None:
        print(f"[{time.strftime('%H:%M:%S')}] {line}", file=sys.stderr, flush=True)

    def corpus(self, recipe: Recipe) -> str:
        return recipe.corpus(self._corpora)

    def text_bytes(self, recipe: Recipe) -> int:
        if recipe not in self._texts:
            self._texts[recipe] = text_bytes(self.corpus(recipe))
        return self._texts[recipe]

    def cost(self, command: list[str]) -> Cost:
        """Of a command that finds no output of another there."""
        self.clear()
        return cost(command, self.environment, self.log)

    def clear(self) -> None:
        shutil.rmtree(self.out, ignore_errors=True)

    def clean(self) -> None:
        """Remove what was made, at the end."""
        self.clear()
        shutil.rmtree(os.path.join(self.folder, "scratch", "tmp"), ignore_errors=True)
        if not self._keep:
            shutil.rmtree(self._corpora)

    def right_answer(self, recipe: Recipe, encoding: str) -> Answer:
        """tokenmill's, whatever the others say."""
        key = (recipe, encoding)
        if key not in self._answers:
            self.cost(
                TOKENMILL.command(
                    self.corpus(recipe), self.out, self.num_proc, "--tokenizer", encoding
                )
            )
            dtype, eot = ENCODINGS[encoding]
            self._answers[key] = answer(self.out, TOKENMILL.reads, eot, dtype)
        return self._answers[key]

    def first_token_seconds(self, recipe: Recipe) -> float:
        """From the start of the process to the first batch encoded."""
        corpus = self.corpus(recipe)
        self.clear()
        command = [sys.executable, "-c", FIRST_TOKEN, str(time.time()), corpus, self.out]
        command.append(str(self.num_proc))
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        return float(done.stdout)


@dataclass
class Race:
    """One contestant on its share of a corpus, as often as `run` is called."""

    contestant: Contestant
    field: Field
    whole: Recipe
    num_bytes: int
    encoding: str = "gpt2"
    costs: list[Cost] = dataclasses.field(default_factory=list)
    seconds: list[float] = dataclasses.field(default_factory=list)
    difference: str | None = None  # "": same tokens as tokenmill; None: has no tokens to compare
    failure: str = ""

    @property
    def is_share(self) -> bool:
        return self.num_bytes < self.whole.num_bytes

    @functools.cached_property
    def recipe(self) -> Recipe:
        """In parquet, as tokenmill gets it."""
        if not self.is_share:
            return self.whole
        # Small row groups, so that its four files are equally long, and none is empty.
        rows = min(250, self.num_bytes // 100_000)
        return dataclasses.replace(self.whole, num_bytes=self.num_bytes, row_group=rows)

    @property
    def text_mb(self) -> float:
        return self.field.text_bytes(self.recipe) / 1e6

    @functools.cached_property
    def start_mb(self) -> float:
        return self.field.text_bytes(self._start_recipe) / 1e6

    @functools.cached_property
    def start_seconds(self) -> float:
        """For next to no text. What times itself has none."""
        if self.contestant.times_itself:
            return 0.0
        command = self._command(self._start_recipe)
        return min(self.field.cost(command).seconds for _ in range(START_RUNS))

    @property
    def _start_recipe(self) -> Recipe:
        return dataclasses.replace(self.whole, num_bytes=START_BYTES, row_group=25)

    def run(self) -> None:
        if self.failure:
            return
        command = self._command(self.recipe)
        try:
            start = self.start_seconds  # measured once
            spent = self.field.cost(command)
            if self.difference is None and self.contestant.reads:
                self._compare()
        except Failed as error:
            self.failure = str(error)
            self.field.say(f"  {self.contestant.name}: {error}")
            return
        own = json.loads(spent.stdout)["seconds"] if self.contestant.times_itself else 0.0
        self.costs.append(spent)
        self.seconds.append(own or spent.seconds)
        rate = self.text_mb / self.seconds[-1]
        self.field.say(
            f"  {self.contestant.name:12} {self.seconds[-1]:7.2f} s {rate:7.1f} MB/s"
            f"   (start-up {start:.2f} s)"
        )

    def _command(self, recipe: Recipe) -> list[str]:
        corpus = self.field.corpus(dataclasses.replace(recipe, layout=self.contestant.layout))
        return self.contestant.command(
            corpus, self.field.out, self.field.num_proc, *self._more(recipe)
        )

    def _more(self, recipe: Recipe) -> list[str]:
        if self.contestant is TOKENMILL:
            return ["--tokenizer", self.encoding]
        if self.contestant.name == "writing":
            right = self.field.right_answer(recipe, self.encoding)
            width = int(ENCODINGS[self.encoding][0][-1])
            return [str(width * (right.num_tokens + right.num_documents))]
        return [self.encoding] if self.encoding != "gpt2" else []

    def _compare(self) -> None:
        dtype, eot = ENCODINGS[self.encoding]
        if self.contestant.name == "gigatoken":  # which leaves nothing unless asked to
            self.field.cost([*self._command(self.recipe), "save"])
        found = answer(self.field.out, self.contestant.reads, eot, dtype)
        self.difference = differs(found, self.field.right_answer(self.recipe, self.encoding))
