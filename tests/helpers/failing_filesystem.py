"""A file system of Arrow that fails for one file, as a disk or a server does."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.fs


class FailingHandler(pa.fs.FileSystemHandler):
    """The local file system; opening the file `failing` raises an exception."""

    def __init__(self, failure: BaseException) -> None:
        self.failure, self.failing = failure, ""
        self._local = pa.fs.LocalFileSystem()

    def open_input_file(self, path: str) -> Any:
        if path == self.failing:
            raise self.failure
        return self._local.open_input_file(path)

    def get_file_info(self, paths: Any) -> Any:
        return self._local.get_file_info(paths)

    def get_file_info_selector(self, selector: Any) -> Any:
        return self._local.get_file_info(selector)

    def normalize_path(self, path: str) -> str:
        return path

    def get_type_name(self) -> str:
        return "failing"

    def _unsupported(self, *args: Any) -> Any:
        raise NotImplementedError

    copy_file = create_dir = delete_dir = delete_dir_contents = delete_file = move = _unsupported
    delete_root_dir_contents = open_append_stream = open_input_stream = open_output_stream = _unsupported
