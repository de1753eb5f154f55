"""Run folders of any name go on."""

import pytest
from omegaconf import OmegaConf

from tests.conftest import make_settings
from tsformer.commands.fit import settle_folder

NAMES = [
    "plain",
    "lr=0.1,seed=1",
    "it's",
    'a "quote"',
    "sp ace=é{b}",
    "dol${lar}",
    "back\\slash",
    "[x]",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("quote", ["", "'"])
def test_the_folder_reaches_hydra_as_it_is_called(name, quote, tmp_path, monkeypatch):
    if quote and quote in name:
        pytest.skip("not to be quoted so")
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir()
    OmegaConf.save(make_settings(), tmp_path / name / "config.yaml")
    from hydra.core.override_parser.overrides_parser import OverridesParser

    overrides = OverridesParser.create().parse_overrides(
        settle_folder([f"resume={quote}{name}{quote}"])
    )
    given = {override.key_or_group: override.value() for override in overrides}
    for key in ("resume", "hydra.run.dir"):
        value = given[key] if isinstance(given[key], str) else given[key].text
        assert OmegaConf.create({"x": value}).x == name
