"""Model folders: read for ever, and read with suspicion."""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.forecasters import H, make_forecaster, make_long
from tests.golden import make
from tests.processes import limited_files
from tsformer import Forecaster
from tsformer.data.columns import Columns
from tsformer.errors import ConfigError, ModelFolderError
from tsformer.model import folder as model_folder
from tsformer.model import weights
from tsformer.model.card import model_card

GOLDEN = sorted(path.parent for path in Path(make.__file__).parent.glob("*/forecast.csv"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a model folder with conformal offsets."""
    conformal = np.zeros((3, H, 1, 2))
    make_forecaster(quantiles=(0.1, 0.9), conformal=conformal).save(tmp_path / "model")
    Forecaster.load(tmp_path / "model")
    return tmp_path / "model"


def change(folder: Path, function: Callable[[dict[str, Any]], object]) -> None:
    """Change the values in config.json in place."""
    values = json.loads((folder / "config.json").read_text())
    function(values)
    (folder / "config.json").write_text(json.dumps(values))


# For ever


@pytest.mark.filterwarnings("ignore:horizon=10")
@pytest.mark.parametrize("folder", GOLDEN, ids=lambda folder: folder.name)
def test_a_golden_folder_forecasts_what_it_always_did(folder: Path) -> None:
    expected = pd.read_csv(folder / "forecast.csv", parse_dates=["ds"])
    found = make.predict(folder)
    assert list(found) == list(expected)
    assert len(found) == len(expected)
    for name in expected.columns:
        if name.startswith("tsformer"):
            np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-5)
        else:
            assert found[name].tolist() == expected[name].tolist()


def test_every_kind_has_a_golden_folder_of_todays_schema() -> None:
    names = {folder.name for folder in GOLDEN}
    assert {f"{model_folder.SCHEMA_VERSION}-{kind}" for kind in make.GOLDEN} <= names


def test_an_older_schema_is_migrated_step_by_step(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def from_0(values: dict[str, Any]) -> dict[str, Any]:
        return {**values, "schema_version": 1, "horizon": values["steps"]}

    def from_1(values: dict[str, Any]) -> dict[str, Any]:
        return {name: x for name, x in values.items() if name != "steps"} | {"schema_version": 2}

    monkeypatch.setattr(model_folder, "MIGRATIONS", {0: from_0, 1: from_1})
    change(folder, lambda values: values.update(schema_version=0, steps=values.pop("horizon")))
    assert Forecaster.load(folder).horizon == H


def test_an_older_schema_that_is_read_no_more_says_so(folder: Path) -> None:
    change(folder, lambda values: values.update(schema_version=1))
    with pytest.raises(
        ModelFolderError, match=r"schema_version 1, which tsformer .* no longer reads"
    ):
        Forecaster.load(folder)


@pytest.mark.parametrize(
    ("release", "remedy"),
    [
        ("9.1.0", r"pip install 'tsformer>=9\.1\.0'"),
        ("1; rm -rf /", "pip install --upgrade tsformer"),
        (None, "pip install --upgrade tsformer"),
    ],
)
def test_a_newer_schema_names_the_release_to_install(
    release: str | None, remedy: str, folder: Path
) -> None:
    versions = {"tsformer": release} if release else []
    change(folder, lambda values: values.update(schema_version=3, versions=versions, new=1))
    with pytest.raises(ModelFolderError, match=rf"schema_version 3.*{remedy}\.$"):
        Forecaster.load(folder)


# The model card


def test_the_card_is_not_needed_and_stays_as_it_was(folder: Path, tmp_path: Path) -> None:
    card = folder / "README.md"
    assert card.read_text().startswith("---\nlibrary_name: tsformer\npipeline_tag: time-series-")
    card.write_text("Mine.")
    loaded = Forecaster.load(folder)
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again" / "README.md").read_text() == "Mine."
    for content in (b"\xff\xfe", b"x" * 2**21):
        card.write_bytes(content)
        Forecaster.load(folder).save(tmp_path / "again")
        assert "# Forecasts of `y`" in (tmp_path / "again" / "README.md").read_text()
    card.unlink()
    Forecaster.load(folder)
    assert not card.exists()


@pytest.mark.parametrize("folder", GOLDEN, ids=lambda folder: folder.name)
def test_the_snippet_in_a_card_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    _, snippet, _ = Path("model/README.md").read_text().split("```")
    names: dict[str, Any] = {}
    exec(snippet.removeprefix("python"), names)
    assert np.isfinite(names["forecast"]["tsformer"]).all()


def test_a_card_names_columns_and_figures_and_no_name_breaks_it() -> None:
    columns = Columns("id|`", "ds", ("y\n# big",), (), ("price",), ("s",), ("price",))
    forecaster = make_forecaster(columns=columns, vocabularies={"price": ["a"]}, head="normal")
    figures = {"mae": 1.25, "rmse": None, "mase": 2.0, "scaled_mae": 0.5, "scaled_mse": 0.25}
    metrics = {
        "test_windows": 1234,
        "test": {"tsformer": figures},
        "test_quantiles": {"tsformer": {"coverage": {"0.9": 0.875}, "scaled_crps": 0.1}},
    }
    card = model_card(forecaster.config, data="sales", metrics=metrics)
    for line in (
        "# Forecasts of `y # big`, 6 steps ahead",
        "| fitted to | `sales` |",
        "| `id/'` | series | text |",
        "| `price` | future covariate, over the horizon too | names of categories |",
        "| tsformer | 1.25 |  | 2 | 0.5 | 0.25 |",
        "| 90 % | 87.5 % |",
    ):
        assert line in card.splitlines()


# Written whole


def test_what_is_in_the_way_is_named(folder: Path, tmp_path: Path) -> None:
    (folder / "notes.txt").write_text("irreplaceable")
    with pytest.raises(ModelFolderError, match=r"In the way: notes\.txt\."):
        make_forecaster().save(folder)
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "config.json").touch()
    with pytest.raises(ModelFolderError, match=r"In the way: config\.json\."):
        make_forecaster().save(tmp_path / "half")
    (tmp_path / "file").touch()
    with pytest.raises(ModelFolderError, match=r"In the way: file\."):
        make_forecaster().save(tmp_path / "file")


def test_an_empty_folder_and_one_without_a_card_are_written(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (folder / "README.md").unlink()
    for place in (tmp_path / "empty", folder):
        make_forecaster().save(place)
        assert {path.name for path in place.iterdir()} == set(model_folder.FILES)


@pytest.mark.parametrize("stop", [OSError, KeyboardInterrupt])
def test_a_rename_that_fails_leaves_the_old_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, stop: type[BaseException]
) -> None:
    before = (folder / "config.json").read_bytes()
    rename = Path.replace

    def replace(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise stop("disk is gone")
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(stop, match="disk is gone"):
        make_forecaster().save(folder)
    assert (folder / "config.json").read_bytes() == before
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_a_full_disk_names_the_folder_and_leaves_the_old_one(folder: Path) -> None:
    before = (folder / "config.json").read_bytes()
    with limited_files(2000), pytest.raises(OSError, match=f"File too large: '{folder}'"):
        make_forecaster().save(folder)
    assert (folder / "config.json").read_bytes() == before
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_what_a_link_leads_to_is_written_not_the_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    make_forecaster().save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert Forecaster.load(tmp_path / "link").horizon == make_forecaster().horizon
    assert (tmp_path / "real" / "config.json").exists()


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "none"])
def test_names_that_no_folder_has_are_refused(name: str) -> None:
    with pytest.raises(ModelFolderError, match="not a model folder"):
        Forecaster.load(name)


def test_a_device_without_numbers_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="device='meta' cannot be used here"):
        Forecaster.load(folder, device="meta")


def test_more_series_than_are_read_again_are_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_folder, "MAX_CONFIG_BYTES", 1000)
    with pytest.raises(ConfigError, match="2 series are too many for one model"):
        make_forecaster().save(tmp_path / "model")
    assert not any(tmp_path.iterdir())


# Device and dtype


@pytest.mark.parametrize("decoding", ["parallel", "autoregressive"])
@pytest.mark.parametrize("head", ["point", "quantile", "normal", "student_t", "negative_binomial"])
def test_double_precision_forecasts_nearly_the_same(
    head: str, decoding: str, tmp_path: Path
) -> None:
    columns = Columns("unique_id", "ds", ("y",), ("p",), (), ("s",), ("s",))
    forecaster = make_forecaster(
        columns=columns,
        vocabularies={"s": ["a", "b"]},
        head=head,
        quantiles=(0.1, 0.9),
        decoding=decoding,
        transform="none",
    )
    forecaster.save(tmp_path / "model")
    frame = make_long({"a": 40, "b": 30}).assign(p=1.0, s="a")
    asked = {} if head == "point" else {"level": 80, "num_samples": 2}
    if head == "negative_binomial":
        frame["y"] = frame["y"].abs().round()
    double = Forecaster.load(tmp_path / "model", dtype="float64")
    assert {x.dtype for x in double.network.state_dict().values()} == {torch.float64}
    found, expected = (x.predict(frame, **asked) for x in (double, forecaster))
    assert list(found) == list(expected)
    np.testing.assert_allclose(found["tsformer"], expected["tsformer"], rtol=1e-4)
    double.save(tmp_path / "again")  # in float32, as it came
    for name in ("model.safetensors", "config.json"):
        one, other = (tmp_path / place / name for place in ("model", "again"))
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("dtype", ["bfloat16", torch.float16, "double"])
def test_other_types_are_refused(dtype: object, folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"dtype='.*': give one of float32, float64"):
        Forecaster.load(folder, dtype=dtype)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("device", ["cuda", "gpu"])
def test_a_device_that_is_not_there_is_named(device: str, folder: Path) -> None:
    with pytest.raises(ConfigError, match=f"device='{device}' cannot be used here"):
        Forecaster.load(folder, device=device)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_folder_goes_from_gpu_to_cpu_and_back(folder: Path, tmp_path: Path) -> None:
    on_gpu = Forecaster.load(folder, device="cuda")
    on_gpu.save(tmp_path / "again")
    frame = make_long({"a": 40})
    expected = Forecaster.load(tmp_path / "again").predict(frame, level=80)
    found = on_gpu.predict(frame, level=80)
    np.testing.assert_allclose(found["tsformer"], expected["tsformer"], rtol=1e-4)


# Hostile folders


def payload(path: Path) -> bytes:
    """Return a pickle that creates a file."""

    class Payload:
        def __reduce__(self) -> tuple[object, tuple[Path]]:
            return Path.touch, (path,)

    return pickle.dumps(Payload())


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_pickle_under_our_name_is_never_run(name: str, folder: Path, tmp_path: Path) -> None:
    (folder / name).write_bytes(payload(tmp_path / "executed"))
    with pytest.raises(ModelFolderError, match=name):
        Forecaster.load(folder)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_links_out_of_the_folder_are_not_followed(name: str, folder: Path, tmp_path: Path) -> None:
    (folder / name).rename(folder / f"{name}.real")
    (folder / name).symlink_to(f"{name}.real")
    Forecaster.load(folder)  # a link within is harmless
    (folder / f"{name}.real").rename(tmp_path / "secret")
    (folder / name).unlink()
    (folder / name).symlink_to("../secret")
    with pytest.raises(ModelFolderError, match=f"{name}: a link that leads out of the folder"):
        Forecaster.load(folder)


def test_a_card_that_is_a_link_out_of_the_folder_is_not_read(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (folder / "README.md").unlink()
    (folder / "README.md").symlink_to(tmp_path / "secret")
    assert Forecaster.load(folder).card is None


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_what_is_not_a_file_is_not_read(name: str, folder: Path) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)  # to read from it would wait for ever
    with pytest.raises(ModelFolderError, match=f"it has no {name}"):
        Forecaster.load(folder)


def with_header(folder: Path, function: Callable[[dict[str, Any]], object]) -> None:
    """Change the header of the weights in place."""
    path = folder / "model.safetensors"
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    function(header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])


FIRST = "skip.bias"
HOSTILE_HEADERS = {
    "more bytes than there are": lambda h: h[FIRST].update(data_offsets=[0, 2**50]),
    "bytes of another": lambda h: h[FIRST].update(data_offsets=h["queries"]["data_offsets"]),
    "bytes in words": lambda h: h[FIRST].update(data_offsets="all"),
    "huge shape": lambda h: h[FIRST].update(shape=[2**62, 2**62]),
    "shape below 0": lambda h: h[FIRST].update(shape=[-1]),
    "shape of numbers": lambda h: h[FIRST].update(shape=[6.0]),
    "shape in words": lambda h: h[FIRST].update(shape="[6]"),
    "no shape": lambda h: h[FIRST].pop("shape"),
    "no tensor": lambda h: h.update({FIRST: 3}),
    "double precision": lambda h: h[FIRST].update(dtype="F64"),
    "unknown type": lambda h: h[FIRST].update(dtype="object"),
    "one more": lambda h: h.update({"../../etc/passwd": h[FIRST]}),
    "one less": lambda h: h.pop(FIRST),
    "strange metadata": lambda h: h.update(__metadata__={"a": [1]}),
    "too many": lambda h: h.update({f"x{i}": {"shape": []} for i in range(200_000)}),
}


@pytest.mark.parametrize("how", HOSTILE_HEADERS)
def test_a_header_that_lies_is_refused(how: str, folder: Path) -> None:
    with_header(folder, lambda header: None)
    Forecaster.load(folder)
    with_header(folder, HOSTILE_HEADERS[how])
    with pytest.raises(ModelFolderError, match=r"model\.safetensors: damaged, or not for this"):
        Forecaster.load(folder)


@pytest.mark.parametrize("length", [0, 1, 3, 10**6, 2**63, 2**64 - 1])
def test_a_length_of_the_header_that_lies_is_refused(length: int, folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(length.to_bytes(8, "little") + path.read_bytes()[8:])
    with pytest.raises(ModelFolderError, match=r"model\.safetensors: damaged, or not for this"):
        Forecaster.load(folder)


def test_any_cut_of_either_file_is_refused(folder: Path) -> None:
    for path in (folder / "model.safetensors", folder / "config.json"):
        data = path.read_bytes()
        for size in {*range(0, len(data), max(len(data) // 20, 1)), len(data) - 1}:
            path.write_bytes(data[:size])
            with pytest.raises(ModelFolderError, match=path.name):
                Forecaster.load(folder)
        path.write_bytes(data + b"x")
        with pytest.raises(ModelFolderError, match=path.name):
            Forecaster.load(folder)
        path.write_bytes(data)


def test_a_tensor_that_does_not_fit_is_named(folder: Path) -> None:
    change(folder, lambda values: values["model"].update(num_layers=3))
    with pytest.raises(ModelFolderError, match=r"transformer\.encoder_layers\.1\.\S+ is missing"):
        Forecaster.load(folder)
    change(folder, lambda values: values["model"].update(num_layers=1, d_ff=17))
    with pytest.raises(ModelFolderError, match=r"\(16, 8\), where the configuration says \(17, 8"):
        Forecaster.load(folder)


def test_nothing_of_the_size_of_the_network_is_built_before_it_is_known_to_fit(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []

    class Network(weights.ForecastNetwork):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            devices = {x.device.type for x in self.state_dict().values()}
            built.append((devices, settings["num_layers"], settings["num_decoder_layers"]))

    monkeypatch.setattr(weights, "ForecastNetwork", Network)
    change(folder, lambda values: values["model"].update(num_layers=1000, num_decoder_layers=1000))
    with pytest.raises(ModelFolderError, match="missing"):
        Forecaster.load(folder)
    assert built == [({"meta"}, 1, 1)]


HOSTILE_JSON = {
    "a key twice": (
        lambda t: t.replace('"horizon"', '"horizon": 6, "horizon"'),
        "'horizon' is listed twice",
    ),
    "schema twice": (lambda t: t.replace("{", '{"schema_version": 2,', 1), "is listed twice"),
    "NaN": (lambda t: t.replace("2.0", "NaN", 1), "NaN is not JSON"),
    "infinity": (lambda t: t.replace("2.0", "-Infinity", 1), "-Infinity is not JSON"),
    "beyond all floats": (lambda t: t.replace("2.0", "1e999", 1), "finite"),
    "many digits": (lambda t: t.replace("6", "9" * 5000, 1), "digits"),
    "deep lists": (lambda t: "[" * 10_000, "nested too deeply"),
    "deep objects": (lambda t: '{"a":' * 9_000, "nested too deeply"),
    "a string without end": (lambda t: '"' + '\\"' * 1_000_000, "Unterminated"),
    "a schema of text": (lambda t: t.replace('version": 2', 'version": "2"'), "schema_version"),
    "a schema that is true": (lambda t: t.replace('version": 2', 'version": true'), "schema_v"),
    "a schema that is a list": (lambda t: t.replace('version": 2', 'version": [2]'), "schema_v"),
}


@pytest.mark.parametrize("how", HOSTILE_JSON)
def test_json_that_is_none_is_refused(how: str, folder: Path) -> None:
    function, message = HOSTILE_JSON[how]
    config = folder / "config.json"
    text = config.read_text()
    config.write_text(function(text))
    assert config.read_text() != text
    with pytest.raises(ModelFolderError, match=rf"config\.json: damaged.*{message}"):
        Forecaster.load(folder)


HOSTILE_VALUES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "code in the model": (lambda v: v["model"].update(_target_="os.system"), "no such setting"),
    "code in the columns": (lambda v: v["columns"].update(_target_="os.system"), "_target_"),
    "code in the scaler": (lambda v: v["scaler"].update(_target_="os.system"), "no such setting"),
    "a target in words": (lambda v: v["columns"].update(target="y"), "columns.target"),
    "a target of numbers": (lambda v: v["columns"].update(target=[1]), "not a text"),
    "ids of numbers": (lambda v: v["scaler"].update(ids=[1, 2]), "scaler.ids.0=1"),
    "a scale of 0": (lambda v: v["scaler"].update(std=[0, 1]), "scaler.std.0=0"),
    "a scale below 0": (lambda v: v["scaler"].update(std=[1, -1]), "scaler.std.1=-1"),
    "a fallback of 0": (lambda v: v["scaler"].update(fallback_std=0), "fallback_std=0"),
    "a long freq": (lambda v: v.update(freq="h" * 10**6), "freq='hhh"),
    "a freq of ages": (lambda v: v.update(freq="99999999999D"), "freq='99999999999D'"),
    "a long zone": (lambda v: v.update(time_zone="A/" * 10**6), "time_zone='A/A"),
    "many tokens": (
        lambda v: (v.update(context_length=2**20), v["model"].update(d_model=2**10, patch_len=1)),
        "tokens",
    ),
    "patches that do not fit": (lambda v: v["model"].update(patch_len=7), "not a multiple"),
    "levels that fall": (lambda v: v["model"].update(quantiles=[0.9, 0.1]), "must rise"),
    "many levels": (lambda v: v["model"].update(quantiles=[0.5] * 10**6), "at most 1000"),
    "many covariates": (
        lambda v: v["columns"].update(past_covariates=[str(i) for i in range(10**5)]),
        "more than 10,000 covariates",
    ),
    "many keys": (
        lambda v: v.update(versions={str(i): i for i in range(10**5)}),
        "more than 20,000 lists, objects and keys",
    ),
    "many lists": (lambda v: v["scaler"].update(ids=[[]] * 10**5), "more than 20,000 lists"),
    "one wrong of many": (lambda v: v["scaler"].update(mean=[None] * 10**6), "mean.0=None"),
}


@pytest.mark.parametrize("how", HOSTILE_VALUES)
def test_values_that_make_no_sense_are_refused_in_few_words(how: str, folder: Path) -> None:
    function, message = HOSTILE_VALUES[how]
    change(folder, function)
    with pytest.raises(ModelFolderError, match=rf"config\.json: damaged.*{message}") as error:
        Forecaster.load(folder)
    assert len(str(error.value)) < 1500


def test_brackets_and_quotes_in_names_count_for_nothing(tmp_path: Path) -> None:
    ids = tuple(f'[{{"{i}":\\' for i in range(30_000))
    make_forecaster(ids=ids).save(tmp_path / "model")
    assert Forecaster.load(tmp_path / "model").config.scaler.ids == list(ids)


LIMITED = """
import json, resource, sys
from pathlib import Path
from tsformer import Forecaster
from tsformer.errors import ModelFolderError

Forecaster.load("model")  # all that is imported
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, used + 2**30))
for folder in sys.argv[1:]:
    try:
        Forecaster.load(folder)
    except ModelFolderError as error:
        print(folder)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited as Linux does")
