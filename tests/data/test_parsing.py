import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.data.frames import hours
from tsformer.data.calendar import step_of
from tsformer.data.findings import Findings
from tsformer.data.parsing import (
    category_text,
    check_freq,
    infer_freq,
    parse_ids,
    parse_numbers,
    parse_stamps,
    parse_texts,
)
from tsformer.errors import DataError


def numbers(*values) -> np.ndarray:
    return parse_numbers(pd.DataFrame({"load": pd.Series(list(values))}), ["load"])[:, 0]


def test_numbers_come_as_float64_in_the_order_of_names():
    frame = pd.DataFrame({"a": [1, 2], "b": [True, False], "c": ["0.5", "1e3"]})
    values = parse_numbers(frame, ["c", "a", "b"])
    assert values.dtype == np.float64
    np.testing.assert_array_equal(values, [[0.5, 1, 1], [1000, 2, 0]])


def test_large_integers_and_decimals_keep_float64_precision():
    assert numbers(123456789.123456789)[0] == 123456789.123456789


@pytest.mark.parametrize("missing", [np.nan, None, pd.NA])
def test_empty_values_become_nan(missing):
    np.testing.assert_array_equal(numbers(1.0, missing, 3.0), [1.0, np.nan, 3.0])


def test_nullable_integers_become_nan_where_missing():
    frame = pd.DataFrame({"load": pd.array([1, None], dtype="Int64")})
    np.testing.assert_array_equal(parse_numbers(frame, ["load"])[:, 0], [1.0, np.nan])


def test_text_is_refused_with_column_row_and_value():
    with pytest.raises(DataError, match=r"column 'load', row 2: 'n/a' is not a number"):
        numbers(1.0, 2.0, "n/a")


def test_row_counts_from_the_first_one_whatever_the_index():
    frame = pd.DataFrame({"load": [1.0, "x"]}, index=[70, 50])
    with pytest.raises(DataError, match=r"row 1: 'x'"):
        parse_numbers(frame, ["load"])


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinity_is_refused(value):
    with pytest.raises(DataError, match=r"column 'load', row 1: infinite"):
        numbers(1.0, value)


@pytest.mark.parametrize("values", [hours(2), hours(2) - hours(2)[0]], ids=["times", "durations"])
def test_columns_that_are_no_numbers_are_refused(values):
    with pytest.raises(DataError, match="column 'load'"):
        parse_numbers(pd.DataFrame({"load": values}), ["load"])


def stamps(values) -> tuple[pd.DatetimeIndex, str | None]:
    return parse_stamps(pd.Series(values), "when")


def test_naive_stamps_stay_naive():
    found, time_zone = stamps(["2024-01-31 13:00", "2024-02-01 00:30"])
    assert list(found) == [pd.Timestamp("2024-01-31 13:00"), pd.Timestamp("2024-02-01 00:30")]
    assert time_zone is None


@pytest.mark.parametrize("dtype", [object, "string", pd.ArrowDtype(pa.string())])
@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["2023Q4", "2024Q1", "2024-Q2"], ["2023-10-01", "2024-01-01", "2024-04-01"]),
        (["1/31/2024 12:00 AM", "1/31/2024 1:30 PM"], ["2024-01-31", "2024-01-31 13:30"]),
        (["31/01/2024 12:00 AM", "31/01/2024 01:30 pm"], ["2024-01-31", "2024-01-31 13:30"]),
        (["01/31/2024 11:59:58 PM"], ["2024-01-31 23:59:58"]),
        (["20240131", "20240201"], ["2024-01-31", "2024-02-01"]),
        (["2024-01-31", "2024-01-31 13:30"], ["2024-01-31", "2024-01-31 13:30"]),
    ],
)
def test_forms_of_spreadsheets_and_offices_are_times(texts, expected, dtype):
    found, zone = parse_stamps(pd.Series(texts, dtype=dtype), "ds")
    assert found.tolist() == [pd.Timestamp(text) for text in expected]
    assert zone is None


@pytest.mark.parametrize("dtype", ["int64", "Int32", pd.ArrowDtype(pa.int64())])
def test_numbers_are_times_if_all_are_dates(dtype):
    found, _ = parse_stamps(pd.Series([20240131, 20240201], dtype=dtype), "ds")
    assert found.tolist() == [pd.Timestamp("2024-01-31"), pd.Timestamp("2024-02-01")]
    for wrong in (20241301, 20240132, 1706659200, 2024):
        with pytest.raises(DataError, match="holds numbers, not times"):
            parse_stamps(pd.Series([20240131, wrong], dtype=dtype), "ds")


def test_a_day_that_its_month_has_not_is_no_time():
    parse_stamps(pd.Series([20240229, 20230229, 20230301]), "ds", findings := Findings())
    assert [str(finding) for finding in findings] == [
        "column 'ds', row 1: '20230229' is not a time in the format of the other rows. Write all "
        "times in one form, such as 2024-01-31 13:00."
    ]


