/** Somebody who lies, stalls or comes between: what a person's device does then. */

import {
  type Carrier, Device, LEVELS, type Locked, MemoryStore, type State, join, newState, opened, rate, readLink,
} from '@hdpmf/core'
import { describe, expect, test } from 'vitest'

import { canonical, readDocument, sha256, toBase64 } from '../../core/src/documents.ts'
import { utf8 } from '../../core/src/platform.ts'
import { itemsOf } from '../../core/src/published.ts'
import { MadeUp, type Wishes } from '../demo/world.ts'
import { Host } from '../src/host.ts'
import type { AppView, View } from '../src/messages.ts'

const NOW = 1_800_000_000
const TASK = 3600

/** A device of the core in a made-up world; what crosses its carrier can be held up. */
async function device(wishes: Partial<Wishes> = {}, limits = LEVELS.open) {
  const world = await MadeUp.begin({ now: NOW, task: TASK, items: 40, ...wishes })
  const link = readLink(world.link)
  const fresh = join(newState(limits), opened(link, await world.read(link.url, link.most)))
  const store = new MemoryStore<State>()
  const time = { now: NOW }
  const carrier: Carrier = {
    read: (url, most) => world.read(url, most), date: (url) => world.date(url), send: (sealed) => world.send(sealed),
  }
  const made = await Device.open({ store, carrier, now: () => time.now }, fresh)
  await made.change((state) => rate(state, world.address, '1', { value: 5, weight: 1000, at: NOW }))
  const pass = async (seconds: number): Promise<void> => {
    for (const until = time.now + seconds; time.now < until;) time.now += await made.step()
  }
  const reports = (): number => world.sent.filter(({ url }) => url.endsWith('/reports')).length
  return { world, made, time, pass, reports, address: world.address }
}

/** Publish a file, and name it in the index. */
function publish(world: MadeUp, kind: 'catalogue' | 'model' | 'keys' | 'task', value: object): void {
  const inside = world as unknown as {
    index: Record<string, unknown>
    document(kind: string, value: object): string
    publishIndex(): void
  }
  inside.index[kind] = inside.document(kind, value)
  inside.publishIndex()
}

const published = (world: MadeUp, kind: string): any => {
  const index = JSON.parse(new TextDecoder().decode(world.files.get(`${world.address}/index.json`)))
  return JSON.parse(new TextDecoder().decode(world.files.get(`${world.address}/${kind}-${index[kind]}.json`)))
}

describe('somebody who changes their mind while a leader takes its time', () => {
  test.each([
    ['leaves', (state: State) => ({ ...state, joined: state.joined.map((each) => ({ ...each, left: true, answer: null })) }), 0],
    ['says no', (state: State) => ({ ...state, wish: 0 }), 1],
  ])('%s: what was made before does not leave', async (_, changed, count) => {
    const { world, made, pass, reports } = await device()
    let held = 0
    world.date = async () => {
      if (held++ > 0) return null
      await made.change(changed)
      return null
    }
    const sends = world.send.bind(world)
    let before = 0
    world.send = async (sealed) => {
      before += Number(sealed.url.endsWith('/reports') && held === 1)
      return sends(sealed)
    }
    await pass(TASK)
    expect([held > 0, before, reports()]).toEqual([true, 0, count])
  })

  test('and what else was made does not leave either', async () => {
    const { made, pass, time } = await device()
    const inside = made as unknown as {
      ready: { sending: object; sealed: object }[]
      version: number
      take(sending: object, status: number | null): Promise<void>
    }
    await pass(60)
    const { state: { joined: [{ answer }] }, version } = await made.held()
    inside.version = version
    inside.ready = [{ sending: { what: 'report', at: time.now + 1e6, address: 'x', task: answer!.task }, sealed: {} }]
    await made.change((state) => ({ ...state, wish: 0 }))
    await inside.take({ what: 'enrolment', address: (await made.held()).state.joined[0].invitation.address, task: answer!.task, at: 0 }, 200)
    await made.step()
    expect(inside.ready.some(({ sending }) => (sending as { address: string }).address === 'x')).toBe(false)
  })
})

