/**
 * What a device orders items by, all of it public: the arrays of a model, and features of items.
 *
 * The same as Python's (`model/{device_fit,taste,published_model}.py`, `spec/vectors/lists.json`).
 */

import { type Items, type Model, itemsOf, modelOf } from '../src/published.ts'
import type { Joined, State } from '../src/state.ts'
import { require } from '../src/documents.ts'
import type { Bytes } from '../src/platform.ts'
import { type Matrix, addSquare, dot, ofColumns, rowOf, total } from './algebra.ts'

/** What an item is like, as a taste is about it. */
export type Feature =
  | { readonly what: 'genre'; readonly name: string }
  | { readonly what: 'sequel' }
  /** Years, both of them counted; null: from the beginning, or until now. */
  | { readonly what: 'period'; readonly from: number | null; readonly to: number | null }

/** Columns of taste that say no more of an item than its popularity and stars do. */
export type Column = Feature | { readonly what: 'popularity' } | { readonly what: 'ratings' }

/** A matrix in 8 bits, with what 1 is in each column. */
export interface Compressed {
  readonly whole: Matrix
  readonly unit: Float64Array
}

/** A published model, ready to be fitted to somebody. */
export interface PublicModel {
  readonly ids: readonly string[]
  readonly positions: ReadonlyMap<string, number>
  readonly table: Items
  /** A prediction is the offset and the features times a vector of the owner's, in stars. */
  readonly features: Matrix
  readonly ridges: readonly number[]
  readonly offset: Float64Array
  readonly weight: Float64Array
  readonly logs: Float64Array
  /** Chosen more than a usual item, beyond what noise may have added. */
  readonly certain: readonly boolean[]
  readonly usual: number
  readonly columns: readonly Column[]
  readonly taste: Matrix
  /** Of items in what people choose; the mean features of that, and their spread. */
  readonly shares: Float64Array
  readonly mean: Float64Array
  readonly spread: Matrix
  readonly heads: Float64Array
  readonly encode: Compressed
  readonly decode: Compressed
}

const MOST_WORK = 2 ** 32
const FEWEST = 0.3
const NOISE = 0.8
const OWN_RIDGES = [5, 10, 15, 50, 30, 30]
const [GENRE_RIDGE, YEAR_RIDGES] = [12, [10, 20, 20]]
const UNKNOWN_YEAR = 1995
const FEWEST_SEQUELS = 10
const [EARLIEST, HALVES_FROM, LATEST] = [1930, 1990, 2000]
const SEQUEL = /(?<![\p{L}\p{N}_])(?:II|III|IV|V|VI|VII|VIII|[2-6])(?![\p{L}\p{N}_])/u

let last: { readonly name: string; readonly model: PublicModel } | null = null

/** Return the last model of a recommender; ProtocolError if its parts do not fit. */
export function publicModel(state: State, joined: Joined): PublicModel {
  const name = `${joined.model} ${joined.catalogue}`
  if (last?.name !== name) last = { name, model: read(state, joined) }
  return last.model
}

function read(state: State, joined: Joined): PublicModel {
  const document = modelOf(state, joined)
  const table = itemsOf(state, joined)
  // The items that there were when the model's run began.
  const count = table.versions.find(([digest]) => digest === document.catalogue)?.[1]
  require(count !== undefined, 'the model is about other items than those of the catalogue')
  const array = arraysIn(document, state)
  // Whoever publishes it may lie: what is too much for a phone is refused before it is made.
  const wide = new Set(table.genres.flat()).size + (document.arrays.stars?.shape[1] ?? 0) + OWN_RIDGES.length
  require(count * wide ** 2 <= MOST_WORK, 'the model has too many parts')
  const perItem = (name: string): Float64Array => {
    const { data, width } = array(name)
    require(width === 1 && data.length === count, `the model has not one ${name} per item`)
    return data
  }
  const [bias, variance, popularity] = ['bias', 'variance', 'popularity'].map(perItem)
  const margin = 'popularity-margin' in document.arrays ? perItem('popularity-margin') : null
  const heads = array('heads').data
  const ascending = heads.every((head, at) => head < count && (at === 0 || heads[at - 1] < head))
  const compressed = (name: string): Compressed => {
    const [whole, unit] = [array(name), array(`${name}-unit`)]
    require(ascending && whole.data.length === heads.length * whole.width &&
      unit.data.length === whole.width, 'the parts of the model do not fit each other')
    return { whole, unit: unit.data }
  }
  const [encode, decode] = [compressed('encode'), compressed('decode')]
  require(encode.whole.width === decode.whole.width, 'the parts of the model do not fit each other')

  const [stars, rest] = 'stars' in document.arrays
    ? [array('stars'), array('stars-rest').data]
    : [{ width: 0, data: new Float64Array(0) }, new Float64Array(heads.length)]
  require(stars.data.length === heads.length * stars.width && rest.length === heads.length,
    'the parts of the model do not fit each other')
  const similar = Array.from({ length: stars.width }, (_, place) => {
    const column = new Float64Array(count)
    heads.forEach((head, at) => { column[head] = stars.data[at * stars.width + place] })
    return column
  })
  heads.forEach((head, at) => { variance[head] += rest[at] })

  const chosen = popularity.map((each) => Math.max(each, FEWEST))
  const logs = chosen.map(Math.log)
  const given = featuresOf(table, count)
  const weights = popularity.map((each) => Math.max(each, 1e-6))
  const apart = centred(logs, weights).map((each) => each / 1.5)
  const features = [
    bias.map(() => 1), bias, apart, apart.map((each) => each * each),
    bias.map((each, at) => each * apart[at]), bias.map((each) => each * each),
    ...given.map(({ values }) => values), ...similar,
  ]
  const level = centred(logs, chosen)
  const width = Math.sqrt(dot(level.map((each) => each * each), chosen) / total(chosen))
  const columns: Named[] = [
    { column: { what: 'popularity' }, values: level.map((each) => each / Math.max(width, 1e-9)) },
    { column: { what: 'ratings' }, values: bias },
    ...given.some(({ feature }) => feature === 'year') ? periodsOf(table, count) : [],
    ...given.flatMap(({ feature, values }) =>
      feature === 'year' ? [] : [{ column: feature, values }]),
  ]
  const taste = ofColumns(columns.map(({ values }) => values), count)
  const shares = chosen.map((each) => each / total(chosen))
  const mean = new Float64Array(columns.length).map((_, place) => dot(shares, columns[place].values))
  const spread = { width: columns.length, data: new Float64Array(columns.length ** 2) }
  for (let item = 0; item < count; item++) {
    addSquare(spread, rowOf(taste, item).map((each, place) => each - mean[place]), shares[item])
  }
  const usual = dot(shares, logs)
  const ids = table.ids.slice(0, count)
  return {
    ids, table, usual, logs, taste, shares, mean, spread, heads, encode, decode,
    positions: new Map(ids.map((id, at) => [id, at])),
    features: ofColumns(features, count),
    ridges: [...OWN_RIDGES, ...given.map(({ ridge }) => ridge), ...similar.map(() => NOISE)],
    offset: bias.map((each) => document.mean + each),
    weight: variance.map((each) => NOISE / (NOISE + each)),
    certain: Array.from(popularity, (each, at) => each - (margin?.[at] ?? 0) > Math.exp(usual)),
    columns: columns.map(({ column }) => column),
  }
}

