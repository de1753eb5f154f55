"""The command line `tsformer`, from a wheel that lies far from the source tree."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tsformer
from tsformer.commands import COMMANDS

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel, and return a folder that holds what is in it."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = [*pip, "wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    install = [*pip, "install", "--no-deps", "--target", str(folder / "site"), str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    return folder / "site"


def run(site: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": str(site)}
    env.pop("TSFORMER_DATA", None)
    command = [sys.executable, "-m", "tsformer", *arguments]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)


@pytest.mark.slow
def test_a_wheel_fits_and_evaluates_far_from_the_source_tree(
    installed: Path, tmp_path: Path
) -> None:
    where = [sys.executable, "-c", "import tsformer; print(tsformer.__file__)"]
    env = os.environ | {"PYTHONPATH": str(installed)}
    found = subprocess.run(where, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert found.stdout.startswith(str(installed))
    tiny = ["trainer.max_steps=3", "model.d_model=16", "sampling.eval_stride=97"]
    fit = run(installed, tmp_path, "fit", "dataset=electricity", "hydra.run.dir=run", *tiny)
    assert fit.returncode == 0, fit.stderr
    assert (tmp_path / "run" / "report.html").is_file()
    evaluate = run(
        *(installed, tmp_path, "evaluate", "model=run/model", "dataset=electricity"),
        *("n_windows=9", "output=out"),
    )
    assert evaluate.returncode == 0, evaluate.stderr
    assert (tmp_path / "out" / "report.html").is_file()


@pytest.mark.slow
def test_configs_of_ones_own_are_added(installed: Path, tmp_path: Path) -> None:
    dataset = tmp_path / "mine" / "dataset" / "sales.yaml"
    dataset.parent.mkdir(parents=True)
    dataset.write_text("defaults: [custom]\nname: sales\npath: nowhere.csv\n")
    result = run(installed, tmp_path, "check", "--config-dir", "mine", "dataset=sales")
    assert result.returncode == 2
    assert "dataset 'sales': its file was not found" in result.stderr
    assert "nowhere.csv" in result.stderr


@pytest.mark.parametrize("arguments", [(), ("--help",)])
def test_help_lists_the_commands(arguments: tuple[str, ...], tmp_path: Path) -> None:
    result = run(ROOT, tmp_path, *arguments)
    assert result.returncode == 0
    for name in COMMANDS:
        assert f"\n  {name} " in result.stdout


@pytest.mark.parametrize("name", ["check", "fit", "fine_tune", "evaluate", "forecast", "export"])
def test_each_command_tells_its_settings(name: str, tmp_path: Path) -> None:
    result = run(ROOT, tmp_path, name, "--help")
    assert result.returncode == 0
    assert "Settings (key=value)" in result.stdout


def test_version_info_and_a_mistake(tmp_path: Path) -> None:
    assert run(ROOT, tmp_path, "--version").stdout == f"tsformer {tsformer.__version__}\n"
    told = run(ROOT, tmp_path, "info").stdout
    assert told.startswith(f"tsformer {tsformer.__version__}, Python 3")
    assert "  torch 2" in told
    mistake = run(ROOT, tmp_path, "forcast")
    assert mistake.returncode == 2
    assert "no command 'forcast'" in mistake.stderr


@pytest.mark.parametrize(
    ("line", "choices"),
    [
        ("tsformer fi", ["fit", "fine_tune"]),
        ("tsformer fit dataset=etth", ["etth1", "etth2"]),  # "=" ends a word of bash
        ("tsformer fit model.d_model=64 model.num_h", ["model.num_heads="]),
        ("tsformer evaluate dataset=elec", ["electricity"]),
    ],
)
def test_bash_completes_commands_groups_and_settings(line: str, choices: list[str]) -> None:
    tsformer = f'tsformer() {{ "{sys.executable}" -m tsformer "$@"; }}'
    script = f"""{tsformer}; eval "$(tsformer completion bash)"
        COMP_LINE="{line}"; COMP_POINT={len(line)}; COMP_WORDS=($COMP_LINE)
        COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 )); _tsformer; echo "${{COMPREPLY[@]}}" """
    found = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert sorted(found.stdout.split()) == sorted(choices), found.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_of_completion_know_all_commands(shell: str, tmp_path: Path) -> None:
    assert " ".join(COMMANDS) in run(ROOT, tmp_path, "completion", shell).stdout


def test_completion_of_an_unknown_shell_is_refused(tmp_path: Path) -> None:
    result = run(ROOT, tmp_path, "completion", "csh")
    assert result.returncode == 2
    assert result.stderr == "error: give a shell: bash, fish, zsh\n"


def test_benchmarks_are_listed_and_a_mistake_is_told(tmp_path: Path) -> None:
    assert "\n  speed " in run(ROOT, tmp_path, "benchmark", "--help").stdout
    for arguments, message in {
        (): "benchmark: give one of data, speed",
        ("sped",): "sped: give one of data, speed",
        ("speed", "only=trian"): "only=trian: give some of train, decode",
        ("data", "rows=3"): "rows: there is no such setting",
    }.items():
        result = run(ROOT, tmp_path, "benchmark", *arguments)
        assert result.returncode == 2
        assert result.stderr.startswith(f"error: {message}")
