"""How the slots of a worker are counted."""

from temporal.attempts import SlotKind, SlotUsage


def test_slots_in_use_are_counted_by_queue_and_kind() -> None:
    slots = SlotUsage()
    slots.set_limit("maestro", SlotKind.LOCAL, 16)
    slots.set_limit("maestro-llm", SlotKind.ACTIVITY, 400)
    slots.add_running("maestro-llm", SlotKind.ACTIVITY, 1)
    slots.add_running("maestro-llm", SlotKind.ACTIVITY, 1)
    slots.add_running("maestro-llm", SlotKind.ACTIVITY, -1)
    assert [(one.queue, one.used, one.limit) for one in slots.list_slots()] == [
        ("maestro", 0, 16),
        ("maestro-llm", 1, 400),
    ]
