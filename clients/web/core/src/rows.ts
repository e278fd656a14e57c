/**
 * The owner's row for a task: whole numbers made of ratings, wishes and public parameters.
 *
 * The same numbers as Python's (`privacy/pairs.py`, `spec/vectors/rows.json`): every step is either on whole numbers or
 * one that IEEE 754 defines to the bit, in the same order.
 */

import { WHOLE } from './ledger.ts'
import type { Items } from './published.ts'
import { type Sums, entriesOf } from './task.ts'

const KAPPA_OF_VALUES = 2
const STEP = 2 ** 32
const [HEIGHT, WISH, MIDDLE, OWN_MEAN, REACH, GAIN, MEAN_ENTRY] = [16, 1024, 3, 4, 1.5, 1.5, 128]

/** A rating of an item that the catalogue has, in stars from 1 to 5; its weight in thousandths. */
export type Starred = Readonly<Record<'position' | 'stars' | 'weight', number>>
type Scale = Pick<Items, 'scale_low' | 'scale_high' | 'scale_step'>

/** Tell whether items are chosen and not rated. */
export const isChosen = ({ scale_low, scale_high, scale_step }: Scale): boolean =>
  scale_low === 0 && scale_high === 1 && scale_step === null

/** Return a rating on any scale as one to five stars. */
export const toStars = (value: number, scale: Scale): number => (isChosen(scale) ? 5
  : (value - Math.fround(scale.scale_low)) * Math.fround(4 / (scale.scale_high - scale.scale_low)) + 1)

/** Return the owner's row; ratings are in the order of their items, and have weights above 0. */
export function rowOf(sums: Sums, rated: readonly Starred[], wish: number): number[] {
  const row: number[] = Array(entriesOf(sums)).fill(0)
  const beta = wish / WHOLE
  if (sums.type === 'pairs') {
    const places = new Map(sums.heads.map((position, place) => [position, place]))
    const kept = rated.filter((each) => places.has(each.position))
    const gammas = kept.map((each) => each.weight / WHOLE)
    const reach = Math.sqrt(beta * (1 / sums.cap) * sums.bound)
    const caps = gammas.map((gamma) => Math.floor(gamma * reach))
    const weights = kept.map((each, at) => {
      const height = nearest(HEIGHT * (each.stars - 0.5))
      return nearest(gammas[at] * height) * sums.weights[places.get(each.position) as number]
    })
    filled(weights, caps, Math.floor(beta * sums.bound)).forEach((entry, at) => {
      row[places.get(kept[at].position) as number] = entry
    })
    return row
  }
  const gammas = rated.map((each) => each.weight / WHOLE)
  const limit = Math.floor(beta * beta * sums.bound)
  const weights = gammas.map((gamma) => nearest(gamma * WISH))
  const linear = (kappa: number): [number[], number[]] => {
    const reach = Math.sqrt(kappa * sums.bound)
    const caps = gammas.map((gamma) => Math.floor(gamma * beta * reach))
    return [caps, filled(weights, caps, limit)]
  }
  linear(1 / sums.cap)[1].forEach((entry, at) => { row[rated[at].position] = entry })
  if (sums.values > 0) {
    const own = sum(rated.map((each, at) => gammas[at] * (each.stars - MIDDLE)))
    const mean = own / (sum(gammas) + OWN_MEAN)
    const [caps, entries] = linear(1 / sums.cap / KAPPA_OF_VALUES)
    const values = rated.map((each, at) => {
      const off = clipped((each.stars - MIDDLE - mean) / REACH, 1)
      return clipped(GAIN * off * entries[at], caps[at])
    })
    const room = beta * Math.sqrt(sums.bound - MEAN_ENTRY ** 2)
    const length = Math.sqrt(sum(values.map((value) => value * value)))
    const shorter = Math.min(1, room / Math.max(length, 1e-9))
    values.forEach((value, at) => { row[sums.items + rated[at].position] = Math.trunc(value * shorter) + 0 })
    row[row.length - 1] = Math.trunc((mean / 2) * beta * MEAN_ENTRY) + 0
  }
  return row
}

const sum = (values: readonly number[]): number => values.reduce((all, each) => all + each, 0)
const clipped = (value: number, most: number): number => Math.min(Math.max(value, -most), most)

/** Return the nearest whole number, of two the even one. */
function nearest(value: number): number {
  const below = Math.floor(value)
  const rest = value - below
  return below + Number(rest > 0.5 || (rest === 0.5 && below % 2 === 1))
}

/**
 * Return entries that grow together until the next unit would be too much. At time t an entry is
 * `min(cap, t weight / 2^32)`, rounded down; units that come at the same time come in the order of the row.
 */
function filled(given: readonly number[], caps: readonly number[], limit: number): number[] {
  const weights = given.map((weight) => Math.max(weight, 1))
  const at = (time: number): number[] => {
    const [upper, lower] = [Math.floor(time / STEP), time % STEP]
    // Both products are below 2^53.
    return weights.map((weight, place) => Math.min(caps[place], upper * weight + Math.floor((lower * weight) / STEP)))
  }
  const squares = (entries: readonly number[]): number => sum(entries.map((each) => each * each))
  const full = weights.map((weight, place) => Math.ceil((caps[place] * STEP) / weight))
  let [low, high] = [0, 1 + full.reduce((late, each) => Math.max(late, each), 0)]
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2)
    ;[low, high] = squares(at(middle)) <= limit ? [middle, high] : [low, middle]
  }
  const [entries, after] = [at(low), at(high)]
  let room = limit - squares(entries)
  return entries.map((entry, place) => {
    if (after[place] <= entry) return entry
    room -= 2 * entry + 1
    return room >= 0 ? after[place] : entry
  })
}
