import { describe, expect, test } from 'vitest'

import { type Feature, type Filter, Lists, type Reason } from '../lists/index.ts'
import { fileDigest } from '../src/documents.ts'
import { LEVELS, type State, join, newState, rate } from '../src/index.ts'
import { type Entry, bytes, ours, read } from './files.ts'

const ADDRESS = 'https://films.example'
const { now, worlds } = read(ours(), 'lists.json')
const { known } = read(ours('wire'), 'documents.json')

const unpacked = (text: string) => new Uint8Array(Buffer.from(text, 'base64'))

/** A device that has joined, with what was published. */
function stateOf(world: Entry, rated: Entry[]): State {
  const files = [bytes(world.catalogue), bytes(world.model), ...world.arrays.map(unpacked)]
  const names = files.map(fileDigest)
  const fresh = join(newState(LEVELS.middle), { address: ADDRESS, authority: '', name: '', servers: known.servers })
  const joined = { ...fresh.joined[0], catalogue: names[0], model: names[1], arrays: names.slice(2) }
  const state = { ...fresh, joined: [joined], files: Object.fromEntries(names.map((name, at) => [name, files[at]])) }
  return rated.reduce(
    (all, [item, value, at]) => rate(all, ADDRESS, item, { value, weight: 1000, at }), state as State)
}

const filterOf = (only: Entry): Filter => Object.fromEntries(Object.entries({
  genres: only.genres, notGenres: only.not_genres, fromYear: only.from_year, toYear: only.to_year, audiences: only.audience,
}).filter(([, value]) => value !== undefined))

/** Python's words. */
function inWords(reason: Reason | null, titleOf: (item: string) => string): string | null {
  if (reason === null) return null
  switch (reason.kind) {
    case 'own': {
      const named = [...new Set(reason.items.map(titleOf))].join(' and ')
      return `because you rated ${named}${reason.highly ? ' highly' : ''}`
    }
    case 'popularity': return 'many people choose it'
    case 'stars': return `you would probably give it ${reason.stars.toFixed(1)}`
    case 'taste': {
      const words = reason.features.map(inWord).join(', ')
      if (reason.features.every(({ what }) => what === 'period')) return `from ${words}, which you choose more than most`
      return `your ${reason.features.every(({ what }) => what === 'genre') ? 'genres' : 'taste'}: ${words}`
    }
  }
}

function inWord(feature: Feature): string {
  if (feature.what === 'genre') return feature.name
  if (feature.what === 'sequel') return 'sequel'
  const { from, to } = feature
  if (from === null || to === null) return from === null ? `before ${to as number + 1}` : `${from} or later`
  const half = to - from === 9 ? '' : from % 10 === 0 ? 'early ' : 'late '
  return `the ${half}${Math.floor(from / 10) * 10}s`
}

describe.each<Entry>(worlds)('lists of $name', (world: Entry) => {
  const { ids, titles } = JSON.parse(world.catalogue).table
  const titleOf = (item: string): string => titles[ids.indexOf(item)] || `item ${item}`

  test.each<Entry>(world.people)('are Python’s: $rated', (given: Entry) => {
    const lists = Lists.of(stateOf(world, given.rated), ADDRESS, now) as Lists
    const found = lists.recommend({
      n: 12, keepRated: given.keep_rated, only: filterOf(given.only),
    })
    expect(found.map(({ item }) => item)).toEqual(given.list.map(([item]: Entry) => item))
    found.forEach(({ item, position, score, stars, reason }, at) => {
      const [, expectedScore, expectedStars, words] = given.list[at]
      expect(ids[position]).toBe(item)
      expect(Math.abs(score - expectedScore), item).toBeLessThan(1e-4)
      expect(Math.abs(stars - expectedStars), item).toBeLessThan(1e-4)
      expect(inWords(reason, titleOf)).toBe(words)
    })
    lists.predict([...ids, 'no item']).forEach((stars, at) => {
      expect(Math.abs(stars - given.predicted[at])).toBeLessThan(1e-4)
    })
  })

  test('begin with titles that are really well known', () => {
    const lists = Lists.of(stateOf(world, []), ADDRESS, now) as Lists
    expect(lists.wellKnown(1000)).toEqual(world.well_known)
    expect(lists.wellKnown(3)).toEqual(world.well_known.slice(0, 3))
  })
})

test('what is hidden, retired or of another audience is in no list', () => {
  const [world] = worlds
  const lists = Lists.of(stateOf(world, []), ADDRESS, now) as Lists
  const [first, second] = lists.recommend({ n: 2 }).map(({ item }) => item)
  const items = lists.recommend({ n: 1000, hidden: new Set([first]) }).map(({ item }) => item)
  expect(items[0]).toBe(second)
  const { table, links } = JSON.parse(world.catalogue)
  expect(links[1].retired).toEqual([1, 5])
  // The last item came after the model.
  expect(items.length).toBe(table.ids.length - 1 - 2 - 1)
  expect(lists.recommend({ n: 9, only: { audiences: ['G'] } })).toEqual([])
  expect(lists.choices.genres).toContain('New')
  expect(lists.choices.decades).toEqual([...lists.choices.decades].sort())
})

test('there are no lists before a model has come, and none of parts that do not fit', () => {
  const [world] = worlds
  const state = stateOf(world, [])
  expect(Lists.of({ ...state, joined: [{ ...state.joined[0], model: '' }] }, ADDRESS, now)).toBeNull()
  const other = { ...world, model: world.model.replace(/"catalogue":"[^"]*"/, '"catalogue":"x"') }
  expect(() => Lists.of(stateOf(other, []), ADDRESS, now)).toThrow(/other items/)
  const swapped = { ...world, model: world.model.replace('"variance":', '"variants":') }
  expect(() => Lists.of(stateOf(swapped, []), ADDRESS, now)).toThrow(/variance/)
})
