/**
 * The person's ledger: what everything that was ever sent about its owner costs, and what may be.
 *
 * Amounts are squares of mu in billionths, whole numbers, rounded up, the same as Python's (`spec/vectors`). They
 * follow from a task's public numbers and the owner's wish alone; ratings play no part in what is let through.
 */

import { PrivacyError } from './documents.ts'
import type { Task } from './task.ts'

/** Amounts for a square of mu of 1. */
export const UNIT = 10 ** 9
const GRAIN_UNIT = 10 ** 15 // amounts for a grain of 1
/** Wishes and items' weights are in thousandths. */
export const WHOLE = 1000
/** Seconds. */
export const MONTH = 30 * 86_400

type Fraction = readonly [bigint, bigint]
/** What a task costs a person who lets all of it through, exactly. */
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
export type Cost = Readonly<Record<'none' | 'other' | 'grain', number>>
const NOTHING: Cost = { none: 0, other: 0, grain: 0 }

/** Return what a task costs a person of this wish (thousandths): the square of it counts. */
export function costOf(price: Price, wish: number): Cost {
  const right = Number.isInteger(wish) && wish >= 0 && wish <= WHOLE
  if (!right) throw new PrivacyError(`a wish is from 0 to ${WHOLE} thousandths`)
  const share: Fraction = [BigInt(wish) ** 2n * BigInt(UNIT), BigInt(WHOLE) ** 2n]
  const whole: Fraction = [BigInt(GRAIN_UNIT), 1n] // the noise stays as it is
  return { none: up(price.none, share), other: up(price.other, share), grain: up(price.grain, whole) }
}

function up([a, b]: Fraction, [c, d]: Fraction): number {
  const found = Number((a * c + b * d - 1n) / (b * d))
  if (!Number.isSafeInteger(found)) throw new PrivacyError('a cost is beyond counting')
  return found
}

/** The owner's limits, in amounts, for all recommenders together. */
export type Limits = Readonly<Record<'life' | 'month', number>>

/** Epsilon 2, 4 or 8 at delta 1e-5 for the whole life, and a quarter of its square in a month. */
export const LEVELS = {
  careful: { life: 251_554_096, month: 62_888_524 },
  middle: { life: 855_497_163, month: 213_874_290 },
  open: { life: 2_775_657_948, month: 693_914_487 },
} as const satisfies Record<string, Limits>

/** Return the most that limits let through, with rows of either sign and the coarsest noise of 20,000 items. */
export const worstWithin = ({ life }: Limits): Cost =>
  ({ none: life, other: 4 * life, grain: Math.ceil(0.11 * life) })

/** A report that this device has promised. Lines are only ever added. */
export interface Line {
  readonly at: number; readonly recommender: string
  /** The task's id in hexadecimal. */
  readonly task: string
  readonly part: 'linear' | 'pairs'
  /** For a person of the whole wish. */
  readonly price: number
  readonly wish: number; readonly cost: Cost
  /** The report was of zeros. */
  readonly zeros: boolean
}

/** Return the sum of what was charged; with `since` from then on, by the lines' own times. */
export const total = (lines: readonly Line[], since = -Infinity): Cost =>
  lines.filter(({ at }) => at > since).map(({ cost }) => cost).reduce((one, more) => ({
    none: one.none + more.none, other: one.other + more.other, grain: one.grain + more.grain,
  }), NOTHING)

/** Return the line of a report that is about to be made: in full, or of zeros; so is a second one of a task. */
export function promise(
  limits: Limits, lines: readonly Line[], price: Price, wish: number,
  about: Pick<Line, 'at' | 'recommender' | 'task' | 'part'>,
): Line {
  const cost = costOf(price, wish)
  const [month, life] = [total(lines, about.at - MONTH), total(lines)].map(({ none }) => none + cost.none)
  const first = lines.every(({ task }) => task !== about.task)
  const zeros = !(first && wish > 0 && month <= limits.month && life <= limits.life)
  return { ...about, price: costOf(price, WHOLE).none, wish, cost: zeros ? NOTHING : cost, zeros }
}

// A cost as a person reads it: the same numbers as Python's `accounting/person.py`, which says why, rounded up: by the
// Gaussian law and how far noise on a grid is from it, or by Rényi's divergence, whichever is less.

const [DELTA, CARE, RARE, SURE] = [1e-5, 1 + 1e-9, 1e-12, Math.log(99)]

/** What a cost tells of a person. */
export interface Risk {
  /** At delta 1e-5. */
  readonly epsilon: number
  /** How often a guess between the two histories is right, at most; a coin: 0.5. */
  readonly right: number
  /** The share of cases, at most, in which somebody could be 99 % sure. */
  readonly sure: number
}

