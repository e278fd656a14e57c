/** Where a state is kept: durable, and changed only by who has seen the last one. */

import type { State } from './state.ts'

export interface Held {
  readonly state: State
  readonly version: number
}

/** A host's own store has these two, and keeps what it says it has kept. */
export interface Store {
  load(): Promise<Held | null>
  /**
   * Keep a state, durably, if the last version is still `expected` (0: there is none).
   * Return false, and change nothing, if it is another.
   */
  commit(next: State, expected: number): Promise<boolean>
}

const made = new WeakSet<Committed>()

/** A state that a store has kept. Only `commit` makes one; reports are made of nothing else. */
export class Committed implements Held {
  private constructor(readonly state: State, readonly version: number) {}

  /** Commit a state; null if another one was committed meanwhile. */
  static async commit(store: Store, next: State, expected: number): Promise<Committed | null> {
    if (!(await store.commit(next, expected))) return null
    const found = new Committed(next, expected + 1)
    made.add(found)
    return Object.freeze(found)
  }

  static is(value: Committed): boolean {
    return made.has(value)
  }
}

/** A store that forgets: for tests, and for hosts that keep states in another way. */
export class MemoryStore implements Store {
  private held: Held | null = null

  async load(): Promise<Held | null> {
    return this.held
  }

  async commit(next: State, expected: number): Promise<boolean> {
    if ((this.held?.version ?? 0) !== expected) return false
    this.held = { state: next, version: expected + 1 }
    return true
  }
}

// As much of IndexedDB as is used.

interface Request<T> {
  readonly result: T
  readonly error: unknown
  onsuccess: (() => void) | null
  onerror: (() => void) | null
  onupgradeneeded?: (() => void) | null
}

interface Transaction {
  readonly error: unknown
  oncomplete: (() => void) | null
  onabort: (() => void) | null
  abort(): void
  objectStore(name: string): {
    get(key: string): Request<Held | undefined>
    put(value: Held, key: string): Request<unknown>
  }
}

interface Database {
  createObjectStore(name: string): unknown
  transaction(name: string, mode: string, options: { durability: string }): Transaction
}

export interface Databases {
  open(name: string, version: number): Request<Database>
}

const [TABLE, KEY] = ['device', 'state']

/** A store in IndexedDB; what it has kept is on disk. */
export class IndexedStore implements Store {
  private constructor(private readonly database: Database) {}

  static async open(databases: Databases, name: string): Promise<IndexedStore> {
    const request = databases.open(name, 1)
    request.onupgradeneeded = () => request.result.createObjectStore(TABLE)
    return new IndexedStore(await result(request))
  }

  async load(): Promise<Held | null> {
    const transaction = this.database.transaction(TABLE, 'readonly', { durability: 'strict' })
    return (await result(transaction.objectStore(TABLE).get(KEY))) ?? null
  }

  commit(next: State, expected: number): Promise<boolean> {
    const transaction = this.database.transaction(TABLE, 'readwrite', { durability: 'strict' })
    const table = transaction.objectStore(TABLE)
    return new Promise((resolve, reject) => {
      let same = false
      const request = table.get(KEY)
      request.onsuccess = () => {
        same = (request.result?.version ?? 0) === expected
        if (same) table.put({ state: next, version: expected + 1 }, KEY)
      }
      transaction.oncomplete = () => resolve(same)
      transaction.onabort = () => reject(transaction.error)
    })
  }
}

const result = <T>(request: Request<T>): Promise<T> =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result)
    request.onerror = () => reject(request.error)
  })
