"""Text as codes: one dictionary for all batches of a source, and refused arguments."""

import json
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import zerocopy as zc
from zerocopy.errors import LoaderStateError, LossyConversionError, OptionError, UnsupportedConversionError
from zerocopy.loading.dataset import Stream
from zerocopy.loading.dictionaries import Codes, encode_source
from zerocopy.loading.options import LoaderOptions
from zerocopy.loading.sources.columnar import ParquetFiles
from zerocopy.loading.sources.files import Files

CITIES = ["Oslo", "Bern", None, "Rome", "Bern", "Paris", "Oslo", None, "Accra"]
WORDS = ["Accra", "Bern", "Oslo", "Paris", "Rome"]

TEXT_TYPES = {
    "string": pa.string(),
    "large_string": pa.large_string(),
    "string_view": pa.string_view(),
    "dictionary": pa.dictionary(pa.int8(), pa.string()),
    "dictionary of large": pa.dictionary(pa.int64(), pa.large_string()),
}


@pytest.fixture(autouse=True)
def _small_groups(monkeypatch):
    """Read each row group on its own."""
    monkeypatch.setattr("zerocopy.loading.sources.columnar._LEAST_ROWS", 1)


@pytest.fixture
def path(tmp_path):
    table = pa.table({"city": CITIES, "n": range(len(CITIES))})
    pq.write_table(table, tmp_path / "cities.parquet", row_group_size=2)
    return str(tmp_path / "cities.parquet")


def rows_of(batches):
    """Return the cities by the numbers of their rows."""
    cities = {}
    for batch in batches:
        numbers = zc.convert(batch["n"], "numpy").tolist()
        cities.update(zip(numbers, batch["city"].to_pylist(), strict=True))
    return [cities[number] for number in sorted(cities)]


