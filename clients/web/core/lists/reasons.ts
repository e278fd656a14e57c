/**
 * Why an item is in somebody's list: the largest part of its score, as data. The app has the words.
 *
 * What is personal comes first where it is real: where it makes at least a tenth of all that raises
 * the item above what people choose in general. Titles are named only where the model says that
 * they go with the item.
 */

import type { Column, Feature } from './model.ts'

/** Why an item is in a list; the app has the words. */
export type Reason =
  /** The owner rated these, all of them highly or not. */
  | { readonly kind: 'own'; readonly items: readonly string[]; readonly highly: boolean }
  /** The owner chooses items like this more than most people do. */
  | { readonly kind: 'taste'; readonly features: readonly Feature[] }
  /** Many people choose it. */
  | { readonly kind: 'popularity' }
  /** The rating that the owner would probably give. */
  | { readonly kind: 'stars'; readonly stars: number }

/** The parts of the score of one item, less those of a usual one. */
export interface Parts {
  readonly popularity: number
  readonly certain: boolean
  readonly stars: number
  /** What each item that the owner rated adds; none for an item that does not go with others. */
  readonly own: readonly OwnPart[]
  readonly taste: readonly TastePart[]
}

/** What a rated item adds; one that is the item itself is no reason for it. */
export interface OwnPart {
  readonly item: string
  readonly highly: boolean
  readonly itself: boolean
  readonly part: number
}

/** What a feature adds, and whether the item has it and the owner chooses it. */
export interface TastePart {
  readonly column: Column
  readonly part: number
  readonly able: boolean
}

const REAL = 0.1
const MOST_NAMED = 2
const BESIDE = 0.25

const isPeriod = (column: Column): boolean => column.what === 'period'
const isSpecial = (column: Column): column is Feature =>
  column.what !== 'popularity' && column.what !== 'ratings'

const sum = (parts: readonly { readonly part: number }[]): number =>
  parts.reduce((all, { part }) => all + part, 0)

/** The few largest above zero, the largest first. */
const largest = <T extends { readonly part: number }>(parts: readonly T[]): T[] =>
  [...parts].sort((one, other) => other.part - one.part).slice(0, MOST_NAMED)
    .filter(({ part }) => part > 0)

/** Return the reason for an item; null where nothing sets it apart from a usual one. */
export function reasonOf(parts: Parts, expected: number, undated: boolean): Reason | null {
  const of = (what: string): number => sum(parts.taste.filter(({ column }) => column.what === what))
  // A taste for what many choose, or for what others rate highly, says nothing more than these do.
  const sizes = {
    own: sum(parts.own),
    popularity: parts.popularity + of('popularity'),
    taste: sum(parts.taste.filter(({ column }) => isSpecial(column))),
    stars: parts.stars + of('ratings'),
  }
  const least = REAL * Object.values(sizes).reduce((all, size) => all + Math.max(size, 0), 0)
  const personal = sizes.taste > sizes.own ? ['taste', 'own'] as const : ['own', 'taste'] as const
  for (const kind of personal) {
    if (sizes[kind] <= 0 || sizes[kind] < least) continue
    const reason = kind === 'own' ? ownReason(parts.own) : tasteReason(parts.taste, least, undated)
    if (reason !== null) return reason
  }
  const popular = parts.certain && Math.min(parts.popularity, sizes.popularity) > 0
  const good = Math.min(parts.stars, sizes.stars) > 0
  if (popular && !(good && sizes.stars > sizes.popularity)) return { kind: 'popularity' }
  return good ? { kind: 'stars', stars: expected } : null
}

function ownReason(own: readonly OwnPart[]): Reason | null {
  const named = largest(own.filter(({ itself }) => !itself))
  if (named.length === 0) return null
  return { kind: 'own', items: named.map(({ item }) => item), highly: named.every(({ highly }) => highly) }
}

/**
 * Name what the item has and the owner chooses, periods last; null where that is too little.
 *
 * All periods are one part, as an item has one of them.
 */
function tasteReason(taste: readonly TastePart[], least: number, undated: boolean): Reason | null {
  const able = taste.filter((each) => each.able && isSpecial(each.column))
  const [periods, others] = [true, false].map((wanted) =>
    able.filter(({ column }) => isPeriod(column) === wanted))
  const part = sum(taste.filter(({ column }) => isPeriod(column)))
  const dated = undated ? [] : periods.map((each) => ({ ...each, part }))
  const found = largest([...others, ...dated])
  const named = found.filter((each) => each.part >= BESIDE * found[0].part)
  if (named.length === 0 || sum(named) < least) return null
  const features = named.map(({ column }) => column as Feature)
  return { kind: 'taste', features: features.sort((one, other) => Number(isPeriod(one)) - Number(isPeriod(other))) }
}
