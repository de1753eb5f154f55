"""scripts/forecast.py as users run it: real processes that are killed, meet, and share the work."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.batch.cases import contents, forecasts, make_long, read_parts, run, write_model
from tests.conftest import REPO
from tsformer.batch.ray_engine import check_ray
from tsformer.errors import ConfigError, DataError

SCRIPT = REPO / "scripts" / "forecast.py"
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPO)}
PARTS = 12


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model and a table whose series are spread over it."""
    home = tmp_path_factory.mktemp("home")
    write_model(home / "model", head="normal")
    frame = make_long({f"s{number}": 20 + number % 11 for number in range(240)})
    frame.sort_values("ds", kind="stable").to_parquet(home / "t.parquet", index=False)
    return home


@pytest.fixture(scope="module")
def undisturbed(home: Path) -> dict[str, bytes]:
    run(home / "model", home / "t.parquet", home / "undisturbed", **arguments())
    assert len(read_parts(home / "undisturbed")) == PARTS
    return contents(home / "undisturbed")


def arguments() -> dict[str, int]:
    return {"series_per_part": 20, "num_samples": 3}


def command(home: Path, output: Path, *overrides: str) -> list[str]:
    settings = {"model": home / "model", "input": home / "t.parquet", "output": output}
    given = [f"{key}={value}" for key, value in {**settings, **arguments()}.items()]
    return [str(SCRIPT), *given, *overrides]


def start(home: Path, output: Path, *overrides: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *command(home, output, *overrides)],
        env=ONE_THREAD,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=300)
    return process.returncode, output, errors


def wait_for_parts(output: Path, count: int) -> None:
    deadline = time.monotonic() + 120
    while len(list(output.glob("forecasts/part-*"))) < count:
        assert time.monotonic() < deadline
        time.sleep(0.002)


