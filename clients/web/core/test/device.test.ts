import { describe, expect, test } from 'vitest'

import { answered, decide } from '../src/decide.ts'
import { readDocument, toHex } from '../src/documents.ts'
import { type Risk, percentOf, personOf, priceOf, promise, shareOf, total } from '../src/ledger.ts'
import { type Published, readIndex } from '../src/published.ts'
import { rowOf, toStars } from '../src/rows.ts'
import { Device } from '../src/device.ts'
import { type Joined, type State, join, newState, rate } from '../src/state.ts'
import { ownRow } from '../src/seal.ts'
import { MemoryStore } from '../src/store.ts'
import { circuitOf, readTask } from '../src/task.ts'
import { type Entry, ours, read, unhex } from './files.ts'

const NAMES = {
  keysDigest: 'keys_digest', tokenAt: 'token_at', reportAt: 'report_at',
} as Record<string, string>

const plainAnswer = (answer: NonNullable<Joined['answer']>): Entry =>
  Object.fromEntries(Object.entries(answer).filter(([name]) => name !== 'document').map(
    ([name, value]) => [NAMES[name] ?? name, value instanceof Uint8Array ? toHex(value) : value]))

const plain = (state: State): Entry => ({
  seed: toHex(state.seed),
  ledger: state.ledger,
  joined: state.joined.map((each) => ({
    address: each.invitation.address,
    enrolled: each.enrolled,
    enrol_at: each.enrolAt,
    catalogue: each.catalogue,
    model: each.model,
    arrays: each.arrays,
    keys: each.keys.map(toHex),
    keys_digest: each.keysDigest,
    answer: each.answer && plainAnswer(each.answer),
    seen: each.seen,
    refused: each.refused,
    read: each.read,
  })),
  files: Object.keys(state.files).sort(),
})

const seenIn = (given: Entry): Published => ({
  index: readIndex(new TextEncoder().encode(given.index)),
  files: new Map(Object.entries<string>(given.files).map(([name, data]) => [name, unhex(data)])),
  read: given.read,
})

describe('a device decides as Python does', () => {
  test.each<Entry>(read(ours(), 'decide.json').cases)('$name',
    async ({ name, ...story }: Entry) => {
      const { begin } = story
      const fresh = { ...newState(begin.limits, begin.wish), seed: unhex(begin.seed) }
      const joined = join(fresh, begin.invitation)
      let state: State = { ...joined, joined: [{ ...joined.joined[0], enrolled: begin.enrolled }] }
      let sending: readonly Entry[] = []
      for (const step of story.steps) {
        if (step.answered) {
          state = answered(state, sending[0], step.now, step.status, unhex(step.token)).state
        } else {
          const seen = new Map<string, Published>()
          if (step.published) seen.set(begin.invitation.address, seenIn(step.published))
          const decision = await decide(state, seen, step.now)
          state = decision.state
          sending = decision.sending
          expect(sending.map((each) => ({ ...each, task: toHex(each.task) }))).toEqual(step.sending)
          const rule = Number(name[0])
          if (rule > 0) {
            const why = decision.said.map((each) => (each.what === 'refused' ? each.why : ''))
            expect(why).toEqual([`rule ${rule}`])
          }
        }
        expect(plain(state)).toEqual(step.state)
      }
    })
})

test('rows are the same whole numbers as Python’s', () => {
  const { cases } = read(ours(), 'rows.json')
  for (const { sums, scale, rated, wish, row } of cases) {
    const starred = rated.map(([position, value, weight]: number[]) =>
      ({
        position, weight,
        stars: toStars(value, { scale_low: scale.low, scale_high: scale.high, scale_step: scale.step }),
      }))
    const found = rowOf(sums, starred, wish)
    expect(Object.fromEntries(found.flatMap((each, at) => (each ? [[String(at), each]] : [])))).toEqual(row)
  }
  expect(cases.length).toBe(60)
})

