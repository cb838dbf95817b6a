"""The files that came with messages."""

from collections.abc import Mapping, Sequence

from sqlmodel import col, delete, select, update

from maestro.domain.media import MediaFile
from maestro.domain.messages import InboxRow
from maestro.store.repository import Repository


class Media(Repository):
    """What was fetched of every attachment."""

    def put(self, file: MediaFile) -> None:
        """Keep what became of one attachment, in the place of what was known of it before."""
        self._session.exec(
            delete(MediaFile).where(col(MediaFile.inbox_id) == file.inbox_id, col(MediaFile.seq) == file.seq)
        )
        self._session.add(file)
        self._session.flush()

    def of(self, inbox_ids: Sequence[int]) -> Mapping[int, tuple[MediaFile, ...]]:
        """Return the files of each of these messages in order; one that was never fetched counts as unavailable."""
        if not inbox_ids:
            return {}
        rows = self._session.exec(
            select(InboxRow).where(col(InboxRow.id).in_(inbox_ids), InboxRow.attachments != "[]")
        ).all()
        if not rows:
            return {}
        ids = [row.id for row in rows]
        fetched = self._session.exec(select(MediaFile).where(col(MediaFile.inbox_id).in_(ids))).all()
        known = {(file.inbox_id, file.seq): file for file in fetched}
        return {
            row.id: tuple(
                known.get((row.id, seq)) or MediaFile(inbox_id=row.id, seq=seq, filename=attachment.filename)
                for seq, attachment in enumerate(row.files())
            )
            for row in rows
            if row.id is not None
        }

    def unheard(self, inbox_ids: Sequence[int]) -> Sequence[MediaFile]:
        """Return the voices of these messages that nobody has listened to yet, in order."""
        kept = self._session.exec(
            select(MediaFile)
            .where(col(MediaFile.inbox_id).in_(inbox_ids))
            .order_by(col(MediaFile.inbox_id), col(MediaFile.seq))
        ).all()
        return [file for file in kept if file.unheard]

    def heard(self, file_id: int | None, transcript: str) -> None:
        """Keep what was said in a file, empty when nobody could tell."""
        self._session.exec(update(MediaFile).where(col(MediaFile.id) == file_id).values(transcript=transcript))