def children(pid: int) -> list[int]:
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True
    )
    return [int(line) for line in listed.stdout.split()]


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.parametrize("num_workers", [0, 2])
def test_killed_and_started_again_it_comes_to_the_same_bytes(
    home: Path, undisturbed: dict[str, bytes], num_workers: int
) -> None:
    output = home / f"killed-{num_workers}"
    process = start(home, output, f"num_workers={num_workers}")
    wait_for_parts(output, 3)
    workers = children(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    finished = {file: file.stat().st_mtime_ns for file in output.glob("forecasts/part-*")}
    assert 3 <= len(finished) < PARTS
    deadline = time.monotonic() + 20
    while any(map(is_alive, workers)):  # none goes on without its parent
        assert time.monotonic() < deadline
        time.sleep(0.01)
    code, told, errors = finish(start(home, output, f"num_workers={num_workers}"))
    assert code == 0, errors
    assert told.startswith("240 series, 1,440 rows, 0 errors in ")
    assert contents(output) == undisturbed
    assert {file: file.stat().st_mtime_ns for file in finished} == finished
    assert not [file for file in output.iterdir() if file.name.startswith(".")]


@pytest.mark.slow
def test_a_worker_that_is_killed_ends_it_with_an_error(
    home: Path, undisturbed: dict[str, bytes]
) -> None:
    output = home / "worker-killed"
    process = start(home, output, "num_workers=2")
    wait_for_parts(output, 2)
    python = [pid for pid in children(process.pid) if b"spawn_main" in cmdline(pid)]
    os.kill(python[0], signal.SIGKILL)
    code, _, errors = finish(process)
    assert code == 2
    assert "was killed by signal 9, perhaps because memory ran out" in errors
    assert errors.startswith("error: part-000")
    parts = json.loads((output / "manifest.json").read_text())["parts"]
    states = [part["state"] for part in parts]
    assert states.count("finished") == len(list(output.glob("forecasts/part-*"))) >= 2
    code, _, errors = finish(start(home, output, "num_workers=2"))
    assert code == 0, errors
    assert contents(output) == undisturbed


def cmdline(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def test_a_second_forecast_beside_is_refused_and_an_interrupt_is_quiet(home: Path) -> None:
    output = home / "twice"
    first = start(home, output)
    wait_for_parts(output, 1)
    os.kill(first.pid, signal.SIGSTOP)
    try:
        code, _, errors = finish(start(home, output))
        assert code == 2
        assert errors.startswith("error: ")
        assert "another forecast is writing there" in errors
    finally:
        os.kill(first.pid, signal.SIGCONT)
        first.send_signal(signal.SIGINT)
    code, _, errors = finish(first)
    assert "Traceback" not in errors
    assert code in (0, 130)  # it may have ended just before


def test_mistakes_are_told_in_a_line_and_nothing_else_is_written(
    home: Path, tmp_path: Path
) -> None:
    for overrides, words in (
        (["on_error=ignore"], "on_error='ignore'"),
        (["input=none.parquet"], "none.parquet: there is no such file"),
        (["model=none"], "none: not a model folder"),
        (["levels=80"], "levels"),
        (["level=80", "model=???"], "model"),
    ):
        process = subprocess.run(
            [sys.executable, *command(home, tmp_path / "out", *overrides)],
            cwd=tmp_path,
            env=ONE_THREAD,
            capture_output=True,
            text=True,
        )
        assert process.returncode == 2, overrides
        assert process.stderr.startswith("error: ")
        assert words in process.stderr
        assert not list(tmp_path.iterdir())
    process = subprocess.run(
        [sys.executable, *command(home, Path("out"), "progress_bar=true", "level=[80,90]")],
        cwd=tmp_path,
        env=ONE_THREAD,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    assert f"{PARTS}/{PARTS}" in process.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert "tsformer-hi-90" in forecasts(tmp_path / "out")


def test_two_ranks_share_the_parts(home: Path, undisturbed: dict[str, bytes]) -> None:
    code, told, errors = torchrun(home, home / "ranks")
    assert code == 0, errors
    assert told.count("240 series") == 1  # the first rank tells it
    assert contents(home / "ranks") == undisturbed


@pytest.mark.slow
def test_ranks_have_a_share_each_of_a_small_table(home: Path, tmp_path: Path) -> None:
    frame = make_long({"a": 30, "b": 20, "c": 25}).sort_values("ds")
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    code, _, errors = torchrun(home, tmp_path / "out", f"input={tmp_path}/t.parquet")
    assert code == 0, errors
    parts = read_parts(tmp_path / "out")
    assert len(parts) >= 2
    expected = np.repeat(frame["unique_id"].unique(), 6).tolist()
    assert pd.concat(parts)["unique_id"].tolist() == expected
    one = make_long({"a": 30})
    one.to_parquet(tmp_path / "t.parquet", index=False)
    code, _, errors = torchrun(home, tmp_path / "one", f"input={tmp_path}/t.parquet")
    assert code == 0, errors
    assert len(read_parts(tmp_path / "one")) == 1


def test_a_mistake_ends_all_ranks(home: Path, tmp_path: Path) -> None:
    code, _, errors = torchrun(home, tmp_path / "out", "input=none.parquet")
    assert code != 0
    assert "none.parquet: there is no such file" in errors


def test_ranks_of_a_slurm_step_share_the_parts(home: Path, undisturbed: dict[str, bytes]) -> None:
    step = {
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_NODEID": "0",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_TASKS_PER_NODE": "2",
        "SLURM_STEP_NODELIST": "localhost",
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, *command(home, home / "slurm")],
            env={**ONE_THREAD, **step, "SLURM_PROCID": number, "SLURM_LOCALID": number},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in "01"
    ]
    told = [rank.communicate(timeout=300) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], told
    assert sum("240 series" in out for out, _ in told) == 1
    assert contents(home / "slurm") == undisturbed


def torchrun(home: Path, output: Path, *overrides: str) -> tuple[int, str, str]:
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    process = subprocess.run(
        [sys.executable, *launch, *command(home, output, *overrides)],
        env=ONE_THREAD,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return process.returncode, process.stdout, process.stderr


# Ray


def test_without_ray_it_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'tsformer\[ray\]'"):
        check_ray()


@pytest.fixture(scope="module")
def ray():
    """Start Ray once, with a core for each of two actors and one for Ray Data."""
    ray = pytest.importorskip("ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init("local", num_cpus=3, include_dashboard=False, object_store_memory=200_000_000)
    yield ray
    ray.shutdown()


def test_ray_comes_to_the_same_bytes_and_goes_on_alike(
    ray, home: Path, undisturbed: dict[str, bytes]
) -> None:
    output = home / "ray"
    options = {**arguments(), "engine": "ray", "num_workers": 2}
    summary = run(home / "model", home / "t.parquet", output, **options)
    assert (summary.series, summary.rows) == (240, 1440)
    assert contents(output) == undisturbed
    kept = output / "forecasts" / "part-00004.parquet"
    time_kept = kept.stat().st_mtime_ns
    frame = pd.read_parquet(home / "t.parquet").sort_values("unique_id", kind="stable")
    frame.to_parquet(home / "sorted.parquet", index=False)
    run(home / "model", home / "sorted.parquet", home / "ray-sorted", **options)
    (home / "ray-sorted" / "forecasts" / "part-00003.parquet").unlink()
    run(home / "model", home / "sorted.parquet", home / "ray-sorted", **options)
    run(home / "model", home / "sorted.parquet", home / "local-sorted", **arguments())
    assert contents(home / "ray-sorted") == contents(home / "local-sorted")
    run(home / "model", home / "t.parquet", output, **options)
    assert kept.stat().st_mtime_ns == time_kept
    assert ray.is_initialized()  # it was before


@pytest.mark.slow
def test_ray_tells_faults_as_the_local_engine_does(ray, home: Path, tmp_path: Path) -> None:
    frame = make_long({f"s{number}": 20 for number in range(40)})
    frame["y"] = frame["y"].where(frame["unique_id"] != "s25")
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    options = {**arguments(), "engine": "ray", "num_workers": 2}
    with pytest.raises(DataError, match="series 's25': no observed value"):
        run(home / "model", tmp_path / "t.parquet", tmp_path / "out", **options)
    summary = run(
        home / "model", tmp_path / "t.parquet", tmp_path / "out", on_error="skip", **options
    )
    assert (summary.series, summary.errors) == (39, 1)


@pytest.mark.slow
def test_the_command_starts_ray_itself_and_is_quiet(home: Path, undisturbed: dict[str, bytes]):
    pytest.importorskip("ray")
    output = home / "ray-command"
    code, told, errors = finish(start(home, output, "engine=ray", "num_workers=1"))
    assert code == 0, errors
    assert told.startswith("240 series, 1,440 rows, 0 errors in ")
    assert told.count("\n") == 1
    assert errors == ""
    assert contents(output) == undisturbed