describe('one recommender or server that lies stops no other one', () => {
  test('documents that are deep are refused', () => {
    for (const deep of ['['.repeat(200_000) + ']'.repeat(200_000), `{"a":${'['.repeat(50_000)}${']'.repeat(50_000)}}`]) {
      expect(() => readDocument((value) => value, utf8(deep))).toThrow(/refused/)
    }
  })

  test('a catalogue of many items and many versions is read in a moment', async () => {
    const world = await MadeUp.begin({ now: NOW, items: 40 })
    const plain = published(world, 'catalogue')
    const count = 200_000
    const table = {
      ...plain.table, ids: Array.from({ length: count }, (_, at) => String(at)), titles: [], genres: [], years: [],
    }
    publish(world, 'catalogue', { ...plain, table, links: [{ ...plain.links[0], items: count }] })
    const said: unknown[] = []
    const link = readLink(world.link)
    const fresh = join(newState(LEVELS.open), opened(link, await world.read(link.url, link.most)))
    const made = await Device.open({ store: new MemoryStore(), carrier: world, now: () => NOW, say: (each) => said.push(each) }, fresh)
    await made.step()
    expect(said[0]).toMatchObject({ what: 'refused', why: expect.stringMatching(/about other items/) })
  })

  test('keys that nobody can encrypt to, and moduli that share a factor, are tried again later', async () => {
    const { world, made, pass, reports } = await device()
    const generate = crypto.subtle.deriveBits
    crypto.subtle.deriveBits = async () => new ArrayBuffer(32) // as of a key of small order
    try {
      await pass(TASK)
    } finally {
      crypto.subtle.deriveBits = generate
    }
    expect(reports()).toBe(0)
    expect((await made.held()).state.joined[0].answer?.tries).toBeGreaterThan(3)

    const other = await device()
    const task = published(other.world, 'task')
    const key = Uint8Array.from(atob(task.token_key.replaceAll('-', '+').replaceAll('_', '/')), (each) => each.charCodeAt(0))
    const at = key.length - 5 - 256
    const small = [3n, 5n, 7n, 11n, 13n, 17n, 19n, 23n, 29n, 31n, 37n, 41n, 43n, 47n].reduce((all, each) => all * each, 1n)
    const modulus = ((1n << 2047n) / small + 1n | 1n) * small
    key.set(Uint8Array.from(modulus.toString(16).match(/../g)!, (pair) => parseInt(pair, 16)), at)
    publish(other.world, 'task', { ...task, token_key: toBase64(key) })
    await other.pass(TASK)
    expect(other.reports()).toBe(0)
  })

  test('a model with more arrays than there are is refused, and names of others’ files are read all the same', async () => {
    const { world, made, pass } = await device()
    const model = published(world, 'model')
    const many = Object.fromEntries(Array.from({ length: 40 }, (_, at) => [`a${at}`, { ...model.arrays.bias, sha256: toBase64(sha256(utf8(`${at}`))) }]))
    publish(world, 'model', { ...model, arrays: many })
    const asked: string[] = []
    const reads = world.read.bind(world)
    world.read = (url, most) => (asked.push(url), reads(url, most))
    await pass(30)
    expect(asked.filter((url) => url.includes('/array-'))).toEqual([])
    // Another recommender's files tell nobody what was joined.
    publish(world, 'model', model)
    await made.change((state) => ({ ...state, files: { ...state.files, [model.arrays.bias.sha256]: utf8('x') } }))
    const before = await made.held()
    await made.change((state) => ({
      ...state, joined: [...state.joined, {
        ...before.state.joined[0], left: true, arrays: [model.arrays.bias.sha256], catalogue: '',
        invitation: { ...before.state.joined[0].invitation, address: 'https://other.example' },
      }],
    }))
    await pass(900)
    expect(asked.filter((url) => url.includes(model.arrays.bias.sha256)).length).toBeGreaterThan(0)
  })
})

