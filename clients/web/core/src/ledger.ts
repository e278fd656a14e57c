/**
 * The person's ledger: what everything that was ever sent about its owner costs, and what may be.
 *
 * Amounts are squares of mu in billionths, whole numbers, rounded up, the same as Python's
 * (`spec/vectors/ledger.json`). What a task costs follows from its public numbers and the owner's
 * wish alone; ratings play no part in what is charged or let through.
 */

import { PrivacyError } from './documents.ts'

export const UNIT = 10 ** 9
export const GRAIN_UNIT = 10 ** 15
/** Wishes and items' weights are in thousandths. */
export const WHOLE = 1000
/** Seconds. */
export const MONTH = 30 * 86_400

/** A part of two whole numbers; the second one is positive. */
type Fraction = readonly [bigint, bigint]

/** What a task costs a person who lets all of it through: squares of mu, and grains of noise. */
export interface Price {
  readonly none: Fraction
  readonly other: Fraction
  readonly grain: Fraction
}

const plus = ([a, b]: Fraction, [c, d]: Fraction): Fraction => [a * d + c * b, b * d]
const times = ([a, b]: Fraction, factor: bigint): Fraction => [a * factor, b]

export const bothPrices = (one: Price, more: Price): Price => ({
  none: plus(one.none, more.none),
  other: plus(one.other, more.other),
  grain: plus(one.grain, more.grain),
})

/** Return the price of a sum of rows whose squared length is at most `bound`. */
export function vectorPrice(
  bound: number, deviation: number, signed: boolean, entries: number,
): Price {
  const square = BigInt(deviation) ** 2n
  const none: Fraction = [BigInt(bound), square]
  return { none, other: times(none, signed ? 4n : 2n), grain: [BigInt(entries), square ** 2n] }
}

/** Return the price of a sum of outer products of rows of squared length up to this. */
export function matrixPrice(bound: number, deviation: number, heads: number): Price {
  const square = BigInt(deviation) ** 2n
  const none: Fraction = [BigInt(bound) ** 2n, 2n * square]
  return { none, other: times(none, 2n), grain: [BigInt((heads * (heads + 1)) / 2), square ** 2n] }
}

export interface Cost {
  readonly none: number
  readonly other: number
  readonly grain: number
}

const NOTHING: Cost = { none: 0, other: 0, grain: 0 }

const bothCosts = (one: Cost, more: Cost): Cost => ({
  none: one.none + more.none,
  other: one.other + more.other,
  grain: one.grain + more.grain,
})

/** Return what a task costs a person of this wish (thousandths): the square of it counts. */
export function costOf(price: Price, wish: number): Cost {
  if (!(Number.isInteger(wish) && wish >= 0 && wish <= WHOLE)) {
    throw new PrivacyError(`a wish is from 0 to ${WHOLE} thousandths`)
  }
  const share: Fraction = [BigInt(wish) ** 2n * BigInt(UNIT), BigInt(WHOLE) ** 2n]
  const shared = ([a, b]: Fraction): number => up([a * share[0], b * share[1]])
  return {
    none: shared(price.none),
    other: shared(price.other),
    // The noise stays as it is, so that its grain does.
    grain: up(times(price.grain, BigInt(GRAIN_UNIT))),
  }
}

function up([a, b]: Fraction): number {
  const found = (a + b - 1n) / b
  if (found > BigInt(Number.MAX_SAFE_INTEGER)) throw new PrivacyError('a cost is beyond counting')
  return Number(found)
}

/** The owner's limits, in amounts, for all recommenders together. */
export interface Limits {
  readonly life: number
  readonly month: number
}

/** Epsilon 2, 4 or 8 at delta 1e-5 for the whole life, and a quarter of its square in a month. */
export const LEVELS = {
  careful: { life: 251_554_096, month: 62_888_524 },
  middle: { life: 855_497_163, month: 213_874_290 },
  open: { life: 2_775_657_948, month: 693_914_487 },
} as const satisfies Record<string, Limits>

/**
 * Return the most that limits let through: rows of either sign cost four times as much against
 * another history, and no task of 20,000 items has noise that is coarser for what it costs.
 */
export const worstWithin = ({ life }: Limits): Cost =>
  ({ none: life, other: 4 * life, grain: Math.ceil(0.11 * life) })

/** A report that this device has promised. Lines are only ever added. */
export interface Line {
  readonly at: number
  readonly recommender: string
  /** The task's id in hexadecimal. */
  readonly task: string
  readonly part: 'linear' | 'pairs'
  /** For a person of the whole wish. */
  readonly price: number
  readonly wish: number
  readonly cost: Cost
  /** The report was of zeros. */
  readonly zeros: boolean
}

/** Return the sum of what was charged; with `since` from then on, by the lines' own times. */
export const total = (lines: readonly Line[], since = -Infinity): Cost =>
  lines.filter((line) => line.at > since).map((line) => line.cost).reduce(bothCosts, NOTHING)

/** Return the line of a report that is about to be made: in full, or of zeros. */
export function promise(
  limits: Limits,
  lines: readonly Line[],
  price: Price,
  wish: number,
  about: Pick<Line, 'at' | 'recommender' | 'task' | 'part'>,
): Line {
  const cost = costOf(price, wish)
  const month = total(lines, about.at - MONTH).none + cost.none
  const fits = month <= limits.month && total(lines).none + cost.none <= limits.life
  const zeros = !(wish > 0 && fits)
  return { ...about, price: costOf(price, WHOLE).none, wish, cost: zeros ? NOTHING : cost, zeros }
}
