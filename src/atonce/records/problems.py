"""What can be wrong with the records of a batch whose checksum is right."""

from __future__ import annotations

OK, BAD_RECORD, BAD_OFFSET, BAD_HEADER, LEFT_OVER = range(5)
PROBLEMS = {
    BAD_RECORD: "the lengths of its records do not add up",
    BAD_OFFSET: "the offsets of its records do not follow each other",
    BAD_HEADER: "a header of a record is not whole",
    LEFT_OVER: "bytes are left after the last of its records",
}
