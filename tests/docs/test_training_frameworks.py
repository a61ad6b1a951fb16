"""The sections of docs/training-frameworks.md run, each in a process, where its packages are installed."""

from __future__ import annotations

import pytest
from helpers.page_examples import RUNNER, blocks_by_section
from helpers.paths import ROOT

PAGE = "docs/training-frameworks.md"
SECTIONS = blocks_by_section(ROOT / PAGE)
PACKAGES = {
    "PyTorch": ("torch",),
    "Hugging Face datasets": ("torch", "datasets"),
    "PyTorch Lightning": ("torch", "lightning"),
    "Hugging Face Trainer": ("torch", "transformers", "accelerate"),
    "Accelerate": ("torch", "accelerate"),
    "Keras": ("tensorflow", "keras"),
    "Ray Train": ("torch", "ray", "pydantic"),  # ray.train needs pydantic
    "scikit-learn": ("sklearn",),
}


def test_each_section_has_its_packages() -> None:
    assert list(SECTIONS) == list(PACKAGES)


@pytest.mark.full  # a training with its imports; .ci/run has steps for them
@pytest.mark.parametrize("section", PACKAGES)
def test_a_resumed_training_ends_with_the_same_weights(section: str, run_python) -> None:
    """The page's own assertions compare a resumed training with one that was not stopped."""
    for package in ("pyarrow", *PACKAGES[section]):
        pytest.importorskip(package)
    completed = run_python(RUNNER.format(page=PAGE, blocks=SECTIONS[section]))
    assert completed.returncode == 0, completed.stderr[-6000:]
