"""What files say about where they come from: the data, the teacher, and the files that something was made from.

Files that are handed to others name data sets without the folder they lie in, and other files without folders outside
the one that was worked in: what such a file is, its SHA-256 says.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from deploynas.files import sha256_of


class Origin(BaseModel):
    """A file that something was made from."""

    path: str
    sha256: str

    def unchanged(self) -> Path | None:
        """Where the file is, if it still has the same content."""
        path = Path(self.path)
        return path if path.is_file() and sha256_of(path) == self.sha256 else None

    def public(self) -> Origin:
        """The same without folders that are nobody else's business."""
        path = Path(self.path)
        private = path.is_absolute() or ".." in path.parts
        return Origin(path=path.name if private else self.path, sha256=self.sha256)


def origin(path: str | Path | None) -> Origin | None:
    """A file by its path and hash; None where there is no such file."""
    if path is None or not Path(path).is_file():
        return None
    return Origin(path=str(path), sha256=sha256_of(Path(path)))


class DataRecord(BaseModel):
    """A data set as files remember it, so that later steps can tell whether they see the same split."""

    name: str  # without the folder it was read from
    classes: list[str] = []
    train_images: int = 0
    validation_images: int = 0
    test_images: int = 0
    split_hash: str | None = None
    mean: list[float] = []
    std: list[float] = []

    def public(self) -> DataRecord:
        """Files of older versions have the folder in the name."""
        return self.model_copy(update={"name": self.name.partition(":")[0]})


class TeacherRecord(BaseModel):
    name: str
    sha256: str | None = None


class NetworkLineage(BaseModel):
    """What a fine-tuned network was made from."""

    search: Origin | None = None
    supernet: Origin | None = None
    imported: Origin | None = None  # the file that the supernet was imported from, by name
    teacher: str | None = None  # as `finetune --teacher` was told

    def public(self) -> NetworkLineage:
        """For files that leave the machine: the teacher has a record of its own there."""
        return NetworkLineage(
            search=self.search.public() if self.search else None,
            supernet=self.supernet.public() if self.supernet else None,
            imported=self.imported,
        )


class Credits(BaseModel):
    """What accuracies from elsewhere are, and whose; for people."""

    about: str | None = None  # what was measured, on what
    source: str | None = None  # who published it, where
    licence: str | None = None


class ResultsRecord(Credits):
    """The file of measured networks that an estimator was made from."""

    file: str  # without folders
    sha256: str
    rows: int
    networks: int  # different ones: equal rows are averaged
    groups: str | None = None  # the column that was held out group by group

    @property
    def repeated(self) -> int:
        """Rows that name a network again."""
        return self.rows - self.networks

    def words(self) -> str:
        """For people: how many, from where, without what is not known."""
        known = [self.source, self.licence]
        return "; ".join([f"{self.networks:,} measured networks of {self.file}", *(text for text in known if text)])
