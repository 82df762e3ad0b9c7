"""PairClass and the one classifier of word pairs, for synthetic and real text alike."""

from enum import IntEnum
from typing import Any, NamedTuple

# A numpy array or a torch tensor; only operators that both have are used, so that this room needs no torch.
Array = Any

NOT_A_WORD = -1
NO_TOPIC = -1
NO_PAIR = -1


class PairClass(IntEnum):
    """What two positions i ≠ j have in common.

    The paper's natural-language ratio is mean(same_word ∪ same_topic) / mean(different_topic); the distinct-word
    ratio is same_topic / different_topic (Knowls 8 and 9).
    """

    same_word = 0
    same_word_no_topic = 1
    same_topic = 2
    different_topic = 3
    no_topic = 4


class Positions(NamedTuple):
    """What stands at each position of a sequence.

    words [..., position]: word index, `NOT_A_WORD` (-1) at specials, word pieces and padding.
    topics: either [..., position], the word's one topic with `NO_TOPIC` (-1) where it has none; or
        [..., position, topic], a float membership of 0 and 1, where words may belong to several topics.
    place [..., position]: where in the text the token stands. Two positions of one place are one occurrence and make
        no pair. It matters between sequences that hold the same text, as in cross attention.
    """

    words: Array
    topics: Array
    place: Array


def classify_pairs(query: Positions, key: Positions | None = None) -> Array:
    """Class of every ordered pair of a query and a key position; the keys are the queries unless given.

    Two words share a topic when their topics are equal, or, with memberships, when their sets intersect.
    Returns [..., query, key]: a `PairClass` value, `NO_PAIR` (-1) where a position is no word or both are one place.
    """
    key = query if key is None else key
    same_word = query.words[..., :, None] == key.words[..., None, :]
    if query.topics.ndim == query.words.ndim:
        query_has, key_has = query.topics >= 0, key.topics >= 0
        shared = query.topics[..., :, None] == key.topics[..., None, :]
    else:
        query_has, key_has = query.topics.sum(-1) > 0, key.topics.sum(-1) > 0
        shared = query.topics @ key.topics.swapaxes(-1, -2) > 0
    both = query_has[..., :, None] & key_has[..., None, :]
    valid = (query.words >= 0)[..., :, None] & (key.words >= 0)[..., None, :]
    valid = valid & (query.place[..., :, None] != key.place[..., None, :])
    # Each line overrides the ones above it; arithmetic on 0 and 1 keeps this the same code for numpy and torch.
    code = int(PairClass.no_topic) * valid
    code = code + (int(PairClass.different_topic) - code) * (valid & both)
    code = code + (int(PairClass.same_topic) - code) * (valid & both & shared)
    code = code + (int(PairClass.same_word_no_topic) - code) * (valid & same_word)
    code = code + (int(PairClass.same_word) - code) * (valid & same_word & both)
    return code + (NO_PAIR - code) * ~valid
