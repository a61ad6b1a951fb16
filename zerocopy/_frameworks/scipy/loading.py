"""Rows of SciPy's sparse arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zerocopy._frameworks.scipy import template
from zerocopy.loading.dataset import Dataset, DecodedRows, Stream
from zerocopy.loading.hook import LoadingHook
from zerocopy.loading.sources.files import digest
from zerocopy.loading.sources.memory import GROUP_ROWS, groups_of, sampled
from zerocopy.source import Array


class Loading(LoadingHook):
    """Sparse arrays of two dimensions, whose batches are sparse arrays of the target."""

    def open(self, obj: Any, columns: Any) -> Dataset | Stream | None:
        """Return the rows of an array, which is converted to CSR once if it has another format."""
        return SparseDataset(obj) if obj.ndim == 2 else None


class SparseDataset(Dataset):
    """The rows of a sparse array; `read` aliases the values and column indices of CSR."""

    in_memory = True

    def __init__(self, array: Any) -> None:
        self.name = f"scipy.sparse.{type(array).__name__}"
        self._rows = SparseRows(array.tocsr(), array.format == "coo")
        self.groups = groups_of(self._rows.num_rows)

    def read(self, index: int) -> SparseRows:
        return self._rows.slice(index * GROUP_ROWS, self.groups[index].rows)

    def fingerprint(self) -> str:
        """Return a digest of the type, the shape, the number of elements and some of the rows."""
        csr = self._rows.csr
        chosen = csr[sampled(self._rows.num_rows)]
        parts = (chosen.data, chosen.indices, chosen.indptr)
        return digest(csr.shape, str(csr.dtype), csr.nnz, [part.tobytes() for part in parts])


class SparseRows(DecodedRows):
    """Some rows in CSR format; batches are in COO format if the source is."""

    def __init__(self, csr: Any, is_coo: bool) -> None:
        self.csr, self._is_coo = csr, is_coo

    @property
    def table(self) -> Any:  # type: ignore[override]
        """The rows in the format of the source."""
        return self.csr.tocoo() if self._is_coo else self.csr

    @property
    def num_rows(self) -> int:
        return int(self.csr.shape[0])

    @property
    def nbytes(self) -> int:
        return int(self.csr.data.nbytes + self.csr.indices.nbytes + self.csr.indptr.nbytes)

    def slice(self, start: int, length: int) -> SparseRows:
        """Return an alias of some rows; only `indptr` is new. SciPy's own slices are copies."""
        csr = self.csr
        pointers = csr.indptr[start : start + length + 1]
        low, high = int(pointers[0]), int(pointers[-1])
        part = template("csr", (length, csr.shape[1]))
        part.data, part.indices = csr.data[low:high], csr.indices[low:high]
        part.indptr = pointers - pointers.dtype.type(low)
        # A part inherits the flags of the whole array, which SciPy computes once.
        if csr.has_canonical_format:
            part.has_canonical_format = True
        elif csr.has_sorted_indices:
            part.has_sorted_indices = True
        return SparseRows(part, self._is_coo)

    def joined(self, others: Sequence[SparseRows]) -> SparseRows:
        import scipy.sparse

        parts = [self.csr, *(other.csr for other in others)]
        return SparseRows(scipy.sparse.vstack(parts, format="csr"), self._is_coo)

    def take(self, rows: Array) -> SparseRows:
        return SparseRows(self.csr[rows], self._is_coo)
