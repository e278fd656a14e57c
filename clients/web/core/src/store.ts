/** Where a state is kept: durable, and changed only by who has seen the last one. */

import type { State } from './state.ts'

/** What a store has kept, and how often it was changed. */
export interface Held<T = State> {
  readonly state: T
  readonly version: number
}

/** A host's own store has these three, and keeps what it says it has kept. */
export interface Store<T = State> {
  /** Return what was kept last; null if there is nothing. */
  load(): Promise<Held<T> | null>
  /** Keep a state, durably, if the last version is still `expected` (0: there is none); else return false. */
  commit(next: T, expected: number): Promise<boolean>
  /** Forget everything. */
  erase(): Promise<void>
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

  /** Tell whether a value is one. */
  static is(value: Committed): boolean {
    return made.has(value)
  }
}

/** A store that forgets: for tests, and for hosts that keep states in another way. */
export class MemoryStore<T = State> implements Store<T> {
  private held: Held<T> | null = null

  async load(): Promise<Held<T> | null> {
    return this.held
  }

  async commit(next: T, expected: number): Promise<boolean> {
    if ((this.held?.version ?? 0) !== expected) return false
    this.held = { state: next, version: expected + 1 }
    return true
  }

  async erase(): Promise<void> {
    this.held = null
  }
}

/** A browser's `indexedDB`; the compiler has no names of browsers here. */
export interface Databases {
  open(name: string, version: number): any
}

const [TABLE, KEY] = ['device', 'state']

/** A store in IndexedDB; what it has kept is on disk. */
export class IndexedStore<T = State> implements Store<T> {
  private constructor(private readonly database: any) {}

  /** Open a database of this name. */
  static async open<T = State>(databases: Databases, name: string): Promise<IndexedStore<T>> {
    const request = databases.open(name, 1)
    request.onupgradeneeded = () => request.result.createObjectStore(TABLE)
    return new IndexedStore<T>(await new Promise((resolve, reject) => {
      request.onsuccess = () => resolve(request.result)
      request.onerror = () => reject(request.error)
    }))
  }

  load(): Promise<Held<T> | null> {
    return this.within('readonly', (_, held) => held ?? null)
  }

  commit(next: T, expected: number): Promise<boolean> {
    return this.within('readwrite', (table, held) => {
      const same = (held?.version ?? 0) === expected
      if (same) table.put({ state: next, version: expected + 1 }, KEY)
      return same
    })
  }

  erase(): Promise<void> {
    return this.within('readwrite', (table) => void table.delete(KEY))
  }

  /** Return what is made of what was held, once the transaction is on disk. */
  private within<R>(mode: string, work: (table: any, held: Held<T> | undefined) => R): Promise<R> {
    return new Promise((resolve, reject) => {
      const transaction = this.database.transaction(TABLE, mode, { durability: 'strict' })
      const table = transaction.objectStore(TABLE)
      const request = table.get(KEY)
      request.onsuccess = () => {
        const made = work(table, request.result)
        transaction.oncomplete = () => resolve(made)
      }
      transaction.onabort = () => reject(transaction.error)
    })
  }
}