def test_refusals_take_less_than_a_gigabyte(folder: Path) -> None:
    cases: dict[str, Callable[[Path], object]] = {
        "sparse config": lambda f: os.truncate(f / "config.json", 5 * 10**9),
        "sparse weights": lambda f: os.truncate(f / "model.safetensors", 5 * 10**11),
        "a billion ids": lambda f: (f / "config.json").write_bytes(b'{"ids": [' + b"1," * 10**7),
        "lists": lambda f: (f / "config.json").write_bytes(b"[" + b"[]," * 10**7 + b"[]]"),
        "wide": lambda f: change(f, lambda v: v["model"].update(d_model=2**20, d_ff=2**20)),
        "deep": lambda f: change(
            f, lambda v: v["model"].update(num_layers=1000, num_decoder_layers=1000)
        ),
        "far": lambda f: change(f, lambda v: v.update(horizon=2**20, context_length=6 * 10**5)),
        "offsets": lambda f: change(f, lambda v: v.update(horizon=2**20)),
        "channels": lambda f: change(
            f,
            lambda v: (
                v["model"].update(channels="joint"),
                v.update(channels=[str(i) for i in range(10**5)]),
            ),
        ),
        "header": lambda f: with_header(f, lambda h: h[FIRST].update(shape=[2**40])),
    }
    for name, damage in cases.items():
        place = folder.parent / name
        place.mkdir()
        for file in folder.iterdir():
            (place / file.name).write_bytes(file.read_bytes())
        damage(place)
    run = subprocess.run(
        [sys.executable, "-c", LIMITED, *cases], cwd=folder.parent, capture_output=True, text=True
    )
    assert run.stdout.splitlines() == list(cases), run.stderr
