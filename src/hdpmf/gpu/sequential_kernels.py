"""Kernels of the sequential solver; ``torch_engine`` says what each computes."""

from __future__ import annotations

import triton
import triton.language as tl

from hdpmf.gpu.triton_kernels import box_muller, exponentials, in_unit_ball, philox, together


@triton.jit
def step_normals(seed, rows, steps, epoch, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """The normals of one step of some rows."""
    zero = tl.zeros([ROWS, WIDTH // 4], tl.uint32)
    quads = tl.arange(0, WIDTH // 4).to(tl.uint32)[None, :] + zero
    w0, w1, w2, w3 = philox(
        seed + zero.to(tl.int64), rows.to(tl.uint32)[:, None] + zero, steps.to(tl.uint32)[:, None] + zero,
        zero + tl.full([], epoch, tl.uint32), quads * 16 + 4,
    )  # fmt: skip
    a, b = box_muller(w0, w1)
    c, d = box_muller(w2, w3)
    return together(a, b, c, d, ROWS, WIDTH)


@triton.jit(do_not_specialize=["epoch"])
def visit_ratings(
    begin, ranked, partner, target, coefficient, members, own, other, rates, shares,
    run_view, run_reg, run_seed, run_scale,
    epoch, n_lanes, n_runs, target_stride, coefficient_stride, share_stride, n_factors,
    LANES: tl.constexpr, WIDTH: tl.constexpr, WEIGHTED: tl.constexpr, MASKED: tl.constexpr,
    NOISE: tl.constexpr, UNIT_BALL: tl.constexpr,
):  # fmt: skip
    """Some lanes side by side; a lane is one row of one run, and steps once per rating of its row.

    A step needs the vector that the step before left, so a lane cannot be split; what it will need next is asked
    for while it computes.
    """
    lane = tl.program_id(0) * LANES + tl.arange(0, LANES)
    valid = lane < n_lanes
    run = lane % n_runs
    row = tl.load(ranked + lane // n_runs, mask=valid, other=0)
    first = tl.load(begin + row, mask=valid, other=0)
    count = tl.where(valid, tl.load(begin + row + 1, mask=valid, other=0) - first, 0).to(tl.int32)
    view = tl.load(run_view + run).to(tl.int64)
    rate = tl.load(rates + run)
    k = tl.arange(0, WIDTH)
    place = ((row.to(tl.int64) * n_runs + run) * WIDTH)[:, None] + k[None, :]
    x = tl.load(own + place, mask=valid[:, None], other=0.0)
    keep = (1.0 - 2.0 * rate * tl.load(run_reg + run))[:, None]
    if NOISE != "none":
        seed = tl.load(run_seed + run)[:, None]
        h_rows = tl.full([LANES], 0xFFFFFFFF, tl.uint32) if NOISE == "shared" else row
        share = tl.load(shares + view * share_stride + row, mask=valid, other=0.0) * tl.load(run_scale + run) * rate
        h = exponentials(seed, h_rows, epoch, 2, LANES, WIDTH)
        deviation = tl.where(k[None, :] < n_factors, tl.sqrt(2.0 * h) * share[:, None], 0.0)
    done = tl.zeros([LANES], tl.int32)
    active = count > 0
    wanted = tl.load(target + view * target_stride + first, mask=active, other=0.0)
    who = tl.load(partner + first, mask=active, other=0).to(tl.int64)
    factors = tl.load(other + ((who * n_runs + run) * WIDTH)[:, None] + k[None, :])
    following = count > 1
    who = tl.load(partner + first + 1, mask=following, other=0).to(tl.int64)
    for visit in range(0, tl.max(count, axis=0)):
        at = first + visit
        next_factors = tl.load(other + ((who * n_runs + run) * WIDTH)[:, None] + k[None, :])
        next_wanted = tl.load(target + view * target_stride + at + 1, mask=following, other=0.0)
        later = visit + 2 < count
        who = tl.load(partner + at + 2, mask=later, other=0).to(tl.int64)
        taken = active
        if MASKED:
            taken &= (tl.load(members + at, mask=active, other=0) >> view & 1) != 0
        residual = wanted - tl.sum(factors * x, axis=1)
        if WEIGHTED:
            residual *= tl.load(coefficient + view * coefficient_stride + at, mask=active, other=0.0)
        moved = x * keep + factors * (2.0 * rate * residual)[:, None]
        if NOISE != "none":
            moved -= deviation * step_normals(seed, row, done, epoch, LANES, WIDTH)
        if UNIT_BALL:
            moved = in_unit_ball(moved)
        x = tl.where(taken[:, None], moved, x)
        done += taken.to(tl.int32)
        factors = next_factors
        wanted = next_wanted
        active = following
        following = later
    tl.store(own + place, x, mask=valid[:, None])


@triton.jit(do_not_specialize=["seed", "epoch"])
def write_words(out, users, items, seed, epoch, n, BLOCK: tl.constexpr):
    """One random word for each rating."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = place < n
    zero = tl.zeros([BLOCK], tl.uint32)
    word, _, _, _ = philox(
        tl.full([BLOCK], seed, tl.int64),
        tl.load(users + place, mask=there, other=0).to(tl.uint32),
        tl.load(items + place, mask=there, other=0).to(tl.uint32),
        zero + tl.full([], epoch, tl.uint32),
        zero + 5,
    )
    tl.store(out + place, word.to(tl.int64), mask=there)


@triton.jit
def serve_queues(base, view, begin, user, turn, cursor, turns, ready, level, n_items, n_users, BLOCK: tl.constexpr):
    """One order: in every round, serve each item whose next user also waits for that item."""
    order = tl.program_id(0).to(tl.int64)
    offset = tl.load(base + order)
    n_ratings = tl.load(base + order + 1) - offset
    begin += tl.load(view + order) * (n_items + 1)
    user += offset
    turn += offset
    level += offset
    cursor += order * n_items
    ready += order * n_items
    turns += order * n_users
    served = n_ratings * 0
    number = 0
    while served < n_ratings:
        for tile in range(0, n_items, BLOCK):
            item = tile + tl.arange(0, BLOCK)
            there = item < n_items
            place = tl.load(begin + item, mask=there, other=0) + tl.load(cursor + item, mask=there, other=0)
            waiting = there & (place < tl.load(begin + item + 1, mask=there, other=0))
            who = tl.load(user + place, mask=waiting, other=0)
            its_turn = tl.load(turns + who, mask=waiting, other=-1) == tl.load(turn + place, mask=waiting, other=-2)
            go = waiting & its_turn
            tl.store(ready + item, go.to(tl.int32), mask=there)
            tl.store(level + place, number, mask=go)
            served += tl.sum(go.to(tl.int32), axis=0)
        # Nobody may be served because of what happened in this very round.
        tl.debug_barrier()
        for tile in range(0, n_items, BLOCK):
            item = tile + tl.arange(0, BLOCK)
            go = tl.load(ready + item, mask=item < n_items, other=0) != 0
            done = tl.load(cursor + item, mask=go, other=0)
            place = tl.load(begin + item, mask=go, other=0) + done
            who = tl.load(user + place, mask=go, other=0)
            tl.store(turns + who, tl.load(turn + place, mask=go, other=0) + 1, mask=go)
            tl.store(cursor + item, done + 1, mask=go)
        tl.debug_barrier()
        number += 1


@triton.jit
def step_levels(
    first, start, users, items, target, U, V, rates, run_view, run_reg, n_runs,
    TILE: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """One run of non-private MF: level after level, all ratings of a level side by side."""
    run = tl.program_id(0)
    view = tl.load(run_view + run)
    level = tl.load(first + view)
    last = tl.load(first + view + 1) - 1
    rate = 2.0 * tl.load(rates + run)
    keep = 1.0 - rate * tl.load(run_reg + run)
    k = tl.arange(0, WIDTH)
    end = tl.load(start + level)
    while level < last:
        begin = end
        level += 1
        end = tl.load(start + level)
        for at in range(begin, end, TILE):
            place = at + tl.arange(0, TILE)
            there = place < end
            who = ((tl.load(users + place, mask=there, other=0).to(tl.int64) * n_runs + run) * WIDTH)[:, None]
            what = ((tl.load(items + place, mask=there, other=0).to(tl.int64) * n_runs + run) * WIDTH)[:, None]
            wanted = tl.load(target + place, mask=there, other=0.0)
            u = tl.load(U + who + k[None, :], mask=there[:, None], other=0.0)
            v = tl.load(V + what + k[None, :], mask=there[:, None], other=0.0)
            step = (rate * (wanted - tl.sum(u * v, axis=1)))[:, None]
            tl.store(V + what + k[None, :], v * keep + u * step, mask=there[:, None])
            tl.store(U + who + k[None, :], in_unit_ball(u * keep + v * step), mask=there[:, None])
        # The next level reads what this one wrote.
        tl.debug_barrier()
