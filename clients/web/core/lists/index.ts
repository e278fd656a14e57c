/**
 * The owner's lists and stars, from a published model and their own ratings. Nothing is sent.
 *
 * The same order and numbers as Python's `hdpmf.private.device.lists`, by `spec/vectors/lists.json`.
 */

import { type State, of } from '../src/state.ts'
import { addSquare, dot, rowOf, solved, total } from './algebra.ts'
import { type Compressed, type Feature, type PublicModel, publicModel } from './model.ts'
import { type Parts, type Reason, reasonOf } from './reasons.ts'

export type { Feature, Reason }

/** What items have to be like; all of it has to hold. */
export interface Filter {
  /** At least one of these. */
  readonly genres?: readonly string[]
  /** None of these. */
  readonly notGenres?: readonly string[]
  /** This year or later; an item without a year is in no range. */
  readonly fromYear?: number
  readonly toYear?: number
  /** Known to be suitable for one of these. */
  readonly audiences?: readonly string[]
}

/** What is asked of `Lists.recommend`. */
export interface Asked {
  readonly n: number
  /** Keep what the owner has rated. */
  readonly keepRated?: boolean
  readonly only?: Filter
  /** Items that the owner does not want to see. */
  readonly hidden?: ReadonlySet<string>
}

/** An item of a list. */
export interface Recommended {
  readonly item: string
  readonly position: number
  /** By this the list is ordered: the higher, the sooner the owner would choose and like it. */
  readonly score: number
  /** The rating that is expected, on the catalogue's scale. */
  readonly stars: number
  readonly reason: Reason | null
}

const [LIKE, TASTE_RIDGE] = [0.25, 10]
const [FEW, HIGH] = [10, 4]
const HOUR = 3600
const [SECONDS, POWER, LEAST] = [10, 0.75, 0.05]
const AFTER_PAUSE = 0.5

interface Own {
  readonly item: string
  readonly position: number
  readonly stars: number
  readonly at: number
  /** How far above the lowest the rating is, and less for one that is not fresh. */
  readonly counts: number
}

/** A published model, fitted to the owner's ratings as they are now. PRIVATE. */
export class Lists {
  private readonly own: readonly Own[]
  private readonly low: number
  private readonly high: number
  private readonly means: number
  private readonly fitted: Float64Array
  /** What each item's predicted rating adds to its score. */
  private readonly like: Float64Array
  private readonly taste: Float64Array
  private readonly leaning: Float64Array
  /** What each rating of a head adds to each head, less the mean over them. */
  private readonly together: readonly { readonly own: Own; readonly parts: Float64Array }[]
  private readonly scores: Float64Array

  private constructor(private readonly model: PublicModel, state: State, address: string, now: number) {
    const { table, positions, features, offset } = model
    this.low = table.scale_low
    this.high = table.scale_high
    const rated = Object.entries(state.ratings[address] ?? {})
      .filter(([item]) => positions.has(item))
    const values = rated.map(([, { value }]) => Math.fround(value))
    this.means = values.length > 0 ? total(values) / values.length : (this.low + this.high) / 2
    // A list changes with a rating or with an hour, and not in between.
    const last = rated.reduce((late, [, { at }]) => Math.max(late, at), -Infinity)
    const asked = Math.max(last, Math.floor(now / HOUR) * HOUR)
    const aged = (at: number): number => (1 + Math.max(asked - at, 0) / SECONDS) ** -POWER
    this.own = rated.map(([item, { at }], place) => {
      const stars = this.starsOf(values[place])
      const fresh = Math.max(aged(at) / aged(last), LEAST)
      return { item, at, stars, position: positions.get(item) as number, counts: (stars - 1) * fresh }
    })
    this.fitted = this.fit()
    this.like = offset.map((each, item) =>
      LIKE * this.starsOf(this.onScale(each + dot(rowOf(features, item), this.fitted))))
    ;[this.taste, this.leaning] = this.tasteOf(asked - last >= HOUR ? AFTER_PAUSE : 1)
    this.together = this.pairs()
    this.scores = this.like.map((like, item) =>
      model.logs[item] + like + dot(rowOf(model.taste, item), this.taste))
    for (const { parts } of this.together) {
      model.heads.forEach((head, place) => { this.scores[head] += parts[place] })
    }
  }

