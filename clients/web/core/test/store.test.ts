import { IDBFactory } from 'fake-indexeddb'
import { expect, test } from 'vitest'

import {
  Committed, IndexedStore, LEVELS, MemoryStore, PrivacyError, Sealed, type Store, newState, seal,
} from '../src/index.ts'
import type { Databases } from '../src/store.ts'

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
  expect(await Committed.commit(store, state, 1)).toBeNull()
  expect((await store.load())?.state.wish).toBe(1)
})

test('what IndexedDB keeps is there when it is opened again', async () => {
  const databases = factory()
  const state = newState(LEVELS.careful)
  await (await IndexedStore.open(databases, 'device')).commit(state, 0)
  expect(await (await IndexedStore.open(databases, 'device')).load()).toEqual({ state, version: 1 })
})

test('nothing is sealed of a state that no store has kept, nor by anybody else', async () => {
  const state = newState(LEVELS.middle)
  const sending = { what: 'report', address: 'https://a.example', task: new Uint8Array(32), at: 0 } as const
  const forged = Object.assign(Object.create(Committed.prototype), { state, version: 1 })
  await expect(seal(forged, sending, 0)).rejects.toThrow(PrivacyError)
  expect(() => new Sealed(Symbol('made by seal'), 'https://a.example', {}, new Uint8Array(0)))
    .toThrow(PrivacyError)
})
