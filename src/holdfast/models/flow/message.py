"""Messages: the rows that move a job. One a work request of an activity instance, from its Leg1 to its acknowledgement.

A row stands for one transition after the other (`store.flows`: leg1, work, leg2): what is published and claimed in the
same commit needs no row of its own. Its GUID is that of the response it leads to, and its promise is made of it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from holdfast.core.collation import Dimension, Guid, response_guid
from holdfast.core.identity import PATH_NUMBER_BYTES, ROOT_BYTES
from holdfast.models.flow.activity import Activity
from holdfast.store.base import handler_of
from holdfast.store.flows import CLOSE, LEG1, MESSAGE, WORK
from holdfast.store.values import NewExecution

GUID_PATH_BYTES: Final = 4 * PATH_NUMBER_BYTES
SUBFLOW_PATH_BYTES: Final = GUID_PATH_BYTES + PATH_NUMBER_BYTES  # that the id of a sub-flow's job has more than its own
_NOTHING: Final = Raw(b"")
_PATH_MASK: Final = int.from_bytes(b"\x7f\xff\xff\xff" * 4, "big")  # no number of it can mark a successor


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of a message's row."""

    activity: str
    queue: str  # the job's, for messages of activities without one of their own
    inputs: list[Raw] = []
    dimension: str = ""
    iteration: str = "0"  # the number of the work request, in words that outlast 64 bits
    is_entry: bool = False  # its only input is the job's own, as an object
    response: Raw = _NOTHING  # of a response that came from elsewhere
    early: Raw = _NOTHING  # the state of such a response, which came before this Leg1 was published (ruling A5)

    def guid(self, job: bytes) -> Guid:
        return response_guid(job, self.activity, Dimension.parse(self.dimension), int(self.iteration))

    @property
    def answer(self) -> str:
        """What came from elsewhere instead of the activity's own work; empty: nothing."""
        return bytes(_decode(self.early).response if self.early else self.response).decode()


_decode = msgspec.json.Decoder(Message).decode
_encode = msgspec.json.Encoder().encode


def read_message(text: str) -> Message:
    return _decode(text)


def peek_message(text: str) -> Message:
    """For people: of one that cannot be read, nothing is known."""
    try:
        return _decode(text)
    except msgspec.MsgspecError:
        return Message("?", "")


def message_promise(job: bytes, guid: bytes) -> bytes:
    """Its job's id and four numbers, which are the GUID: the same message has the same row."""
    return job + (int.from_bytes(guid, "big") & _PATH_MASK).to_bytes(GUID_PATH_BYTES, "big")


def job_of(promise: bytes) -> bytes:
    return promise[:-GUID_PATH_BYTES]


def depth_of(job: bytes) -> int:
    """How many jobs led to this one, each by a sub-flow."""
    return (len(job) - ROOT_BYTES) // SUBFLOW_PATH_BYTES


def message_handler(flow: str, version: int) -> int:
    return handler_of(MESSAGE, flow, version)


class Letter(NamedTuple):
    """A message to publish: its row, and what is written in it, for who goes on with it in this process."""

    row: NewExecution
    message: Message
    dimension: Dimension
    guid: Guid


class Letterhead(msgspec.Struct, frozen=True, gc=False):
    """What all messages of a job have in common."""

    job: bytes
    flow: str
    version: int
    handler: int
    queue: str
    priority: int

    def leg1(
        self, activity: Activity[..., object], dimension: Dimension, inputs: list[Raw], *, is_entry: bool = False
    ) -> Letter:
        return self._letter(activity, dimension, inputs, 0, LEG1, is_entry)

    def request(
        self, activity: Activity[..., object], dimension: Dimension, inputs: list[Raw], iteration: int
    ) -> Letter:
        """A back edge's: the instance has had its Leg1 (ruling A9)."""
        return self._letter(activity, dimension, inputs, iteration, WORK, False)

    def refusal(self, entry: Activity[..., object], error: str) -> NewExecution:
        """Of a job whose input cannot be read: its obligation is closed without any work (ruling A8)."""
        response = Raw(f'{{"error":{error}}}'.encode())
        return self._letter(entry, Dimension(), [], 0, CLOSE, False, response).row

    def _letter(
        self,
        activity: Activity[..., object],
        dimension: Dimension,
        inputs: list[Raw],
        iteration: int,
        step: str,
        is_entry: bool,
        response: Raw = _NOTHING,
    ) -> Letter:
        name, queue = activity.name, self.queue
        message = Message(name, queue, inputs, str(dimension), str(iteration), is_entry, response)
        guid = response_guid(self.job, name, dimension, iteration)
        row = NewExecution(
            promise=message_promise(self.job, guid),
            kind=MESSAGE,
            name=self.flow,
            version=self.version,
            handler=self.handler,
            step=step,
            state=_encode(message).decode(),
            input_hash="",
            queue=activity.queue or queue,
            priority=self.priority,
            cleans_up=True,
        )
        return Letter(row, message, dimension, guid)