@pytest.mark.parametrize("to", ["numpy", "torch", "jax", "tensorflow"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_all_batches_of_a_target_share_one_dictionary(path, to, shuffle):
    pytest.importorskip(to)
    options = {"encode": True, "nulls": {"city": -1, "n": 0}, "dtype": {"n": "int32"}, "shuffle": shuffle}
    batches = list(zc.loader(path, to, batch_size=4, **options))
    assert rows_of(batches) == CITIES
    first = batches[0]["city"]
    assert first.categories.to_pylist() == WORDS
    assert str(first.values.dtype).endswith("int32") or "int32" in str(first.values.dtype)
    assert all(batch["city"].categories is first.categories for batch in batches)


@pytest.mark.hazard("robustness#dictionaries-of-row-groups")
@pytest.mark.parametrize("type_", TEXT_TYPES.values(), ids=TEXT_TYPES)
@pytest.mark.parametrize("in_file", [False, True])
def test_every_type_of_text_has_the_same_codes(type_, in_file, tmp_path):
    table = pa.table({"city": pa.array(CITIES).cast(type_) if not pa.types.is_dictionary(type_)
                      else pa.array(CITIES).dictionary_encode().cast(type_), "n": range(9)})  # fmt: skip
    source = pa.concat_tables([table.slice(3), table.slice(0, 3)])
    if in_file:
        pq.write_table(source, tmp_path / "x.parquet", row_group_size=2)
        source = str(tmp_path / "x.parquet")
    loader = zc.loader(source, "numpy", batch_size=4, encode=True, nulls=-1)
    assert loader.dictionaries["city"].to_pylist() == WORDS
    assert rows_of(loader) == CITIES


@pytest.mark.parametrize("shuffle", [False, 4])
def test_nulls_become_a_mask(path, shuffle):
    for batch in zc.loader(path, "numpy", batch_size=4, encode=True, nulls="mask", shuffle=shuffle):
        expected = [CITIES[n] is None for n in batch["n"].values]
        assert batch["city"].mask.tolist() == expected
        shown = batch["city"].values.to_pylist()
        assert [None if null else city for null, city in zip(expected, shown, strict=True)] == [
            CITIES[n] for n in batch["n"].values
        ]


def test_nulls_without_a_policy_name_the_row_group(path):
    with pytest.raises(
        LossyConversionError, match=r"cities\.parquet, row group 1: column 'city' has 1 null"
    ) as e:
        list(zc.loader(path, "numpy", batch_size=4, encode=True))
    assert e.value.code == "nulls"
    assert e.value.calls[0] == 'zc.loader(source, "numpy", batch_size=4, encode=True, nulls={"city": -1})'


@pytest.mark.hazard("robustness#dictionaries-of-row-groups")
def test_words_of_several_files_are_one_dictionary(tmp_path):
    for number, words in enumerate([["b", "a"], ["c", "a"], ["d"]]):
        pq.write_table(pa.table({"w": words}), tmp_path / f"{number}.parquet")
    batches = list(zc.loader(str(tmp_path / "*.parquet"), "numpy", batch_size=3, encode=True))
    assert [batch["w"].values.tolist() for batch in batches] == [[1, 0, 2], [0, 3]]


def test_given_words_need_no_pass(path, monkeypatch):
    words = ["Rome", "Paris", "Oslo", "Bern", "Accra"]
    monkeypatch.setattr("zerocopy.loading.dictionaries._collect", None)
    for given in (words, np.array(words), pa.array(words), pa.chunked_array([words[:2], words[2:]])):
        loader = zc.loader(path, "numpy", batch_size=4, encode={"city": given}, nulls=-1)
        assert loader.dictionaries["city"].to_pylist() == words
        assert rows_of(loader) == CITIES


def test_dictionaries_of_another_loader_give_the_same_codes(path, monkeypatch):
    first = zc.loader(path, "numpy", batch_size=4, encode=True, nulls=-1)
    monkeypatch.setattr("zerocopy.loading.dictionaries._collect", None)
    second = zc.loader(path, "numpy", batch_size=4, encode=first.dictionaries, nulls=-1)
    for one, other in zip(first, second, strict=True):
        assert one["city"].values.tolist() == other["city"].values.tolist()
    assert first.state_dict() == second.state_dict()


def test_a_source_without_text_keeps_encoding_its_other_types(tmp_path):
    days = pa.table({"day": pa.array([1, 2, 3], pa.date32())})
    loader = zc.loader(days, "torch", batch_size=2, encode=True)
    assert loader.dictionaries == {}
    again = zc.loader(days, "torch", batch_size=2, encode=loader.dictionaries)
    assert [batch["day"].to_pylist() for batch in again] == [[1, 2], [3]]


def test_numbers_can_have_given_words():
    table = pa.table({"station": [700, 5, 700]})
    (batch,) = zc.loader(table, "numpy", batch_size=3, encode={"station": [5, 700]})
    assert batch["station"].values.tolist() == [1, 0, 1]
    assert batch["station"].categories.tolist() == [5, 700]


def test_an_unknown_word_names_its_place(path):
    with pytest.raises(LossyConversionError) as caught:
        list(zc.loader(path, "numpy", batch_size=4, encode={"city": ["Bern", "Oslo"]}, nulls=-1))
    message = str(caught.value)
    assert caught.value.code == "unknown-word"
    assert "cities.parquet, row group 1" in message
    assert "column 'city' has 'Rome'" in message
    assert (
        caught.value.calls[1]
        == 'zc.loader(source, "numpy", batch_size=4, nulls=-1, encode={"city": ["Bern", "Oslo", "Rome"]})'
    )


def test_words_without_rows_are_neither_collected_nor_required():
    array = pa.DictionaryArray.from_arrays(pa.array([2, 0]), ["b", "unused", "a"])
    loader = zc.loader(pa.table({"w": array}), "numpy", batch_size=2, encode=True)
    assert loader.dictionaries["w"].to_pylist() == ["a", "b"]
    (batch,) = zc.loader(pa.table({"w": array}), "numpy", batch_size=2, encode={"w": ["a", "b"]})
    assert batch["w"].values.tolist() == [0, 1]


def test_a_null_word_is_a_null():
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array([None, "q"]))
    (batch,) = zc.loader(pa.table({"w": array}), "numpy", batch_size=3, encode=True, nulls=-1)
    assert batch["w"].values.tolist() == [-1, 0, -1]


@pytest.mark.parametrize(
    "encode",
    [{"city": ["a", "a"]}, {"city": ["a", None]}, {"city": [1, 2]}, {"town": ["a"]}, "city", ["city"], 1.5],
    ids=str,
)
def test_invalid_words_are_refused(path, encode):
    with pytest.raises(OptionError, match="encode"):
        zc.loader(path, "numpy", batch_size=4, encode=encode)


@pytest.mark.hazard("robustness#order-of-a-dictionary")
def test_the_order_of_an_ordered_dictionary_is_kept():
    type_ = pa.dictionary(pa.int8(), pa.string(), ordered=True)
    levels = pa.DictionaryArray.from_arrays(pa.array([1, 0], pa.int8()), ["low", "high"], ordered=True)
    (batch,) = zc.loader(pa.table({"level": levels}), "numpy", batch_size=2, encode=True)
    assert batch["level"].ordered
    assert batch["level"].categories.to_pylist() == ["low", "high"]
    other = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), ["high", "low"], ordered=True)
    table = pa.table({"level": pa.chunked_array([levels, other], type_)})
    with pytest.raises(LossyConversionError, match="ordered dictionary of column 'level' differs"):
        zc.loader(table, "numpy", batch_size=2, encode=True)