test('whether a report can be made does not depend on ratings: scales that numbers cannot tell apart are refused', async () => {
  for (const [low, high] of [[0, 1e-40], [999_999.9999, 1_000_000], [-1e6, -999_999.5]]) {
    const world = await MadeUp.begin({ now: NOW, items: 40 })
    const plain = published(world, 'catalogue')
    publish(world, 'catalogue', { ...plain, table: { ...plain.table, scale_low: low, scale_high: high, scale_step: null } })
    const said: { why?: string }[] = []
    const link = readLink(world.link)
    const fresh = join(newState(LEVELS.open), opened(link, await world.read(link.url, link.most)))
    const made = await Device.open({ store: new MemoryStore(), carrier: world, now: () => NOW, say: (each) => said.push(each as object) }, fresh)
    await made.step()
    expect(said[0].why, `${low} to ${high}`).toMatch(/no scale/)
  }
})

describe('the ledger bounds what left', () => {
  test('two lines of one task are zeros', async () => {
    const { world, made, pass, time } = await device({ task: 0 })
    await world.ask(NOW, 2 * TASK)
    await pass(10)
    const { state } = await made.held()
    const [{ answer }] = state.joined
    const { toHex } = await import('@hdpmf/core')
    const line = {
      at: NOW - 5, recommender: world.address, task: toHex(answer!.task), part: 'linear' as const, price: 1, wish: 1000,
      cost: { none: 1, other: 2, grain: 1 }, zeros: false,
    }
    await made.change((before) => ({ ...before, ledger: [line] }))
    await pass(2 * TASK - (time.now - NOW))
    expect((await made.held()).state.ledger.map(({ zeros }) => zeros)).toEqual([false, true])
  })
})

/** An app in a made-up world. */
async function app(world: MadeUp, store = new MemoryStore<State | Locked>(), time = { now: NOW }) {
  const views: View[] = []
  const host = await Host.open({
    store, carrier: world, allow: () => undefined, show: (view) => views.push(view), save: () => undefined,
    choose: () => undefined, passphrase: async () => '', now: () => time.now,
    host: { origin: 'https://app.example', kind: 'page', version: '2.1.0', digest: 'd' },
  })
  return { host, store, time, last: () => views.at(-1) as View }
}

describe('a model that is none', () => {
  test.each([
    ['is about other items', (model: any) => ({ ...model, catalogue: toBase64(sha256(utf8('other'))) })],
    ['lacks an array', ({ arrays: { bias: _, ...arrays }, ...model }: any) => ({ ...model, arrays })],
    ['has a matrix of no rows and 10^9 columns', (model: any) => {
      const none = { kind: 'f4', sha256: toBase64(sha256()), shape: [0] }
      const { arrays } = model
      const [units, wide] = [{ ...none, shape: [0] }, { ...none, shape: [0, 0] }]
      return {
        ...model, arrays: {
          ...arrays, heads: none, encode: wide, 'encode-unit': units, decode: wide, 'decode-unit': units,
          stars: { ...none, shape: [0, 10 ** 9] }, 'stars-rest': none,
        },
      }
    }],
  ])('%s: the app is there, and takes part', async (_, made) => {
    const world = await MadeUp.begin({ now: NOW, task: TASK, items: 40 })
    world.files.set(`${world.address}/array-${toBase64(sha256())}.bin`, new Uint8Array(0))
    publish(world, 'model', made(published(world, 'model')))
    const { host, last, time, store } = await app(world)
    await host.act({ do: 'link', link: world.link })
    await host.act({ do: 'join' })
    await host.act({ do: 'rate', id: '1', stars: 5 })
    await host.act({ do: 'tab', tab: 'list' })
    expect((last() as AppView).shown).toMatchObject({ tab: 'list', by: 'none' })
    while (time.now < NOW + TASK) time.now += await host.step()
    expect(world.sent.map(({ url }) => url.split('/').at(-1))).toContain('reports')
    expect((await app(world, store)).last().page).toBe('app')
  })
})

