"""``not_of_format``: the error for a file of another format than its name says."""

from __future__ import annotations

from zerocopy.errors import ReadError
from zerocopy.weights.file import DAMAGED, WeightFile

_TORCH = "zc.convert(torch.load({path!r}, mmap=True), to) reads a checkpoint of torch"
_LFS = ("a pointer of git-lfs in place of the file", "run git lfs pull in its folder")
_ZIP = (
    "a zip archive, as torch.save and numpy.savez write",
    _TORCH + "; open_weights reads arrays of NumPy under the name *.npz",
)
_HTML = ("an HTML page", "download the file itself; the page may ask for a login or a licence")
_RENAME = "rename it to *{suffix}, which open_weights reads"

#: The first bytes of formats, the format, and the fix.
_FORMATS: tuple[tuple[bytes, str, str], ...] = (
    (b"version https://git-lfs", *_LFS),
    (b"<!doctype html", *_HTML),
    (b"<html", *_HTML),
    (b"pk\x03\x04", *_ZIP),
    (b"\x80\x02", "a pickle, as torch.save writes", _TORCH),
    (b"gguf", "a GGUF file", _RENAME.format(suffix=".gguf")),
    (b"\x93numpy", "a .npy file", _RENAME.format(suffix=".npy")),
    (b"\x89hdf\r\n", "an HDF5 file", "read it with h5py, and pass its arrays to zc.convert"),
    (b"par1", "a Parquet file", "zc.loader({path!r}, to, batch_size=1024) reads it in batches"),
)
_HEAD = 64


def not_of_format(file: WeightFile, expected: str, why: str) -> ReadError:
    """Return the error that names the format of the first bytes, or else `why`.

    Parameters
    ----------
    file : WeightFile
    expected : str
        The format of the suffix, such as ``"a GGUF file"``.
    why : str
        The reason if the format is unknown.
    """
    head = file.read_bytes(0, min(_HEAD, file.size))
    for start, name, fix in _FORMATS:
        if head.lstrip().lower().startswith(start) and name != expected:
            return file.error(f"it is not {expected}, but {name}", fix.format(path=file.path))
    if head.isascii() and "".join(head.decode().split()).isprintable():
        why = "it begins as text"
    return file.error(f"it is not {expected}: {why}", DAMAGED)
