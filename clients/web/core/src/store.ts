/** Where a state is kept: durable, changed only by who has seen the last one, and under a passphrase if wanted. */

import { PrivacyError, fromBase64, sameBytes, toBase64 } from './documents.ts'
import { type Bytes, type Key, concat, machine, random, textOf, utf8 } from './platform.ts'
import type { State } from './state.ts'

/** What a store has kept, and how often it was changed. */
export type Held<T = State> = { readonly state: T; readonly version: number }

/** A host's own store has these three, and keeps what it says it has kept. */
export interface Store<T = State> {
  /** Return what was kept last; null if there is nothing. */
  load(): Promise<Held<T> | null>
  /** Keep a state, durably, if the last version is still `expected` (0: there is none); else return false. */
  commit(next: T, expected: number): Promise<boolean>
  /** Forget everything. */
  erase(): Promise<void>
}

const committed = new WeakSet<Held>()

/** Commit a state; null if another one was committed meanwhile. Reports are made of nothing else. */
export async function commit(store: Store, next: State, expected: number): Promise<Held | null> {
  if (!(await store.commit(next, expected))) return null
  const held = Object.freeze({ state: next, version: expected + 1 })
  committed.add(held)
  return held
}

/** Tell whether a state is one that a store has kept. */
export const isCommitted = (held: Held): boolean => committed.has(held)

/** A store that forgets: for tests, and for hosts that keep states in another way. */
export class MemoryStore<T = State> implements Store<T> {
  private held: Held<T> | null = null
  load = async (): Promise<Held<T> | null> => this.held
  erase = async (): Promise<void> => { this.held = null }
  commit = async (next: T, expected: number): Promise<boolean> => {
    const same = (this.held?.version ?? 0) === expected
    if (same) this.held = { state: next, version: expected + 1 }
    return same
  }
}

/** A browser's `indexedDB`; the compiler has no names of browsers here. */
export type Databases = { open(name: string, version: number): any }
const [TABLE, KEY] = ['device', 'state']

/** A store in IndexedDB; what it has kept is on disk. */
export class IndexedStore<T = State> implements Store<T> {
  private constructor(private readonly database: any) {}

  /** Open a database of this name. */
  static open<T = State>(databases: Databases, name: string): Promise<IndexedStore<T>> {
    return new Promise((resolve, reject) => {
      const request = databases.open(name, 1)
      request.onupgradeneeded = () => request.result.createObjectStore(TABLE)
      request.onsuccess = () => resolve(new IndexedStore<T>(request.result))
      request.onerror = () => reject(request.error)
    })
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

// Under a passphrase: in a store, and in a file to take along

const ROUNDS = 600_000
const HEAD = utf8('hdpmf device 2\n')
const [SALT, IV, DATA] = [HEAD.length, HEAD.length + 16, HEAD.length + 28] // where they begin

/** The passphrase is wrong or missing, or what it should open is damaged. */
export class PassphraseError extends PrivacyError {}

/** A state that a passphrase opens, as a file. */
export type Locked = Bytes
type Opener = { readonly salt: Bytes; readonly key: Key }

/** Return the key of a passphrase (PBKDF2, AES-256-GCM), which the machine gives to nobody. */
async function openerOf(passphrase: string, salt = random(IV - SALT)): Promise<Opener> {
  if (passphrase === '') throw new PassphraseError('a passphrase is needed')
  const { subtle } = machine.crypto
  const typed = await subtle.importKey('raw', utf8(passphrase.normalize('NFKC')), 'PBKDF2', false, ['deriveKey'])
  const slow = { name: 'PBKDF2', hash: 'SHA-256', salt, iterations: ROUNDS }
  const gcm = { name: 'AES-GCM', length: 256 }
  return { salt, key: await subtle.deriveKey(slow, typed, gcm, false, ['encrypt', 'decrypt']) }
}

// Bytes are an object with one name, which no text has that people write.
const MARK = '\u0000'
const spelled = (_: string, value: unknown): unknown =>
  (value instanceof Uint8Array ? { [MARK]: toBase64(value) } : value)
const read = (_: string, value: any): unknown => (typeof value?.[MARK] === 'string' ? fromBase64(value[MARK]) : value)

async function shut({ salt, key }: Opener, state: State): Promise<Locked> {
  const iv = random(DATA - IV)
  const plain = utf8(JSON.stringify(state, spelled))
  const data = await machine.crypto.subtle.encrypt({ name: 'AES-GCM', iv }, key, plain)
  return concat(HEAD, salt, iv, new Uint8Array(data))
}

async function opened({ key }: Opener, file: Locked): Promise<State> {
  const gcm = { name: 'AES-GCM', iv: file.slice(IV, DATA) }
  const plain = await machine.crypto.subtle.decrypt(gcm, key, file.slice(DATA))
    .catch(() => { throw new PassphraseError('this passphrase does not open it, or it is damaged') })
  return JSON.parse(textOf(new Uint8Array(plain)), read)
}

/** Return a state as a file that only the passphrase opens. */
export const exported = async (state: State, passphrase: string): Promise<Locked> =>
  shut(await openerOf(passphrase), state)

/** Return the state in a file; PassphraseError where the passphrase is another one. */
export async function imported(file: Bytes, passphrase: string): Promise<State> {
  if (!sameBytes(file.slice(0, SALT), HEAD)) throw new PrivacyError('this is no file of a device')
  return opened(await openerOf(passphrase, file.slice(SALT, IV)), file)
}

/** A store whose state is sealed by a passphrase, if its owner wants that. */
export class LockedStore implements Store {
  private last: Held | null = null

  private constructor(private readonly inner: Store<State | Locked>, private opener: Opener | null) {}

  /** Open a store; PassphraseError where the passphrase is another one, or is missing. */
  static async open(inner: Store<State | Locked>, passphrase = ''): Promise<LockedStore> {
    const state = (await inner.load())?.state
    const opener = state instanceof Uint8Array ? await openerOf(passphrase, state.slice(SALT, IV)) : null
    const store = new LockedStore(inner, opener)
    await store.load()
    return store
  }

  /** Tell whether a passphrase is set. */
  get locked(): boolean { return this.opener !== null }

  async load(): Promise<Held | null> {
    const held = await this.inner.load()
    if (held === null || held.version === this.last?.version) return held && this.last
    const { state, version } = held
    if (!(state instanceof Uint8Array)) return { state, version }
    if (this.opener === null) throw new PassphraseError('a passphrase was set; open the store anew')
    return (this.last = { state: await opened(this.opener, state), version })
  }

  async commit(next: State, expected: number): Promise<boolean> {
    return this.inner.commit(this.opener === null ? next : await shut(this.opener, next), expected)
  }

  erase(): Promise<void> {
    this.last = null
    return this.inner.erase()
  }

  /** Set or change the passphrase; null: none from now on. */
  async protect(passphrase: string | null): Promise<void> {
    const opener = passphrase === null ? null : await openerOf(passphrase)
    const held = await this.load()
    if (held === null) throw new PrivacyError('there is nothing to protect yet')
    const next = opener === null ? held.state : await shut(opener, held.state)
    if (!(await this.inner.commit(next, held.version))) throw new PrivacyError('it was changed meanwhile; try again')
    this.opener = opener
  }
}
