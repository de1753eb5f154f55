import pandas as pd
import pytest

from tsformer.data.columns import Columns, find_columns
from tsformer.errors import DataError


def columns_of(*names: str, **parts):
    return find_columns(pd.DataFrame(columns=list(names)), **parts)


def test_nixtla_names_are_found():
    assert columns_of("unique_id", "ds", "y") == Columns("unique_id", "ds", ("y",))


def test_y_is_the_target_and_the_rest_is_not_read():
    assert columns_of("ds", "y", "note").target == ("y",)


def test_without_y_every_column_left_is_a_series():
    columns = columns_of("date", "a", "b", "rain", future_covariates=["rain"])
    assert columns == Columns(None, "date", ("a", "b"), (), ("rain",))


@pytest.mark.parametrize("name", ["ds", "Date", "DATETIME", "timestamp", "Time"])
def test_time_column_is_found_in_any_case(name):
    assert columns_of(name, "y").time == name


def test_first_of_the_time_names_wins_whatever_the_order_of_columns():
    assert columns_of("time", "date", "y").time == "date"
    assert columns_of("Date", "DATE", "y").time == "Date"


def test_what_is_named_wins_over_what_would_be_found():
    columns = columns_of(
        "unique_id", "ds", "y", "shop", "day", "sales", id="shop", time="day", target=["sales"]
    )
    assert columns == Columns("shop", "day", ("sales",))


def test_covariates_known_ahead_come_first():
    columns = columns_of("ds", "y", "p", "f", past_covariates=["p"], future_covariates=["f"])
    assert columns.covariates == ("f", "p")
    assert columns.names == ("ds", "y", "f", "p")


@pytest.mark.parametrize(
    ("names", "parts", "words"),
    [
        (["when", "y"], {}, ["no time column", "'when'", "dataset.time_column"]),
        (["ds", "y"], {"target": ["load"]}, ["no column 'load'", "'ds'", "'y'"]),
        (["ds", "y"], {"id": "shop"}, ["no column 'shop'"]),
        (["ds", "y"], {"future_covariates": ["rain"]}, ["no column 'rain'"]),
        (["ds", "y"], {"past_covariates": ["y"], "target": ["y"]}, ["'y' cannot be used twice"]),
        (["ds", "y"], {"time": "y", "target": ["y"]}, ["'y' cannot be used twice"]),
        (["ds"], {}, ["no target column", "dataset.target"]),
        (["unique_id", "ds", "a", "b"], {}, ["'unique_id'", "'a', 'b'", "dataset.target"]),
    ],
)
def test_mistakes_are_named(names, parts, words):
    with pytest.raises(DataError) as error:
        columns_of(*names, **parts)
    for word in words:
        assert word in str(error.value)


def test_a_column_that_the_last_comma_of_rows_makes_is_no_target():
    assert find_columns(["ds", "a", "Unnamed: 2"]).target == ("a",)
    assert find_columns(["ds", "a", "Unnamed: 2"], target=["Unnamed: 2"]).target == ("Unnamed: 2",)
