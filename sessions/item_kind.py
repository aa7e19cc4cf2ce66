"""What an item of a conversation is."""

from enum import StrEnum


class ItemKind(StrEnum):
    """What a node of the tree is."""

    MESSAGE = "message"
    FUNCTION_CALL = "function_call"
    FUNCTION_CALL_OUTPUT = "function_call_output"
    REASONING = "reasoning"
    COMPACTION = "compaction"
