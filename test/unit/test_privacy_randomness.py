import hashlib

import pytest

from cape.privacy.randomness import SecureNoise, SeededNoise


def test_the_secure_source_gives_fresh_bytes_whatever_the_context():
    source = SecureNoise()
    assert source.label == "os"
    assert source.stream("site-a", 1) is source
    assert len(source.token_bytes(33)) == 33
    assert source.token_bytes(32) != source.token_bytes(32)


def test_a_seeded_stream_is_shake_256_in_counted_blocks():
    key = b"cape/1/seeded" + b"i" + (1).to_bytes(8, "little") + b"7"
    key += b"s" + (1).to_bytes(8, "little") + b"a"
    blocks = [hashlib.shake_256(key + k.to_bytes(8, "little")).digest(4352) for k in range(3)]
    assert SeededNoise(7, ("a",)).token_bytes(10_000) == b"".join(blocks)[:10_000]


def test_cutting_the_requests_differently_does_not_change_a_seeded_stream():
    source = SeededNoise(1, ("x",))
    pieces = [source.token_bytes(n) for n in (0, 1, 4351, 1, 9000, 7)]
    assert b"".join(pieces) == SeededNoise(1, ("x",)).token_bytes(13_360)


def test_the_same_context_restarts_and_does_not_depend_on_what_was_drawn():
    source = SeededNoise(5)
    first = source.stream("site-a", "pca", 1, "noise").token_bytes(64)
    source.token_bytes(1000)
    assert source.stream("site-a", "pca", 1, "noise").token_bytes(64) == first
    assert source.stream("site-a").stream("pca", 1, "noise").token_bytes(64) == first
    assert source.label == "seeded"


def test_different_seeds_and_contexts_give_different_streams():
    streams = [
        SeededNoise(0),
        SeededNoise(1),
        SeededNoise(0, (1,)),
        SeededNoise(0, ("1",)),
        SeededNoise(0, ("a", "b")),
        SeededNoise(0, ("ab",)),
        SeededNoise(0, ("a", "b", "")),
        SeededNoise(0, ("a", 1)),
        SeededNoise(0, ("a1",)),
        SeededNoise(2**80),
    ]
    assert len({stream.token_bytes(32) for stream in streams}) == len(streams)


@pytest.mark.parametrize("seed", [-1, True, 1.0, "1"])
def test_a_seed_that_is_no_natural_number_is_refused(seed):
    with pytest.raises(ValueError, match="seed"):
        SeededNoise(seed)


@pytest.mark.parametrize("part", [1.5, True, None, b"a"])
def test_a_context_of_other_types_is_refused(part):
    with pytest.raises(ValueError, match="context"):
        SeededNoise(1).stream(part)


@pytest.mark.parametrize("source", [SecureNoise(), SeededNoise(1)])
def test_a_negative_number_of_bytes_is_refused(source):
    with pytest.raises(ValueError, match="negative"):
        source.token_bytes(-1)


def test_every_part_of_a_context_names_the_stream():
    """Also of a stream of a stream: a round that shared the noise of another would undo both."""
    source = SeededNoise(7)
    contexts = [("a",), ("a", 1), ("a", 2), ("a", 1, "noise"), ("a", 1, "seed"), ("b", 1)]
    drawn = {source.stream(*context).token_bytes(16) for context in contexts}
    assert len(drawn) == len(contexts)
    nested = source.stream("a").stream(1).stream("noise").token_bytes(16)
    assert nested == source.stream("a", 1, "noise").token_bytes(16)