@pytest.mark.parametrize("offsets", [["+01:00"], ["+01:00", "+02:00"], ["Z"]])
@pytest.mark.parametrize("bare", ["2024-01-02 00:00", "2024-01-02"])
def test_times_with_and_without_a_zone_do_not_mix(offsets, bare):
    zoned = [f"2024-01-{day:02}T00:00:00{offsets[day % len(offsets)]}" for day in range(3, 20)]
    message = rf"some times have a time zone \(2024-01-03.*, others have none \({bare}\)"
    with pytest.raises(DataError, match=message):
        parse_stamps(pd.Series([bare, *zoned]), "ds")
    found, _ = parse_stamps(pd.Series([*zoned, "no time"]), "ds", findings := Findings())
    assert found[-1] is pd.NaT
    assert [finding.kind for finding in findings] == ["not a time"]


def test_zoned_stamps_become_utc_and_their_zone_is_kept():
    local = pd.DatetimeIndex(["2024-07-01 12:00"], tz="Europe/Berlin")
    found, time_zone = stamps(local)
    assert found[0] == pd.Timestamp("2024-07-01 10:00", tz="UTC")
    assert str(found.tz) == "UTC"
    assert time_zone == "Europe/Berlin"


def test_offset_in_text_is_understood():
    found, _ = stamps(["2024-07-01 12:00+02:00", "2024-07-01 13:00+02:00"])
    assert found[0] == pd.Timestamp("2024-07-01 10:00", tz="UTC")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_every_unit_gives_the_same_stamps(unit):
    found, _ = stamps(hours(5).as_unit(unit))
    assert found.equals(hours(5).as_unit("us"))
    assert found.unit == "us"


@pytest.mark.parametrize("values", [[1704067200, 1704070800], [1704067200.0, 1704070800.0]])
def test_numbers_are_no_times(values):
    with pytest.raises(DataError, match="column 'when' holds numbers, not times"):
        stamps(values)


@pytest.mark.parametrize("blank", [None, pd.NaT, "", "NaT"])
def test_missing_time_is_refused_with_its_row(blank):
    with pytest.raises(DataError, match=r"column 'when', row 1: no time is given"):
        stamps(pd.Series(["2024-01-01", blank], dtype=object))


def test_text_that_is_no_time_is_refused():
    with pytest.raises(DataError, match="column 'when' does not hold times"):
        stamps(["2024-01-01", "soon"])
    with pytest.raises(DataError, match=r"column 'when', row 2: 'soon' is not a time"):
        stamps(["2024-01-01", "2024-01-02", "soon"])


def test_column_without_any_time_is_refused():
    with pytest.raises(DataError, match=r"column 'when', row 0: no time is given \(2 in all\)"):
        stamps([np.nan, np.nan])


@pytest.mark.parametrize("value", [1e39, -1e300])
def test_values_that_float32_cannot_hold_are_refused(value):
    with pytest.raises(DataError, match=r"column 'load', row 1: -?1e\+\d+ is too large"):
        numbers(1.0, value)


def test_findings_take_the_place_of_the_first_error():
    frame = pd.DataFrame({"a": ["1", "x", "y"], "b": [np.inf, 1, 2]})
    findings = Findings()
    values = parse_numbers(frame, ["a", "b"], findings, lambda name, row: f"{name}{row + 10}")
    np.testing.assert_array_equal(values, [[1, np.nan], [np.nan, 1], [np.nan, 2]])
    assert [(str(f).split(".")[0], f.count) for f in findings] == [
        ("a11: 'x' is not a number (2 in all)", 2),
        ("b10: infinite", 1),
    ]


@pytest.mark.parametrize(
    ("values", "texts", "codes"),
    [
        ([12, 7, 12], ["12", "7"], [0, 1, 0]),
        (["b", "a", "b"], ["b", "a"], [0, 1, 0]),
        (pd.Categorical(["b", None, "b"], ["a", "b"]), ["b"], [0, -1, 0]),
        (["x", "", None], ["x"], [0, -1, -1]),
        ([2.0, np.nan, 1.5], ["2", "1.5"], [0, -1, 1]),
        ([True, False], ["True", "False"], [0, 1]),
        (pd.array([3, None], dtype="Int64"), ["3"], [0, -1]),
        (pd.Series([1, "1", 2], dtype=object), ["1", "2"], [0, 0, 1]),
    ],
)
def test_texts_and_their_numbers_come_in_order_of_appearance(values, texts, codes):
    found, numbers = parse_texts(pd.Series(values), "shop", category_text)
    assert found == texts
    np.testing.assert_array_equal(numbers, codes)


def test_names_that_look_like_numbers_are_kept_unless_told_otherwise():
    for column in (pd.Series([1.0, 2.5]), pd.Series(["1.0", "2.5"])):
        assert parse_texts(column, "shop")[0] == ["1.0", "2.5"]
        assert parse_texts(column, "kind", category_text)[0] == ["1", "2.5"]