def test_false_gives_text_as_bytes_and_the_values_of_dictionaries():
    table = pa.table({"note": ["long", "short"], "k": pa.array([7, 5]).dictionary_encode(), "c": ["y", "x"]})
    (batch,) = zc.loader(table, "numpy", batch_size=2, encode={"note": False, "k": False})
    assert batch["note"].offsets is not None
    assert batch["note"].to_pylist() == ["long", "short"]
    assert batch["k"].tolist() == [7, 5]
    assert batch["c"].values.tolist() == [1, 0]


@pytest.mark.parametrize("nulls", [None, "mask"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_with_lists_share_the_dictionary_too(nulls, shuffle):
    table = pa.table({"city": ["b", "a", "b", "c"], "n": range(4), "list": [[1], [], [2, 3], [4]]})
    batches = list(zc.loader(table, "torch", batch_size=2, encode=True, nulls=nulls, shuffle=shuffle))
    cities = [batch["city"].values if nulls else batch["city"] for batch in batches]
    assert cities[0].categories is cities[1].categories
    assert sorted(cities[0].to_pylist() + cities[1].to_pylist()) == ["a", "b", "b", "c"]


@pytest.mark.parametrize("shuffle", [False, True])
def test_codes_in_structs_keep_the_words_of_their_batch(shuffle):
    parts = [
        pa.table({"s": pa.StructArray.from_arrays([pa.array(words).dictionary_encode()], ["k"])})
        for words in (["a", "b"], ["c", "d"])
    ]
    batches = list(zc.loader(pa.concat_tables(parts), "numpy", batch_size=2, encode=True, shuffle=shuffle))
    assert sorted(row["k"] for batch in batches for row in batch["s"].to_pylist()) == ["a", "b", "c", "d"]


def test_a_column_whose_name_contains_categories_has_its_rows():
    table = pa.table({"a.categories": [1, 2, 3], "w": ["x", "y", "x"]})
    (batch,) = zc.loader(table, "numpy", batch_size=3, encode=True)
    assert batch["a.categories"].tolist() == [1, 2, 3]


def test_text_of_numpy_is_encoded():
    arrays = {"w": np.array(["x", "y", "x"]), "n": np.arange(3)}
    batches = list(zc.loader(arrays, "torch", batch_size=2, encode=True))
    assert [batch["w"].to_pylist() for batch in batches] == [["x", "y"], ["x"]]


class _Tables(Stream):
    name = "a stream"

    def __init__(self, tables, once):
        self.tables, self.once, self.schema, self.passes = tables, once, tables[0].schema, 0

    def batches(self):
        self.passes += 1
        yield from self.tables

    def fingerprint(self):
        return "stream"


def test_a_stream_is_read_once_for_its_words():
    source = _Tables([pa.table({"w": ["b"]}), pa.table({"w": ["a", "b"]})], once=False)
    encoded = encode_source(source, LoaderOptions("numpy", 2, encode=True))
    tables = list(encoded.batches())
    assert [table["w"].chunk(0).indices.to_pylist() for table in tables] == [[1], [0, 1]]
    assert source.passes == 2


def test_words_of_a_stream_that_is_read_once_must_be_given():
    source = _Tables([pa.table({"w": ["b"]})], once=True)
    with pytest.raises(UnsupportedConversionError, match=r"encode=\{'w': words\}") as caught:
        encode_source(source, LoaderOptions("numpy", 2, encode=True))
    assert caught.value.code == "words-unknown"
    assert source.passes == 0
    for encode in ({"w": ["b"]}, {"w": False}):
        encode_source(source, LoaderOptions("numpy", 2, encode=encode))


def test_types_that_the_target_lacks_are_refused_before_the_pass(monkeypatch):
    monkeypatch.setattr("zerocopy.loading.dictionaries._collect", None)
    table = pa.table({"w": ["x"], "none": pa.nulls(1)})
    with pytest.raises(UnsupportedConversionError, match="'none'"):
        zc.loader(table, "numpy", batch_size=1, encode=True)
    with pytest.raises(UnsupportedConversionError, match="encode= applies to tensors"):
        zc.loader(table, "pandas", batch_size=1, encode=True)


@pytest.mark.hazard("robustness#words-at-resume")
def test_a_state_with_other_words_is_refused(path):
    words = ["Accra", "Bern", "Oslo", "Paris", "Rome"]
    loader = zc.loader(path, "numpy", batch_size=4, encode={"city": words}, nulls=-1)
    next(iter(loader))
    state = json.loads(json.dumps(loader.state_dict()))
    zc.loader(path, "numpy", batch_size=4, encode=True, nulls=-1).load_state_dict(state)
    for other in ([*words, "Lima"], words[::-1]):
        with pytest.raises(LoaderStateError, match="dictionaries"):
            zc.loader(path, "numpy", batch_size=4, encode={"city": other}, nulls=-1).load_state_dict(state)


def test_many_words_are_looked_up_in_python_with_the_same_codes():
    words = pa.array([f"w{number}" for number in range(100)])
    rows = pa.chunked_array([pa.array(["w7", "w93", None, "w7"]).dictionary_encode()])
    assert Codes("w", words).encode(rows, "").chunk(0).indices.to_pylist() == [7, 93, None, 7]


def test_an_empty_source_has_no_words():
    loader = zc.loader(pa.table({"w": pa.array([], pa.string())}), "numpy", batch_size=1, encode=True)
    assert loader.dictionaries["w"].to_pylist() == []
    assert list(loader) == []


def test_a_bar_is_shown_on_request(path, capsys):
    pytest.importorskip("rich")
    zc.loader(path, "numpy", batch_size=4, encode=True, progress=True)
    assert "Collecting words" in capsys.readouterr().err
    zc.loader(path, "numpy", batch_size=4, encode=True)
    assert capsys.readouterr().err == ""


def test_dictionary_pages_are_read_in_file_types_that_have_them(tmp_path):
    paths = [str(tmp_path / name) for name in ("a.parquet", "b.parquet")]
    pq.write_table(pa.table({"w": ["b", "a"], "n": [1, 2]}), paths[0])
    pq.write_table(pa.table({"w": pa.array(["c", "a"], pa.large_string()), "n": [3, 4]}), paths[1])
    schema = pa.schema({"w": pa.string(), "n": pa.int64()})
    local = fs.LocalFileSystem()
    files = Files("loader", local.get_file_info(paths[:1]), local)
    source = ParquetFiles(files, None).with_dictionaries(["w", "n"])
    assert pa.types.is_dictionary(source.read(0).schema.field("w").type)
    assert pa.types.is_integer(source.read(0).schema.field("n").type)
    loader = zc.loader(str(tmp_path / "*.parquet"), "numpy", batch_size=4, encode=True, schema=schema)
    assert loader.dictionaries["w"].to_pylist() == ["a", "b", "c"]
    assert next(iter(loader))["w"].to_pylist() == ["b", "a", "c", "a"]


def test_a_loader_of_codes_can_be_pickled(path):
    loader = zc.loader(path, "numpy", batch_size=4, encode=True, nulls=-1)
    batches = iter(loader)
    next(batches)
    copy = pickle.loads(pickle.dumps(loader))
    assert copy.state_dict() == loader.state_dict()
    assert rows_of(copy) == rows_of(batches) == CITIES[4:]


DECODED = {
    "text": pa.array(["a", "b"]),
    "text in views": pa.array(["a", "text of more than twelve bytes"], pa.string_view()),
    "bytes in views": pa.array([b"a", b"bb"], pa.binary_view()),
    "numbers": pa.array([1.5, 2.5]),
    "dates": pa.array([1, 2], pa.date32()),
    "lists": pa.array([[1], [2, 3]]),
    "structs": pa.array([{"a": 1}, {"a": 2}]),
}


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("words", DECODED.values(), ids=DECODED)
def test_categories_without_codes_are_their_values(words, shuffle):
    categories = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, 1]), words)
    column = pa.chunked_array([categories.slice(0, 1), categories.slice(1)])
    table = pa.table({"row": np.arange(4), "word": column})
    loaded = {}
    for batch in zc.loader(table, "numpy", batch_size=3, encode={"word": False}, shuffle=shuffle):
        rows = batch["word"] if isinstance(batch["word"], np.ndarray) else batch["word"].to_pylist()
        loaded |= dict(zip(batch["row"].tolist(), list(rows), strict=True))
    numbers = words.cast(pa.int32()) if pa.types.is_date(words.type) else words
    if isinstance(loaded[0], int | np.integer | np.floating):
        assert [loaded[row] for row in range(4)] == numbers.take(pa.array([0, 1, 0, 1])).to_pylist()
    else:
        assert [loaded[row] for row in range(4)] == categories.to_pylist()