interface Named {
  readonly column: Column
  readonly values: Float64Array
}

interface Given {
  readonly feature: Feature | 'year'
  readonly values: Float64Array
  readonly ridge: number
}

/** Return public features, one number per item: genres, years, and sequels where there are some. */
function featuresOf({ genres, years, titles }: Items, count: number): Given[] {
  const column = (value: (item: number) => number): Float64Array =>
    Float64Array.from({ length: count }, (_, item) => value(item))
  const names = [...new Set(genres.slice(0, count).flat())]
    .filter((name) => name !== '' && name.toLowerCase() !== 'unknown').sort()
  const found: Given[] = names.map((name) => ({
    feature: { what: 'genre', name },
    values: column((item) => Number(genres[item].includes(name))),
    ridge: GENRE_RIDGE,
  }))
  if (years.slice(0, count).some((year) => year !== null)) {
    const parts = [
      (year: number) => year - UNKNOWN_YEAR,
      (year: number) => Math.max(1980 - year, 0),
      (year: number) => Math.max(year - 1990, 0),
    ]
    found.push(...parts.map((part, place): Given => ({
      feature: 'year',
      values: column((item) => part(years[item] || UNKNOWN_YEAR) / 10),
      ridge: YEAR_RIDGES[place],
    })))
  }
  const sequels = column((item) => Number(SEQUEL.test(titles[item] ?? '')))
  if (total(sequels) >= FEWEST_SEQUELS) {
    found.push({ feature: { what: 'sequel' }, values: sequels, ridge: GENRE_RIDGE })
  }
  return found
}

/** Decades, and halves of them from 1990 on. */
function periodsOf({ years }: Items, count: number): Named[] {
  const begins = Float64Array.from({ length: count }, (_, item) => {
    const year = years[item] || UNKNOWN_YEAR
    const length = year < HALVES_FROM ? 10 : 5
    return Math.min(Math.max(Math.floor(year / length) * length, EARLIEST), LATEST)
  })
  return [...new Set(begins)].sort((one, other) => one - other).map((begin) => ({
    column: {
      what: 'period',
      from: begin === EARLIEST ? null : begin,
      to: begin === LATEST ? null : begin + (begin < HALVES_FROM ? 9 : 4),
    },
    values: begins.map((each) => Number(each === begin)),
  }))
}

function centred(values: Float64Array, weights: Float64Array): Float64Array {
  const middle = dot(values, weights) / total(weights)
  return values.map((each) => each - middle)
}

/** Return what reads an array of a model by its name. */
function arraysIn(document: Model, state: State): (name: string) => Matrix {
  return (name) => {
    const described = document.arrays[name]
    require(described !== undefined, `the model has no array of ${name}`)
    const { kind, sha256, shape } = described
    return { width: shape[1] ?? 1, data: numbersIn(kind, state.files[sha256]) }
  }
}

const READERS: Record<string, readonly [number, (view: DataView, at: number) => number]> = {
  f2: [2, (view, at) => half(view.getUint16(at, true))],
  f4: [4, (view, at) => view.getFloat32(at, true)],
  u2: [2, (view, at) => view.getUint16(at, true)],
  u4: [4, (view, at) => view.getUint32(at, true)],
  i1: [1, (view, at) => view.getInt8(at)],
  i8: [8, (view, at) => Number(view.getBigInt64(at, true))],
}

function numbersIn(kind: string, data: Bytes): Float64Array {
  const [size, number] = READERS[kind]
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength)
  return Float64Array.from({ length: data.length / size }, (_, at) => number(view, at * size))
}

function half(bits: number): number {
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023]
  const size = exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25)
  return bits >> 15 ? -size : size
}
