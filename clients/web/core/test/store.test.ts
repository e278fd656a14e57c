import { IDBFactory } from 'fake-indexeddb'
import { expect, test } from 'vitest'

import {
  type Databases, Device, IndexedStore, LEVELS, type Line, type Locked, LockedStore, MemoryStore,
  PassphraseError, PrivacyError, Sealed, type State, type Store, commit, join, newState, rate, seal, total,
} from '../src/index.ts'
import { ours, read } from './files.ts'

const factory = () => new IDBFactory() as unknown as Databases

test.each<[string, () => Promise<Store>]>([
  ['memory', async () => new MemoryStore()],
  ['IndexedDB', () => IndexedStore.open(factory(), 'device')],
])('a store keeps what follows from the last version, and nothing else: %s', async (_, open) => {
  const store = await open()
  const state = newState(LEVELS.middle)
  expect(await store.load()).toBeNull()
  expect(await store.commit(state, 1)).toBe(false)
  expect(await store.commit(state, 0)).toBe(true)
  expect(await store.load()).toEqual({ state, version: 1 })
  const two = await Promise.all([
    store.commit({ ...state, wish: 1 }, 1), store.commit({ ...state, wish: 2 }, 1),
  ])
  expect(two).toEqual([true, false])
  expect(await commit(store, state, 1)).toBeNull()
  expect((await store.load())?.state.wish).toBe(1)
})

test('what IndexedDB keeps is there when it is opened again', async () => {
  const databases = factory()
  const state = newState(LEVELS.careful)
  await (await IndexedStore.open(databases, 'device')).commit(state, 0)
  expect(await (await IndexedStore.open(databases, 'device')).load()).toEqual({ state, version: 1 })
})

test('a store under a passphrase opens by it, and keeps nothing that can be read', async () => {
  const inner = await IndexedStore.open<State | Locked>(factory(), 'device')
  const store = await LockedStore.open(inner)
  const fresh = { ...newState(LEVELS.middle), kept: { wanted: ['film 8'] } }
  const state = rate(fresh, 'https://a.example', 'film 7', { value: 4.5, weight: 1000, at: 1 })
  await expect(store.protect('a')).rejects.toThrow(/nothing/)
  await store.commit(state, 0)
  expect(JSON.stringify(await inner.load())).toContain('film 7')
  await store.protect('correct horse')
  const kept = (await inner.load())?.state as Locked
  expect(kept).toBeInstanceOf(Uint8Array)
  expect(new TextDecoder().decode(kept)).not.toContain('film')
  expect(await store.commit({ ...state, wish: 5 }, 2)).toBe(true)
  expect(await store.commit(state, 2)).toBe(false)
  await expect(LockedStore.open(inner)).rejects.toThrow(PassphraseError)
  await expect(LockedStore.open(inner, 'wrong horse')).rejects.toThrow(PassphraseError)
  const again = await LockedStore.open(inner, 'correct horse')
  expect(again.locked).toBe(true)
  expect(await again.load()).toEqual({ state: { ...state, wish: 5 }, version: 3 })
  await again.protect('battery staple')
  await expect(LockedStore.open(inner, 'correct horse')).rejects.toThrow(PassphraseError)
  await (await LockedStore.open(inner, 'battery staple')).protect(null)
  expect((await (await LockedStore.open(inner)).load())?.state).toEqual({ ...state, wish: 5 })
})

const { known } = read(ours('wire'), 'documents.json')
const A = 'https://a.example'
const line = (task: string, none: number): Line => ({
  at: 1, recommender: A, task, part: 'linear', price: 9, wish: 1000, zeros: false,
  cost: { none, other: 2 * none, grain: 1 },
})
const joined = (ledger: Line[]): State => ({
  ...join(newState(LEVELS.middle), { address: A, authority: '', name: '', servers: known.servers }), ledger,
})
const deviceOf = (state: State) => Device.open({
  store: new MemoryStore(), now: () => 0, carrier: {
    read: () => Promise.reject(new Error()), date: async () => null, send: () => Promise.reject(new Error()),
  },
}, state)

test('a file to take along opens by its passphrase; this device then takes part no more', async () => {
  const state = rate(joined([line('01', 5), line('02', 7)]), A, 'film 7', { value: 4.5, weight: 1000, at: 1 })
  const here = await deviceOf(state)
  const file = await here.export('correct horse')
  expect(new TextDecoder().decode(file)).not.toContain('film')
  expect((await here.held()).state.joined.map(({ left }) => left)).toEqual([true])
  const there = await deviceOf(joined([line('02', 7), line('03', 11)]))
  await expect(there.restore(file, 'wrong horse')).rejects.toThrow(PassphraseError)
  await expect(there.restore(file.slice(1), 'correct horse')).rejects.toThrow(/no file/)
  await there.restore(file, 'correct horse')
  const taken = (await there.held()).state
  expect(taken).toEqual({ ...state, ledger: taken.ledger })
  expect(total(taken.ledger).none).toBe(5 + 7 + 11)
  await there.erase()
  await expect(there.held()).rejects.toThrow(/erased/)
})

test('nothing is sealed of a state that no store has kept, nor by anybody else', async () => {
  const state = newState(LEVELS.middle)
  const sending = { what: 'report', address: 'https://a.example', task: new Uint8Array(32), at: 0 } as const
  const forged = { state, version: 1 }
  await expect(seal(forged, sending, 0)).rejects.toThrow(PrivacyError)
  expect(() => new Sealed(Symbol('made by seal'), 'https://a.example', {}, new Uint8Array(0)))
    .toThrow(PrivacyError)
})
