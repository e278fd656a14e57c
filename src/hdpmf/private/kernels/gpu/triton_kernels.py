"""Triton kernels of all solvers.

``triton_engine`` launches them; ``tests/unit/gpu`` has the same in plain PyTorch.

Noise is counter-based: the same numbers for the same seed, row, epoch and purpose, in whatever
order they are drawn. It is seeded, so for simulation only: noise that is released to anyone must
come from ``hdpmf.common.privacy.sampling.noise``. A counter's last word is the purpose of a draw:
1 normals, 2 exponentials, 4 (and 16 times the quad) steps, 5 orders.

One program is one warp wherever ratings are gathered: it needs no barrier, and many of them hide
each other's waits.
"""

import triton
import triton.language as tl


@triton.jit
def philox(seed, c0, c1, c2, c3):
    """Return four Philox4x32-10 words (Salmon et al., 2011) of counters and an int64 seed."""
    key0 = (seed & 0xFFFFFFFF).to(tl.uint32)
    key1 = ((seed >> 32) & 0xFFFFFFFF).to(tl.uint32)
    for _ in tl.static_range(10):
        a = c0
        b = c2
        c0 = tl.umulhi(b, tl.full(b.shape, 0xCD9E8D57, tl.uint32)) ^ c1 ^ key0
        c2 = tl.umulhi(a, tl.full(a.shape, 0xD2511F53, tl.uint32)) ^ c3 ^ key1
        c1 = b * tl.full(b.shape, 0xCD9E8D57, tl.uint32)
        c3 = a * tl.full(a.shape, 0xD2511F53, tl.uint32)
        key0 = key0 + tl.full(key0.shape, 0x9E3779B9, tl.uint32)
        key1 = key1 + tl.full(key1.shape, 0xBB67AE85, tl.uint32)
    return c0, c1, c2, c3


@triton.jit
def uniform(word):
    """(k + 1/2) / 2^24 from the upper 24 bits: never 0 and never 1."""
    return ((word >> 8).to(tl.int32).to(tl.float32) + 0.5) * 5.9604644775390625e-08


@triton.jit
def box_muller(first, second):
    """Return two normals from two words.

    The angle is a quadrant and at most 45 degrees, where short polynomials are accurate.
    """
    radius = tl.sqrt(-2.0 * tl.log(uniform(first)))
    angle = ((second >> 2).to(tl.int32) - 536870912).to(tl.float32) * 1.4629180792671596e-09
    square = angle * angle
    sine = square * -1.9515296e-4 + 8.3321609e-3
    sine = (sine * square - 1.6666655e-1) * square * angle + angle
    cosine = square * 2.4433157e-5 - 1.3887316e-3
    cosine = (cosine * square + 4.1666646e-2) * square * square - square * 0.5 + 1.0
    turned = (second & 1) != 0
    a = tl.where(turned, sine, cosine) * radius
    b = tl.where(turned, cosine, sine) * radius
    return tl.where(((second ^ (second >> 1)) & 1) != 0, -a, a), tl.where((second & 2) != 0, -b, b)


@triton.jit
def quad_words(seed, rows, epoch, purpose, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Words for ``WIDTH`` numbers of each row, in four tiles of (ROWS, WIDTH / 4)."""
    zero = tl.zeros([ROWS, WIDTH // 4], tl.uint32)
    c0 = rows.to(tl.uint32)[:, None] + zero
    c1 = tl.arange(0, WIDTH // 4).to(tl.uint32)[None, :] + zero
    return philox(
        seed + zero.to(tl.int64), c0, c1, zero + tl.full([], epoch, tl.uint32), zero + purpose
    )


@triton.jit
def together(a, b, c, d, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Four tiles of (ROWS, WIDTH / 4) as one of (ROWS, WIDTH), the four next to each other."""
    return tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), [ROWS, WIDTH])