def test_categories_of_polars_without_codes_are_their_words():
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"word": ["b", "a", "b"]}, schema={"word": pl.Categorical})
    (batch,) = zc.loader(frame, "numpy", encode={"word": False})
    assert batch["word"].to_pylist() == ["b", "a", "b"]


@pytest.mark.parametrize(
    "words",
    [
        pa.array([True, False]),
        pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0], pa.int8())),
        pa.array([1, 2], pa.date32()),
        pa.array([b"ab", b"cd"], pa.binary(2)),
        pa.array([b"a", b"long enough for a view"], pa.binary_view()),
        pa.array([[1], [2, 3]]),
    ],
    ids=lambda words: str(words.type),
)
def test_convert_decodes_the_dictionaries_that_a_loader_decodes(words: pa.Array) -> None:
    codes = pa.array([0, 1, None, 0], pa.int8())
    table = pa.table({"d": pa.DictionaryArray.from_arrays(codes, words)})
    options = {"encode": {"d": False}, "nulls": "mask"}
    whole = zc.convert(table, "numpy", **options)["d"]
    (batch,) = zc.loader(table, to="numpy", batch_size=4, **options)
    assert whole.to_pylist() == batch["d"].to_pylist()
    assert type(whole) is type(batch["d"])
    assert whole.to_pylist()[2] is None
    if "bool" in str(words.type):
        assert whole.to_pylist() == [True, False, None, True]


def test_words_are_known_beside_lists_of_one_length() -> None:
    table = pa.table({"t": ["b", "a"], "e": [[1, 2], [3, 4]]})
    loader = zc.loader(table, to="numpy", batch_size=2, encode=True, lists="dense")
    assert loader.dictionaries["t"].to_pylist() == ["a", "b"]
    other = zc.loader(table, to="numpy", batch_size=2, encode={"t": ["b", "a"]}, lists="dense")
    with pytest.raises(LoaderStateError, match="dictionaries"):
        other.load_state_dict(loader.state_dict())
