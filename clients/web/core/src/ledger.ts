/**
 * The person's ledger: what everything that was ever sent about its owner costs, and what may be.
 *
 * Amounts are squares of mu in billionths, whole numbers, rounded up, the same as Python's (`spec/vectors/ledger.json`).
 * What a task costs follows from its public numbers and the owner's wish alone; ratings play no part in what is charged
 * or let through.
 */

import { PrivacyError } from './documents.ts'
import type { Task } from './task.ts'

/** Amounts for a square of mu of 1. */
export const UNIT = 10 ** 9
/** Amounts for a grain of 1. */
export const GRAIN_UNIT = 10 ** 15
/** Wishes and items' weights are in thousandths. */
export const WHOLE = 1000
/** Seconds. */
export const MONTH = 30 * 86_400

/** A part of two whole numbers; the second one is positive. */
type Fraction = readonly [bigint, bigint]

/** What a task costs a person who lets all of it through: squares of mu, and grains of noise. */
type Price = Readonly<Record<keyof Cost, Fraction>>

const plus = ([a, b]: Fraction, [c, d]: Fraction): Fraction => [a * d + c * b, b * d]

/** Return what a task costs a person of the whole wish, by its public numbers. */
export function priceOf({ sums }: Pick<Task, 'sums'>): Price {
  const bound = BigInt(sums.bound)
  // Rows of either sign may point in opposite directions.
  const vector = (deviation: number, apart: bigint, entries: number): Price => {
    const square = BigInt(deviation) ** 2n
    return { none: [bound, square], other: [apart * bound, square], grain: [BigInt(entries), square ** 2n] }
  }
  if (sums.type === 'pairs') {
    const { length } = sums.heads
    const { none: [, square], grain } = vector(sums.deviation, 2n, (length * (length + 1)) / 2)
    return { none: [bound ** 2n, 2n * square], other: [bound ** 2n, square], grain }
  }
  const one = vector(sums.presence, 2n, sums.items)
  if (sums.values === 0) return one
  const more = vector(sums.values, 4n, sums.items)
  return { none: plus(one.none, more.none), other: plus(one.other, more.other), grain: plus(one.grain, more.grain) }
}

/** Squares of mu of a history against none and against another one, and how coarse the noise is. */
export interface Cost {
  readonly none: number
  readonly other: number
  readonly grain: number
}

const NOTHING: Cost = { none: 0, other: 0, grain: 0 }

/** Return what a task costs a person of this wish (thousandths): the square of it counts. */
export function costOf(price: Price, wish: number): Cost {
  const right = Number.isInteger(wish) && wish >= 0 && wish <= WHOLE
  if (!right) throw new PrivacyError(`a wish is from 0 to ${WHOLE} thousandths`)
  const share: Fraction = [BigInt(wish) ** 2n * BigInt(UNIT), BigInt(WHOLE) ** 2n]
  // The noise stays as it is, so that its grain does.
  return { none: up(price.none, share), other: up(price.other, share), grain: up(price.grain, [BigInt(GRAIN_UNIT), 1n]) }
}

function up([a, b]: Fraction, [c, d]: Fraction): number {
  const found = (a * c + b * d - 1n) / (b * d)
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
 * Return the most that limits let through: rows of either sign cost four times as much against another history, and no
 * task of 20,000 items has noise that is coarser for what it costs.
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
  lines.filter(({ at }) => at > since).map(({ cost }) => cost).reduce((one, more) => ({
    none: one.none + more.none, other: one.other + more.other, grain: one.grain + more.grain,
  }), NOTHING)

/** Return the line of a report that is about to be made: in full, or of zeros. */
export function promise(
  limits: Limits, lines: readonly Line[], price: Price, wish: number,
  about: Pick<Line, 'at' | 'recommender' | 'task' | 'part'>,
): Line {
  const cost = costOf(price, wish)
  const month = total(lines, about.at - MONTH).none + cost.none
  const zeros = !(wish > 0 && month <= limits.month && total(lines).none + cost.none <= limits.life)
  return { ...about, price: costOf(price, WHOLE).none, wish, cost: zeros ? NOTHING : cost, zeros }
}
