"""What a job of a sweep leaves in its run folder."""

import threading

import pytest

from tests.conftest import make_settings
from tsformer.commands.fit import fit
from tsformer.data.locking import alone
from tsformer.errors import DataError
from tsformer.sweep.result import Result, read_result, write_result
from tsformer.sweep.trial import fit_trial


@pytest.fixture
def settings(tmp_path):
    return make_settings({"paths.run": str(tmp_path), "dataset.path": str(tmp_path / "none.csv")})


def test_a_trial_that_ended_is_not_fitted_again(settings, tmp_path):
    write_result(tmp_path, Result("pruned", 0.5, 3.0))
    assert fit_trial(settings, fit) == 0.5


def test_a_run_that_was_finished_by_hand_counts(settings, tmp_path):
    (tmp_path / "metrics.json").write_text('{"objective": 0.25}')
    assert fit_trial(settings, fit) == 0.25
    assert read_result(tmp_path) == Result("complete", 0.25)


def test_a_mistake_is_kept_with_its_message(settings, tmp_path):
    with pytest.raises(DataError):
        fit_trial(settings, fit)
    result = read_result(tmp_path)
    assert result is not None
    assert (result.state, result.objective) == ("failed", None)
    assert "none.csv" in result.message


def test_a_process_that_is_still_at_the_trial_is_waited_for(settings, tmp_path, caplog):
    found = []
    thread = threading.Thread(target=lambda: found.append(fit_trial(settings, fit)))
    with caplog.at_level("INFO"), alone(tmp_path / ".trial.lock"):
        thread.start()
        while "waiting" not in caplog.text:
            thread.join(0.01)
            assert thread.is_alive()
        write_result(tmp_path, Result("complete", 0.125))
    thread.join(10)
    assert found == [0.125]