test('nothing that is rated keeps a report from being made', () => {
  const { begin, steps } = read(ours(), 'decide.json').cases[0]
  const { index, files } = steps.find((each: Entry) => each.published).published
  const catalogue = JSON.parse(index).catalogue
  const fresh = join(newState(begin.limits), begin.invitation)
  const address = begin.invitation.address
  const state = { ...fresh, joined: [{ ...fresh.joined[0], catalogue }], files: { [catalogue]: unhex(files[catalogue]) } }
  const ids = JSON.parse(new TextDecoder().decode(unhex(files[catalogue]))).table.ids
  const [task] = Object.values<string>(files).map(unhex).flatMap((data) => {
    try { return [readTask(data)] } catch { return [] }
  })
  for (const value of [1e300, -1e300, 7, 0, 3.3]) {
    const rated = ids.reduce((all: State, item: string) => rate(all, address, item, { value, weight: 999.5, at: 0 }), state)
    const row = ownRow(rated, rated.joined[0], task, false)
    expect(row.every(Number.isInteger)).toBe(true)
    expect(circuitOf(task).encode(row)).toBeDefined()
  }
  for (const bad of [{ value: NaN, weight: 1 }, { value: 3, weight: 1001 }, { value: 3, weight: -1 }]) {
    expect(() => rate(state, address, ids[0], { ...bad, at: 0 })).toThrow(/a rating is a number/)
  }
})

test('the ledger’s histories come to the same numbers as Python’s', () => {
  const { cases } = read(ours(), 'ledger.json')
  for (const { limits, asked, expected } of cases) {
    const lines: ReturnType<typeof promise>[] = []
    for (const one of asked) {
      const price = priceOf({ sums: { ...one, type: one.part, heads: Array(one.heads) } })
      const about = { at: one.at, recommender: 'a', task: String(lines.length), part: one.part }
      lines.push(promise(limits, lines, price, one.wish, about))
    }
    expect(lines.map(({ price, zeros, cost }) => ({ price, zeros, ...cost }))).toEqual(expected.lines)
    expect(total(lines)).toEqual(expected.total)
  }
  expect(cases.length).toBe(240)
})

test('what a cost tells of a person is as Python’s accounting says', () => {
  const { cases } = read(ours(), 'person.json')
  for (const { cost, ...expected } of cases) {
    const found = personOf(cost)
    for (const name of ['none', 'other'] as const) {
      const { words, ...numbers } = expected[name]
      for (const [what, number] of Object.entries<number>(numbers)) {
        const ours = found[name][what as keyof Risk]
        expect(Math.abs(ours - number), `${what} of ${JSON.stringify(cost)}`).toBeLessThanOrEqual(1e-8 * number)
      }
      expect(`${percentOf(found[name].right)} %`).toBe(words)
    }
  }
  expect(cases.length).toBeGreaterThan(150)
  expect([0.0011, 0.5, 1e-9].map(shareOf)).toEqual([0.2, 50, 0.1])
})

test('a document has one spelling', () => {
  const readNumber = (text: string): unknown =>
    readDocument((value) => value, new TextEncoder().encode(text))
  for (const good of ['{"a":1,"b":[1e-7,1e+21,"é"]}', '{"version":2}']) readNumber(good)
  for (const bad of ['{"b":1,"a":1}', '{"a":1,"a":1}', '{"a": 1}', '{"a":1.0}', '{"a":-0}',
    '{"a":"\\u00e9"}', '{"a":1}\n', '\ufeff{"a":1}', '{"a":1e21}']) {
    expect(() => readNumber(bad), bad).toThrow(/refused/)
  }
})

test('what was read is kept when the owner changes something meanwhile', async () => {
  const { begin, steps } = read(ours(), 'decide.json').cases[0]
  const step = steps.find((each: Entry) => each.published)
  const { index, files } = step.published
  const address = begin.invitation.address
  const store = new MemoryStore()
  const commit = store.commit.bind(store)
  const carrier = {
    async read(url: string) {
      const digest = /-([\w-]{43})\.\w+$/.exec(url)?.[1]
      return digest === undefined ? new TextEncoder().encode(index) : unhex(files[digest])
    },
    async date() { return null },
    async send() { throw new Error('nothing is due') },
  }
  const fresh = { ...newState(begin.limits, begin.wish), seed: unhex(begin.seed) }
  const device = await Device.open({ store, carrier, now: () => step.now }, join(fresh, begin.invitation))
  store.commit = async (next, expected) => {
    store.commit = commit
    await device.change((state) => rate(state, address, 'a', { value: 5, weight: 1000, at: step.now }))
    return commit(next, expected)
  }
  await device.step()
  const { state } = await device.held()
  expect(state.joined[0].catalogue).not.toBe('')
  expect(Object.keys(state.ratings[address])).toEqual(['a'])
})