/** Return what a cost tells: of a history against none, and against any other one. */
export function personOf(cost: Cost): { readonly none: Risk; readonly other: Risk } {
  const [none, other] = [cost.none, cost.other].map((each) => riskOf(each / UNIT / 2, cost.grain / GRAIN_UNIT))
  return { none, other }
}

/** Return a share in percent for people, to stand behind "at most": rounded up. */
export function percentOf(part: number): number {
  // Next to 50 and to 100 a tenth of a percent is what matters.
  const steps = part >= 0.55 && part < 0.95 ? 100 : 1000
  return (100 * Math.ceil(part * steps)) / steps
}

/** Return a share of cases in percent, in tenths and rounded up. */
export const shareOf = (part: number): number => Math.ceil(1000 * part) / 10

function riskOf(rho: number, grain: number): Risk {
  if (rho === 0) return { epsilon: 0, right: 0.5, sure: 0 }
  const mu = Math.sqrt(2 * rho)
  const exact = epsilonOf(rho, mu, grain)
  const factor = Math.exp(Math.min(far(grain), 1))
  const affinity = (1 + Math.sqrt(-Math.expm1(-rho / 2))) / 2
  // Noise on a grid has steps: an outcome stands for all within half of one.
  const root = Math.sqrt(grain)
  const level = SURE - 2 * far(grain) - mu * (2.15 * Math.sqrt(root) + (root * (3 * mu + 32)) / 24)
  const sure = below((rho - level) / mu) + below((-rho - level) / mu)
  const markov = 1.02 * Math.exp(-(Math.max(0, SURE - rho) ** 2) / (4 * rho))
  return {
    epsilon: (grain > 0 ? Math.min(exact, byRenyi(rho)) : exact) * CARE,
    right: Math.min(below(mu / 2) * factor + RARE, affinity, 1) * CARE,
    sure: Math.min(1, markov, (grain > 0 ? (sure * factor) / (1 - 1e-4) + 4 * RARE : sure) * CARE),
  }
}

/** How far the logarithms of the two laws of all noise are apart, but for e^(-30 - epsilon). */
const far = (grain: number, epsilon = 0): number =>
  (Math.sqrt(grain) * (Math.sqrt(30 + epsilon) + 30 + epsilon)) / 12 + 11 * grain

/** Return where the Gaussian's exact delta, with what its grain adds, meets delta. */
function epsilonOf(rho: number, mu: number, grain: number): number {
  const enough = (epsilon: number): boolean => {
    const apart = far(grain, epsilon)
    if (apart > 1 || epsilon < 2 * apart) return false
    return Math.exp(apart) * deltaOf(mu, epsilon - 2 * apart) + (grain > 0 ? RARE : 0) <= DELTA
  }
  let [low, high] = [0, rho + mu * Math.sqrt(2 * Math.log(1 / DELTA)) + 1]
  if (enough(low)) return low
  high += 2 * far(grain, 2 * high)
  if (!enough(high)) return Infinity
  while (high - low > 1e-11 * Math.max(1, high)) {
    const middle = (low + high) / 2
    ;[low, high] = enough(middle) ? [low, middle] : [middle, high]
  }
  return high
}

/** Return the least over orders of what each of them proves, by thirds. */
function byRenyi(rho: number): number {
  const bound = (logGap: number): number => {
    const gap = Math.exp(logGap)
    return (1 + gap) * rho + Math.log(gap / (1 + gap)) - Math.log((1 + gap) * DELTA) / gap
  }
  let [low, high] = [-12, 24]
  for (let step = 0; step < 120; step++) {
    const third = (high - low) / 3
    ;[low, high] = bound(low + third) < bound(high - third) ? [low, high - third] : [low + third, high]
  }
  return Math.max(0, bound((low + high) / 2))
}

/** The exact delta of a Gaussian release (Balle and Wang 2018). */
function deltaOf(mu: number, epsilon: number): number {
  const near = mu / 2 - epsilon / mu
  return Math.max(0, below(near) - density(near) * mills(mu / 2 + epsilon / mu))
}

const density = (x: number): number => Math.exp(-(x * x) / 2) / Math.sqrt(2 * Math.PI)

/** How often a standard normal is at most x. */
function below(x: number): number {
  if (x < -2) return density(x) * mills(-x)
  if (x > 2) return 1 - below(-x)
  let [term, sum] = [x, x]
  for (let odd = 3; odd < 100; odd += 2) sum += term *= (x * x) / odd
  return 0.5 + density(x) * sum
}

/** Tail over density of the standard normal, by Laplace's continued fraction. */
function mills(x: number): number {
  if (x < 2) return below(-x) / density(x)
  let fraction = x
  for (let step = 100; step > 0; step--) fraction = x + step / fraction
  return 1 / fraction
}
