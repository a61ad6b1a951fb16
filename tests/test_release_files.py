"""The files of a release agree: the version, the requirements of the recipe, the pins of the workflows."""

from __future__ import annotations

import re
import runpy
import tomllib

import pytest
from helpers.paths import ROOT

import zerocopy

if not (ROOT / ".github").exists():
    pytest.skip("needs a checkout: the sdist has no workflows and no recipe", allow_module_level=True)

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
#: The line of an action, its digest and its version.
PINNED = re.compile(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_version_is_the_same_everywhere() -> None:
    version = zerocopy.__version__
    assert "version" not in project()["project"]
    assert "version" in project()["project"]["dynamic"]
    assert project()["tool"]["hatch"]["version"] == {"path": "zerocopy/_version.py"}
    assert f"\nversion: {version}\n" in text("CITATION.cff")
    assert f'\n  version: "{version}"\n' in text("recipe/recipe.yaml")
    newest = re.search(r"^## \[(.+?)\].*\n+(.*)", text("CHANGELOG.md"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == version or (newest[1] == "Unreleased" and f"This will be {version}," in newest[2])


def test_the_license_is_the_same_everywhere() -> None:
    license_ = project()["project"]["license"]
    assert f"\nlicense: {license_}\n" in text("CITATION.cff")
    assert f"\n  license: {license_}\n" in text("recipe/recipe.yaml")


def test_the_changelog_describes_the_version_on_one_screen() -> None:
    newest = text("CHANGELOG.md").partition("\n## [")[2].partition("\n## [")[0]
    assert len(newest.splitlines()) <= 60


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_digest(workflow) -> None:
    used = re.findall(r"^\s*(?:- )?uses: (.+)$", workflow.read_text(encoding="utf-8"), re.MULTILINE)
    assert used
    assert not [action for action in used if not action.startswith("$/") and not PINNED.fullmatch(action)]


def test_each_action_has_one_digest() -> None:
    pins = {pin for path in WORKFLOWS for pin in PINNED.findall(path.read_text(encoding="utf-8"))}
    names = [pin.partition("@")[0] for pin in pins]
    assert sorted(names) == sorted(set(names))


def test_the_recipe_has_the_requirements_of_the_package() -> None:
    yaml = pytest.importorskip("yaml")
    recipe = yaml.safe_load(text("recipe/recipe.yaml"))
    requirements, package = recipe["requirements"], project()
    host = {each.replace(" ", "") for each in requirements["host"]} - {"python", "pip"}
    assert host == set(package["build-system"]["requires"])
    run = {each.replace(" ", "") for each in requirements["run"]} - {"python"}
    assert run == set(package["project"]["dependencies"])
    assert recipe["package"]["name"] == package["project"]["name"]
    extras = package["project"]["optional-dependencies"]
    known = {*extras["tables"], *extras["kernels"], *extras["cli"]}
    constraints = {each.replace(" ", "").removeprefix("python-") for each in requirements["run_constraints"]}
    assert constraints
    assert constraints <= known


def test_the_wheels_are_tested_with_files_that_exist() -> None:
    script = runpy.run_path(str(ROOT / ".ci" / "wheels.py"))
    names = [*script["CORE_TESTS"], *script["PURE_TESTS"], *script["FILES_IN_SDIST"], *script["IN_SDIST"]]
    assert not [name for name in names if not (ROOT / name).exists()]
    assert script["VERSION"] == zerocopy.__version__
