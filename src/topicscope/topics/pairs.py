"""PairClass and the one classifier of word pairs, for synthetic and real text alike."""

from enum import IntEnum
from typing import Any

# A numpy array or a torch tensor; only operators that both have are used, so that this room needs no torch.
Array = Any

NOT_A_WORD = -1
NO_TOPIC = -1
NO_PAIR = -1


class PairClass(IntEnum):
    """What two positions i ≠ j have in common.

    The paper's natural-language ratio is mean(same_word ∪ same_topic) / mean(different_topic); the distinct-word ratio
    is same_topic / different_topic (Knowls 8 and 9).
    """

    same_word = 0
    same_word_no_topic = 1
    same_topic = 2
    different_topic = 3
    no_topic = 4


def classify_pairs(words: Array, topics: Array) -> Array:
    """Class of every ordered pair of positions.

    words [..., position]: word index, `NOT_A_WORD` (-1) at specials, word pieces and padding.
    topics [..., position]: the word's one topic, `NO_TOPIC` (-1) where it has none.
    Returns [..., query, key]: a `PairClass` value, `NO_PAIR` (-1) where i = j or a position is no word.
    """
    same_word = words[..., :, None] == words[..., None, :]
    has_topic = topics >= 0
    both = has_topic[..., :, None] & has_topic[..., None, :]
    same_topic = topics[..., :, None] == topics[..., None, :]
    return _combine(words, same_word, both, same_topic)


def classify_pairs_by_membership(words: Array, membership: Array) -> Array:
    """The same where a word may belong to several topics: two words share a topic when their sets intersect.

    membership [..., position, topic]: 1 where the word at that position belongs to the topic (float).
    """
    same_word = words[..., :, None] == words[..., None, :]
    has_topic = membership.sum(-1) > 0
    both = has_topic[..., :, None] & has_topic[..., None, :]
    shared = membership @ membership.swapaxes(-1, -2) > 0
    return _combine(words, same_word, both, shared)


def _combine(words: Array, same_word: Array, both: Array, same_topic: Array) -> Array:
    is_word = words >= 0
    valid = is_word[..., :, None] & is_word[..., None, :]
    position = (words == words).cumsum(-1)  # noqa: PLR0124  1, 2, 3, … in either library
    valid = valid & (position[..., :, None] != position[..., None, :])
    # Each line overrides the one above it; products of 0/1 keep this the same code for numpy and torch.
    code = int(PairClass.no_topic) * valid
    code = code + (int(PairClass.different_topic) - code) * (valid & both)
    code = code + (int(PairClass.same_topic) - code) * (valid & both & same_topic)
    code = code + (int(PairClass.same_word_no_topic) - code) * (valid & same_word)
    code = code + (int(PairClass.same_word) - code) * (valid & same_word & both)
    return code + (NO_PAIR - code) * ~valid