test('items with the names of what every object has are not rated by that', async () => {
  const world = await MadeUp.begin({ now: NOW, items: 40 })
  const { host, last, store } = await app(world)
  await host.act({ do: 'link', link: world.link })
  await host.act({ do: 'join' })
  const held = (await store.load())!.state as State
  const [joined] = held.joined
  const table = itemsOf(held, joined)
  const positions = table.positions as Map<string, number>
  const names = ['constructor', '__proto__', 'toString']
  names.forEach((name, at) => {
    ;(table.ids as string[])[at] = name
    positions.set(name, at)
  })
  await host.act({ do: 'search', text: '' })
  await host.act({ do: 'pick', pick: { genre: '', decade: null } })
  for (const name of names) await host.act({ do: 'hide', id: name, on: true })
  await host.act({ do: 'tab', tab: 'saved' })
  const { shown } = last() as AppView
  if (shown.tab !== 'saved') throw new Error(shown.tab)
  expect(shown.hidden.map(({ id, stars }) => [id, stars])).toEqual([...names].reverse().map((name) => [name, null]))
})

test('another link does not take the place of what somebody is about to decide', async () => {
  const world = await MadeUp.begin({ now: NOW, items: 40 })
  const other = await MadeUp.begin({ now: NOW, items: 40, name: 'Another' })
  const { host, last } = await app(world)
  await host.act({ do: 'link', link: world.link })
  world.files.set(`${world.address}/invitation.json`, other.files.get(`${other.address}/invitation.json`)!)
  await host.opened(other.link)
  expect(last()).toMatchObject({ page: 'invited', invited: { name: 'Lantern Film Club' } })
  await host.act({ do: 'back' })
  await host.opened(other.link)
  expect(last()).toMatchObject({ page: 'invited', invited: { name: 'Another' } })
})

test.each(['https://[/join#', 'https://:::/join#'])('%s is a bad link, and the app goes on', async (begin) => {
  const world = await MadeUp.begin({ now: NOW, items: 40 })
  const { host, last } = await app(world)
  await host.act({ do: 'link', link: begin + toBase64(sha256()) })
  expect(last()).toMatchObject({ page: 'start', busy: false, notice: { what: 'bad link' } })
})

test('an invitation with a server at no address is a bad link, and the app goes on', async () => {
  const world = await MadeUp.begin({ now: NOW, items: 40 })
  const name = `${world.address}/invitation.json`
  const plain = JSON.parse(new TextDecoder().decode(world.files.get(name)))
  const { leader } = plain.servers
  const bad = utf8(canonical({ ...plain, servers: { ...plain.servers, leader: { ...leader, url: 'https://%' } } }))
  world.files.set(name, bad)
  const { host, last } = await app(world)
  await host.act({ do: 'link', link: `${world.address}/join#${toBase64(sha256(bad))}` })
  await host.act({ do: 'tab', tab: 'list' })
  expect(last()).toMatchObject({ page: 'start', notice: { what: 'bad link' } })
})

test('a clock that is wrong is what is said', async () => {
  const world = await MadeUp.begin({ now: NOW, task: TASK, items: 40 })
  world.date = async () => new Date((NOW - 1e6) * 1000).toUTCString()
  const { host, last, time } = await app(world)
  await host.act({ do: 'link', link: world.link })
  await host.act({ do: 'join' })
  while (time.now < NOW + TASK - 30) time.now += await host.step()
  await host.act({ do: 'tab', tab: 'privacy' })
  const { shown } = last() as AppView
  if (shown.tab !== 'privacy') throw new Error(shown.tab)
  expect(shown.members[0].trouble).toMatchObject({ what: 'clock' })
})
