"""The exact clip holds for any input at all (privacy of every subject rests on it)."""

import math

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cape.secagg import field

HOSTILE = st.one_of(
    st.floats(width=64, allow_nan=True, allow_infinity=True, allow_subnormal=True),
    st.sampled_from([0.0, -0.0, 5e-324, -2.2e-308, 1e300, -1.7e308, math.inf, -math.inf, math.nan]),
    st.floats(-2.0, 2.0),
)


@st.composite
def answers(draw):
    """Rows of any content: also no row, or rows of one entry."""
    form = draw(st.tuples(st.integers(0, 4), st.integers(1, 40)))
    return draw(hnp.arrays(np.float64, form, elements=HOSTILE))


@st.composite
def plans(draw, d):
    """Scale and bound as a plan may hold them: room for rounding, squares that fit 63 bits."""
    least = math.floor(math.sqrt(d) / 2) + 2
    most = math.isqrt((2**63 - 1) // d)
    clip = draw(st.one_of(st.integers(least, 4 * least), st.integers(least, most)))
    return {
        "log2_gamma": draw(st.integers(-60, 60)),
        "clip_int": clip,
        "shape": draw(st.sampled_from(["ball", "psd"])),
    }


def squared_norm(u) -> int:
    return sum(int(x) * int(x) for x in u)


def squared_distance(u, v) -> int:
    return sum((int(x) - int(y)) ** 2 for x, y in zip(u, v, strict=True))


@given(st.data())
def test_every_row_is_inside_the_bound_in_exact_arithmetic(data):
    x = data.draw(answers())
    plan = data.draw(plans(x.shape[1]))
    u = field.quantize(x, **plan)
    assert u.shape == x.shape
    assert u.dtype == np.int64
    for row in u:
        assert squared_norm(row) <= plan["clip_int"] ** 2


@given(st.data())
def test_the_integer_clip_needs_no_help_from_the_float_clip(data):
    """Whatever the float steps did: NaN, infinities, rows far outside."""
    x = data.draw(answers())
    plan = data.draw(plans(x.shape[1]))
    exact = field._integer_clip(x, clip_int=plan["clip_int"], shape=plan["shape"])
    for row in exact:
        assert squared_norm(row) <= plan["clip_int"] ** 2


@given(st.integers(1, 60), st.integers(1, 2**31), st.randoms(use_true_random=False))
def test_rows_just_outside_the_bound_are_pulled_in(d, clip, rnd):
    clip = min(clip, math.isqrt((2**63 - 1) // d))
    row = np.array([[float(rnd.randint(-clip, clip)) for _ in range(d)]])
    exact = field._integer_clip(row, clip_int=clip, shape="ball")
    assert squared_norm(exact[0]) <= clip**2
    assert (np.abs(exact) <= np.abs(row)).all()
    assert (exact * row >= 0).all()


@given(st.data())
def test_one_subject_moves_the_sum_by_at_most_twice_the_bound(data):
    """Replace-one neighbours, ball: the distance of the site's sums is at most 2 C_int."""
    x = data.draw(answers().filter(lambda rows: rows.shape[0] > 0))
    plan = data.draw(plans(x.shape[1])) | {"shape": "ball"}
    y = x.copy()
    y[0] = data.draw(hnp.arrays(np.float64, x.shape[1:], elements=HOSTILE))
    here = field.quantized_sum(x, **plan)
    there = field.quantized_sum(y, **plan)
    assert squared_distance(here, there) <= (2 * plan["clip_int"]) ** 2


@st.composite
def gram_pairs(draw):
    """Two subjects' svec(U U') with orthonormal columns, also equal, orthogonal, of lower rank."""
    n, rank = draw(st.tuples(st.integers(2, 8), st.integers(1, 4)))
    seed = draw(st.integers(0, 2**32 - 1))
    raw = np.random.default_rng(seed).normal(size=(2, n, min(rank, n)))
    if draw(st.booleans()):  # axes of the coordinate system: exactly orthogonal subjects
        raw = np.zeros_like(raw)
        raw[0, 0, 0] = raw[1, n - 1, 0] = 1.0
    upper = np.triu_indices(n, 1)
    rows = []
    for u in raw:
        gram = u @ u.T
        gram /= max(np.linalg.norm(gram), 1e-300)
        rows.append(np.concatenate([np.diag(gram), math.sqrt(2) * gram[upper]]))
    return np.array(rows) * draw(st.sampled_from([0.5, 0.999, 1.0, 3.0, 1e200]))


@given(gram_pairs(), st.integers(5, 20))
@example(np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), 12)
def test_psd_subjects_are_at_most_the_rounded_bound_apart(rows, log2_gamma):
    d = rows.shape[1]
    clip = 2**log2_gamma
    if clip < 50 * math.sqrt(d):
        return
    delta = math.isqrt(2 * clip**2 - 1) + 1 + math.ceil(0.3 * math.sqrt(d)) + 1
    u = field.quantize(rows, log2_gamma=log2_gamma, clip_int=clip, shape="psd")
    assert squared_distance(u[0], u[1]) <= delta**2


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=8), st.data())
def test_decoding_gives_the_integer_sum_for_any_masks_that_cancel(values, data):
    words = st.integers(0, 2**64 - 1)
    masks = [data.draw(words) for _ in values]
    masks[-1] = -sum(masks[:-1]) % 2**64
    vectors = [
        np.array([(x + mask) % 2**64], dtype=np.uint64)
        for x, mask in zip(values, masks, strict=True)
    ]
    assert field.decode_sum(vectors, bound=2**43).tolist() == [sum(values)]