@pytest.mark.parametrize(
    "values", [pa.array([[1], [2]]), pa.array([{"a": 1}, {"a": 2}])], ids=["lists", "structs"]
)
@pytest.mark.parametrize("types", [None, pd.ArrowDtype])
def test_nested_values_are_no_names(values, types):
    with pytest.raises(
        DataError, match=r"column 'shop' holds values of type .* that are not category names"
    ):
        parse_texts(values.to_pandas(types_mapper=types), "shop")


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([1.0, 2.5, np.nan], ["1", "2.5"]),
        (["1.0", 1.0, 1], ["1.0", "1"]),
        (np.array([1, 2**60]), ["1", str(2**60)]),
        ([np.float32(7), np.inf], ["7", "inf"]),
    ],
)
def test_ids_of_whole_numbers_are_alike_but_texts_stay(values, texts):
    assert parse_ids(pd.Series(values), "shop")[0] == texts


def test_whole_numbers_beyond_all_bounds_are_refused():
    with pytest.raises(
        DataError, match="column 'load' holds a whole number with hundreds of digits"
    ):
        numbers(1, 10**400)


@pytest.mark.parametrize(
    ("texts", "utc"),
    [
        (["2024-01-02 00:00", "2024-01-03"], False),
        (["2024-01-02T00:00Z", "2024-01-03T01:00+01:00"], True),
        (["2024-01-02 00:00+01", "2024-01-03 00:00+02"], True),
    ],
)
def test_iso_times_may_differ_in_form(texts, utc):
    found, zone = parse_stamps(pd.Series(texts), "when")
    assert list(found) == [pd.Timestamp(text) for text in texts]
    assert zone == ("UTC" if utc else None)


def test_business_days_with_a_holiday_stay_business_days():
    days = pd.bdate_range("2024-01-01", periods=60)
    assert infer_freq(days.delete([20, 40])) == "B"
    assert infer_freq(pd.date_range("2024-01-01", periods=60).delete([20, 40])) == "D"


@pytest.mark.parametrize("freq", ["30min", "h", "D", "B", "W", "W-MON", "MS", "ME", "QS", "YS"])
def test_known_freq_passes_as_it_is(freq):
    assert check_freq(freq) == freq


@pytest.mark.parametrize("freq", ["hourly", "7", "H!", "0h"])
def test_unknown_freq_is_refused_with_examples(freq):
    with pytest.raises(DataError, match=rf"freq='{freq}' is not a step.*30min.*dataset\.freq"):
        check_freq(freq)


@pytest.mark.parametrize("freq", ["10min", "30min", "h", "D", "B", "W-WED", "MS", "ME", "YS-JAN"])
def test_freq_of_regular_stamps(freq):
    assert infer_freq(pd.date_range("2024-01-03", periods=24, freq=freq)) == freq


def test_freq_of_quarters_continues_them():
    quarters = pd.date_range("2020-01-01", periods=9, freq="QS")
    found = infer_freq(quarters[:8])
    assert pd.date_range(quarters[0], periods=9, freq=found).equals(quarters)


@pytest.mark.parametrize("freq", ["30min", "h", "D", "W-WED"])
def test_freq_is_the_commonest_step_when_there_are_gaps(freq):
    full = pd.date_range("2024-01-03", periods=24, freq=freq)
    found = infer_freq(full.delete([3, 4, 10, 17]))
    assert step_of(found) == step_of(freq)
    assert pd.date_range(full[0], periods=24, freq=found).equals(full)


@pytest.mark.parametrize("freq", ["MS", "QS", "YS"])
def test_months_and_longer_with_gaps_are_not_guessed(freq):
    with pytest.raises(DataError, match=r"Give dataset\.freq"):
        infer_freq(pd.date_range("2000-01-01", periods=12, freq=freq).delete([4, 9]))


def test_two_stamps_have_a_step_and_one_has_none():
    assert infer_freq(hours(2)) == "h"
    with pytest.raises(DataError, match=r"one time stamp is not enough.*dataset\.freq"):
        infer_freq(hours(1))


def stamps_of(values: list[str]) -> pd.DatetimeIndex:
    return parse_stamps(pd.Series(values), "when")[0]


def test_days_before_months_are_told_by_a_number_above_12():
    expected = pd.DatetimeIndex(["2024-02-01", "2024-02-13"]).as_unit("us")
    assert stamps_of(["01/02/2024", "13/02/2024"]).equals(expected)
    assert stamps_of(["02/01/2024", "02/13/2024"]).equals(expected)
    with pytest.raises(DataError, match=r"'when': '01/02/2024' may begin with the day"):
        stamps_of(["01/02/2024", "01/03/2024"])


def test_forms_that_change_from_row_to_row_are_refused():
    with pytest.raises(DataError, match="times of one form"):
        stamps_of(["13-02-24", "02-13-24"])


def test_offsets_that_change_with_summer_time_become_utc():
    stamps, zone = parse_stamps(
        pd.Series(["2024-03-31 01:00:00+01:00", "2024-03-31 03:00:00+02:00"]), "when"
    )
    assert zone == "UTC"
    assert stamps[1] - stamps[0] == pd.Timedelta(hours=1)


def test_halves_of_characters_are_no_names():
    column = pd.Series(["a", "caf\ud800"], dtype=object)
    with pytest.raises(DataError, match=r"column 'shop': '\\ud800' is no character"):
        parse_texts(column, "shop")