@triton.jit
def normals(seed, rows, epoch, purpose, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Standard normals, a tile of (ROWS, WIDTH)."""
    w0, w1, w2, w3 = quad_words(seed, rows, epoch, purpose, ROWS, WIDTH)
    a, b = box_muller(w0, w1)
    c, d = box_muller(w2, w3)
    return together(a, b, c, d, ROWS, WIDTH)


@triton.jit
def exponentials(seed, rows, epoch, purpose, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Exp(1) draws, a tile of (ROWS, WIDTH)."""
    w0, w1, w2, w3 = quad_words(seed, rows, epoch, purpose, ROWS, WIDTH)
    a, b = -tl.log(uniform(w0)), -tl.log(uniform(w1))
    c, d = -tl.log(uniform(w2)), -tl.log(uniform(w3))
    return together(a, b, c, d, ROWS, WIDTH)


@triton.jit
def in_unit_ball(x):
    """Rows, scaled down to length 1 where they are longer."""
    length = tl.sqrt_rn(tl.maximum(tl.sum(x * x, axis=1), 1.0))[:, None]
    return tl.div_rn(x, tl.broadcast_to(length, x.shape))


@triton.jit
def sum_segments(
    start, length, row, partner, target, coefficient, own, other, out,
    WIDTH: tl.constexpr, TILE: tl.constexpr, WEIGHTED: tl.constexpr,
):  # fmt: skip
    """Sum residuals times the partners' factors over one segment."""
    segment = tl.program_id(0)
    begin = tl.load(start + segment)
    count = tl.load(length + segment)
    k = tl.arange(0, WIDTH)
    x = tl.load(own + tl.load(row + segment).to(tl.int64) * WIDTH + k)[None, :]
    total = tl.zeros([TILE, WIDTH], tl.float32)
    t = tl.arange(0, TILE)
    active = t < count
    # Ratings are read once, so they should not displace factors from the caches; the next ones are
    # asked for before this tile's factors are used.
    who = tl.load(partner + begin + t, mask=active, other=0, eviction_policy="evict_first").to(
        tl.int64
    )
    for at in range(0, count, TILE):
        position = begin + at + t
        factors = tl.load(other + (who * WIDTH)[:, None] + k[None, :])
        following = at + TILE + t < count
        who = tl.load(
            partner + position + TILE, mask=following, other=0, eviction_policy="evict_first"
        ).to(tl.int64)
        wanted = tl.load(target + position, mask=active, other=0.0, eviction_policy="evict_first")
        residual = tl.sum(factors * x, axis=1) - wanted
        if WEIGHTED:
            residual *= tl.load(coefficient + position, mask=active, other=0.0)
        total += tl.where(active, residual, 0.0)[:, None] * factors
        active = following
    tl.store(out + segment.to(tl.int64) * WIDTH + k, tl.sum(total, axis=0))


@triton.jit
def sum_parts(first, parts, partial, rows, valid, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """The sums of a tile of rows, segment after segment in a fixed order."""
    k = tl.arange(0, WIDTH)
    begin = tl.load(first + rows, mask=valid, other=0)
    end = tl.load(first + rows + 1, mask=valid, other=0)
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    for part in range(0, tl.max(end - begin, axis=0)):
        there = begin + part < end
        segment = tl.load(parts + begin + part, mask=there, other=0).to(tl.int64)
        total += tl.load(
            partial + (segment * WIDTH)[:, None] + k[None, :], mask=there[:, None], other=0.0
        )
    return total


@triton.jit(do_not_specialize=["seed", "epoch"])
def step_rows(
    first, parts, partial, own, steps,
    rate, reg, seed, scale, epoch, n_rows, n_factors,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, NOISE: tl.constexpr, UNIT_BALL: tl.constexpr,
):  # fmt: skip
    """Update some rows: sum their parts, add noise, step, project."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    valid = rows < n_rows
    k = tl.arange(0, WIDTH)
    total = sum_parts(first, parts, partial, rows, valid, ROWS, WIDTH)
    position = (rows.to(tl.int64) * WIDTH)[:, None] + k[None, :]
    x = tl.load(own + position, mask=valid[:, None], other=0.0)
    gradient = 2.0 * (total + reg * x)
    if NOISE != "none":
        noise = normals(seed, rows, epoch, 1, ROWS, WIDTH)
        h_rows = tl.full([ROWS], 0xFFFFFFFF, tl.uint32) if NOISE == "shared" else rows
        noise *= tl.sqrt(2.0 * exponentials(seed, h_rows, epoch, 2, ROWS, WIDTH))
        gradient += noise * scale
    pace = tl.load(steps + rows, mask=valid, other=0.0) * rate
    x = tl.where(k[None, :] < n_factors, x - pace[:, None] * gradient, 0.0)
    if UNIT_BALL:
        x = in_unit_ball(x)
    tl.store(own + position, x, mask=valid[:, None])


@triton.jit
def step_normals(seed, rows, steps, epoch, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """The normals of one step of some rows."""
    zero = tl.zeros([ROWS, WIDTH // 4], tl.uint32)
    quads = tl.arange(0, WIDTH // 4).to(tl.uint32)[None, :] + zero
    w0, w1, w2, w3 = philox(
        seed + zero.to(tl.int64),
        rows.to(tl.uint32)[:, None] + zero,
        steps.to(tl.uint32)[:, None] + zero,
        zero + tl.full([], epoch, tl.uint32),
        quads * 16 + 4,
    )
    a, b = box_muller(w0, w1)
    c, d = box_muller(w2, w3)
    return together(a, b, c, d, ROWS, WIDTH)


@triton.jit(do_not_specialize=["seed", "epoch"])
def visit_ratings(
    begin, ranked, partner, target, coefficient, own, other, shares,
    rate, reg, seed, scale, epoch, n_rows, n_factors,
    LANES: tl.constexpr, WIDTH: tl.constexpr, WEIGHTED: tl.constexpr,
    NOISE: tl.constexpr, UNIT_BALL: tl.constexpr,
):  # fmt: skip
    """Some lanes side by side; a lane is one row, and steps once per rating of its row.

    A step needs the vector that the step before left, so a lane cannot be split; what it will need
    next is asked for while it computes.
    """
    lane = tl.program_id(0) * LANES + tl.arange(0, LANES)
    valid = lane < n_rows
    row = tl.load(ranked + lane, mask=valid, other=0)
    first = tl.load(begin + row, mask=valid, other=0)
    count = tl.where(valid, tl.load(begin + row + 1, mask=valid, other=0) - first, 0).to(tl.int32)
    k = tl.arange(0, WIDTH)
    position = (row.to(tl.int64) * WIDTH)[:, None] + k[None, :]
    x = tl.load(own + position, mask=valid[:, None], other=0.0)
    keep = 1.0 - 2.0 * rate * reg
    if NOISE != "none":
        h_rows = tl.full([LANES], 0xFFFFFFFF, tl.uint32) if NOISE == "shared" else row
        share = tl.load(shares + row, mask=valid, other=0.0) * scale * rate
        h = exponentials(seed, h_rows, epoch, 2, LANES, WIDTH)
        deviation = tl.where(k[None, :] < n_factors, tl.sqrt(2.0 * h) * share[:, None], 0.0)
    done = tl.zeros([LANES], tl.int32)
    active = count > 0
    wanted = tl.load(target + first, mask=active, other=0.0)
    who = tl.load(partner + first, mask=active, other=0).to(tl.int64)
    factors = tl.load(other + (who * WIDTH)[:, None] + k[None, :])
    following = count > 1
    who = tl.load(partner + first + 1, mask=following, other=0).to(tl.int64)
    for visit in range(0, tl.max(count, axis=0)):
        at = first + visit
        next_factors = tl.load(other + (who * WIDTH)[:, None] + k[None, :])
        next_wanted = tl.load(target + at + 1, mask=following, other=0.0)
        later = visit + 2 < count
        who = tl.load(partner + at + 2, mask=later, other=0).to(tl.int64)
        residual = wanted - tl.sum(factors * x, axis=1)
        if WEIGHTED:
            residual *= tl.load(coefficient + at, mask=active, other=0.0)
        moved = x * keep + factors * (2.0 * rate * residual)[:, None]
        if NOISE != "none":
            moved -= deviation * step_normals(seed, row, done, epoch, LANES, WIDTH)
        if UNIT_BALL:
            moved = in_unit_ball(moved)
        x = tl.where(active[:, None], moved, x)
        done += active.to(tl.int32)
        factors = next_factors
        wanted = next_wanted
        active = following
        following = later
    tl.store(own + position, x, mask=valid[:, None])


@triton.jit(do_not_specialize=["seed", "epoch"])
def write_words(out, users, items, seed, epoch, n, BLOCK: tl.constexpr):
    """One random word for each rating."""
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = position < n
    zero = tl.zeros([BLOCK], tl.uint32)
    word, _, _, _ = philox(
        tl.full([BLOCK], seed, tl.int64),
        tl.load(users + position, mask=there, other=0).to(tl.uint32),
        tl.load(items + position, mask=there, other=0).to(tl.uint32),
        zero + tl.full([], epoch, tl.uint32),
        zero + 5,
    )
    tl.store(out + position, word.to(tl.int64), mask=there)
