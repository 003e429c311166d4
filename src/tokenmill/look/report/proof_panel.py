"""The panel that says what a dataset is and how to check it: manifest, files, command."""

from __future__ import annotations

from tokenmill.dataset.recipe import FROM_FILE
from tokenmill.look.report import words
from tokenmill.look.report.blocks import command, details, paragraph, section, table
from tokenmill.look.report.figures import Figures
from tokenmill.look.web import Element, element
from tokenmill.wording.plural import counted
from tokenmill.wording.quantities import shown_bytes


def proof_panel(figures: Figures) -> Element:
    proof, found = figures.proof, figures.glance
    if proof is None:
        told = [
            paragraph(f"The {name} is inferred: {why}.") for name, why in found.inferred.items()
        ]
        return section(
            "proof",
            "Proof",
            paragraph(
                "There is no tokenmill.json, so nothing says what these shards should hold: the "
                "figures below describe what is in the files."
            ),
            told,
            paragraph("To check what can be checked without one:"),
            command(figures.verify_command),
        )
    files = [
        (
            element("code", one.name),
            f"{one.num_tokens:,}" if one.num_tokens else "",
            shown_bytes(one.num_bytes),
            element("code", one.sha256),
            "whole file" if one.num_pieces == 1 else f"first of {one.num_pieces:,} pieces",
        )
        for one in proof.files
    ]
    more = proof.num_files - len(proof.files)
    options = {name: value for name, value in proof.options.items() if name != "named"}
    return section(
        "proof",
        "Proof",
        paragraph(
            f"The sizes of all {counted(proof.num_files, 'file')} match the manifest, "
            "tokenmill.json. This report did not hash them; to check every hash, id and count:",
        ),
        command(figures.verify_command),
        paragraph("The manifest's own sha256: ", element("code", proof.manifest_sha256)),
        paragraph(f"{counted(proof.counts['num_rows'], 'row')} = {proof.shown_counts}."),
        _how_it_was_made(figures),
        command(proof.command),
        [paragraph(words.origin(proof))] if proof.converted_from else [],
        details(
            f"{counted(proof.num_files, 'file')} and their sha256",
            table(("file", "tokens", "size", "sha256", "of"), files, (0, 3, 4), (3,)),
            [paragraph(f"and {more:,} more: see tokenmill.json", soft=True)] if more else [],
        ),
        details(
            "options and versions",
            table(("option", "value"), words.plain_rows(options), (0, 1), (1,)),
            table(("version of", ""), words.plain_rows(proof.versions), (0, 1)),
        ),
    )


def _how_it_was_made(figures: Figures) -> Element:
    if figures.proof is None or figures.proof.command != FROM_FILE:
        return paragraph("To make it again (SOURCE stands for the inputs):")
    printing = element("code", f"{figures.inspect_command} --config")
    return paragraph("To make it again, with what ", printing, " prints as tokenmill.toml:")