  /** Fit the last model of a recommender to the owner's ratings; null if none has come yet. */
  static of(state: State, address: string, now: number): Lists | null {
    const joined = of(state, address)
    if (joined.model === '') return null
    return new Lists(publicModel(state, joined), state, address, now)
  }

  /** Return the items that the owner would soonest choose and like, best first. */
  recommend({ n, keepRated = false, only = {}, hidden = new Set() }: Asked): Recommended[] {
    const { ids, table } = this.model
    const left = new Set(keepRated ? [] : this.own.map(({ position }) => position))
    const able = [...ids.keys()].filter((position) => !left.has(position) &&
      !table.retired.has(position) && !hidden.has(ids[position]) && this.passes(position, only))
    return able.sort((one, other) => this.scores[other] - this.scores[one] || one - other)
      .slice(0, n).map((position) => this.told(position))
  }

  /** Return the ratings that the owner would give these items; their own mean where one is unknown. */
  predict(items: readonly string[]): number[] {
    return items.map((item) => this.expected(this.model.positions.get(item)))
  }

  /**
   * Return titles that are really well known, the best known first: those that are chosen more than
   * a usual one beyond what noise may have added. There are none where the estimate does not say.
   */
  wellKnown(n: number): string[] {
    const { ids, certain, logs, table } = this.model
    return [...ids.keys()].filter((position) => certain[position] && !table.retired.has(position))
      .sort((one, other) => logs[other] - logs[one] || one - other)
      .slice(0, n).map((position) => ids[position])
  }

  /** What filters can ask for. */
  get choices(): { readonly genres: string[]; readonly decades: number[]; readonly audiences: string[] } {
    const { genres, years, audiences } = this.model.table
    const different = <T>(values: readonly T[]): T[] => [...new Set(values)]
    const dated = years.filter((year) => year !== null)
    return {
      genres: different(genres.flat()).filter((name) => name !== '').sort(),
      decades: different(dated.map((year) => Math.floor(year / 10) * 10)).sort((a, b) => a - b),
      audiences: different(audiences).filter((name) => name !== '').sort(),
    }
  }

  private passes(position: number, only: Filter): boolean {
    const { table } = this.model
    const [own, year] = [table.genres[position] ?? [], table.years[position] ?? null]
    const { genres = [], notGenres = [], audiences = [], fromYear, toYear } = only
    const ranged = fromYear !== undefined || toYear !== undefined
    return (genres.length === 0 || genres.some((name) => own.includes(name))) &&
      !notGenres.some((name) => own.includes(name)) &&
      (audiences.length === 0 || audiences.includes(table.audiences[position] ?? '')) &&
      (!ranged || (year !== null && year >= (fromYear ?? -Infinity) && year <= (toYear ?? Infinity)))
  }

  private told(position: number): Recommended {
    const { ids, table, logs, usual, certain, shares, columns, taste, mean } = this.model
    const stars = this.expected(position)
    const place = this.model.heads.indexOf(position)
    const row = rowOf(taste, position)
    const parts: Parts = {
      popularity: logs[position] - usual,
      certain: certain[position],
      stars: this.like[position] - dot(shares, this.like),
      own: place < 0 ? [] : this.together.map(({ own, parts: each }) =>
        ({ item: own.item, highly: own.stars >= HIGH, part: each[place], itself: own.position === position })),
      taste: columns.map((column, at) => ({
        column,
        part: (row[at] - mean[at]) * this.taste[at],
        able: row[at] !== 0 && this.leaning[at] * (row[at] - mean[at]) > 0,
      })),
    }
    const undated = (table.years[position] ?? null) === null && table.years.some((year) => year !== null)
    const reason = reasonOf(parts, stars, undated)
    return { item: ids[position], position, score: this.scores[position], stars, reason }
  }

