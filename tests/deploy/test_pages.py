"""What the READMEs of deploy/ say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.deploy.jobs import DEPLOY
from tests.test_documentation import FLAGS

PAGES = sorted(DEPLOY.glob("**/README.md"))
FOLDERS = ["docker", "jupyter", "k8s", "lsf", "monitoring", "pbs", "slurm", "systemd"]


def test_each_folder_has_a_page_that_says_what_was_not_run() -> None:
    assert [page.parent.name for page in PAGES] == ["deploy", *FOLDERS]
    for page in PAGES[1:]:
        assert "**Not run:**" in page.read_text(), page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_links_and_commands_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (page.parent / link).exists(), link
    for path in re.findall(r"(?<!/)deploy/[\w./-]+\w", text):
        assert (DEPLOY.parent / path).exists() or "constraints" in path, path
    for command, rest in re.findall(
        r"gpusched (certificates|worker|scheduler|submit)([^`\n]*)", text
    ):
        own = rest.partition(" -- ")[0]
        assert set(re.findall(r"(?<!\S)--[a-z-]+", own)) <= FLAGS[command], command