  private expected(position: number | undefined): number {
    const { features, offset } = this.model
    if (position === undefined) return this.means
    return this.onScale(offset[position] + dot(rowOf(features, position), this.fitted))
  }

  /** A rating on the catalogue's scale as one to five stars. */
  private starsOf(value: number): number {
    const apart = Math.fround(value - Math.fround(this.low))
    return Math.fround(Math.fround(apart * Math.fround(4 / (this.high - this.low))) + 1)
  }

  private onScale(stars: number): number {
    const value = this.low + ((stars - 1) * (this.high - this.low)) / 4
    return Math.min(Math.max(value, this.low), this.high)
  }

  /** Return the owner's vector: a ridge regression of stars on what is public of items. */
  private fit(): Float64Array {
    const { features, ridges, offset, weight } = this.model
    const { width } = features
    const square = { width, data: new Float64Array(width * width) }
    ridges.forEach((ridge, at) => { square.data[at * width + at] = ridge })
    const right = new Float64Array(width)
    for (const { position, stars } of this.own) {
      const row = rowOf(features, position)
      addSquare(square, row, weight[position])
      const target = weight[position] * (stars - offset[position])
      row.forEach((each, at) => { right[at] += target * each })
    }
    return solved(square, right)
  }

  /**
   * Return the owner's taste, and how much more of each feature they choose than people in general:
   * one step of a logistic choice model, through the covariance of what people choose.
   */
  private tasteOf(lasting: number): [Float64Array, Float64Array] {
    const { taste, mean, spread } = this.model
    const { width } = taste
    const all = this.own.reduce((sum, { counts }) => sum + counts, 0)
    const leaning = new Float64Array(width)
    if (all <= 0) return [leaning, leaning] // who rated everything lowest has said nothing of taste
    for (const { position, counts } of this.own) {
      rowOf(taste, position).forEach((each, at) => { leaning[at] += (counts / all) * (each - mean[at]) })
    }
    const count = this.own.length
    const square = { width, data: spread.data.map((each) => count * each) }
    for (let at = 0; at < width; at++) square.data[at * width + at] += TASTE_RIDGE
    return [solved(square, leaning).map((each) => count * lasting * each), leaning]
  }

  /** Return what ratings of heads add to heads: in deviations, more of them for who rated many. */
  private pairs(): { own: Own; parts: Float64Array }[] {
    const { heads, encode, decode } = this.model
    const places = new Map(Array.from(heads, (head, place) => [head, place]))
    const found = this.own.filter(({ position }) => places.has(position)).map((own) => {
      const latent = unpacked(encode, places.get(own.position) as number)
        .map((each, at) => own.counts * each * decode.unit[at])
      const parts = heads.map((_, place) => dot(rowOf(decode.whole, place), latent))
      const middle = total(parts) / parts.length
      return { own, parts: parts.map((each) => each - middle) }
    })
    if (found.length === 0) return []
    const sums = found[0].parts.map((_, place) => found.reduce((all, { parts }) => all + parts[place], 0))
    const deviation = Math.sqrt(dot(sums, sums) / sums.length)
    const weight = Math.min(127 * Math.max(0, ...decode.unit), 1)
    const trust = weight * Math.sqrt(found.length / (found.length + FEW))
    const factor = deviation > 0 ? trust / deviation : 0
    return found.map(({ own, parts }) => ({ own, parts: parts.map((each) => factor * each) }))
  }
}

const unpacked = ({ whole, unit }: Compressed, row: number): Float64Array =>
  rowOf(whole, row).map((each, at) => each * unit[at])
