/** A state under a passphrase: in a store, and in a file to take along. */

import { PrivacyError, fromBase64, toBase64 } from './documents.ts'
import { type Bytes, type Key, concat, machine, random, textOf, utf8 } from './platform.ts'
import type { State } from './state.ts'
import type { Held, Store } from './store.ts'

const ROUNDS = 600_000
const [SALT_SIZE, IV_SIZE] = [16, 12]
const FILE = utf8('hdpmf device 2\n')

/** The passphrase is wrong or missing, or what it should open is damaged. */
export class PassphraseError extends PrivacyError {}

/** A state that a passphrase opens. */
export interface Locked {
  readonly salt: Bytes
  readonly iv: Bytes
  readonly data: Bytes
}

type Opener = { readonly salt: Bytes; readonly key: Key }

/** Return the key of a passphrase (PBKDF2, AES-256-GCM), which the machine gives to nobody. */
async function openerOf(passphrase: string, salt = random(SALT_SIZE)): Promise<Opener> {
  if (passphrase === '') throw new PassphraseError('a passphrase is needed')
  const { subtle } = machine.crypto
  const typed = await subtle.importKey('raw', utf8(passphrase.normalize('NFKC')), 'PBKDF2', false, ['deriveKey'])
  const slow = { name: 'PBKDF2', hash: 'SHA-256', salt, iterations: ROUNDS }
  const gcm = { name: 'AES-GCM', length: 256 }
  return { salt, key: await subtle.deriveKey(slow, typed, gcm, false, ['encrypt', 'decrypt']) }
}

// A name that no text has which people can write.
const MARK = '\u0000'
const written = (state: State): Bytes => utf8(JSON.stringify(state, (_, value) =>
  (value instanceof Uint8Array ? { [MARK]: toBase64(value) } : value)))
const readState = (data: Uint8Array): State => JSON.parse(textOf(data), (_, value) =>
  (typeof value?.[MARK] === 'string' ? fromBase64(value[MARK]) : value))

async function shut({ salt, key }: Opener, state: State): Promise<Locked> {
  const iv = random(IV_SIZE)
  const data = await machine.crypto.subtle.encrypt({ name: 'AES-GCM', iv }, key, written(state))
  return { salt, iv, data: new Uint8Array(data) }
}

async function opened({ key }: Opener, { iv, data }: Locked): Promise<State> {
  const plain = await machine.crypto.subtle.decrypt({ name: 'AES-GCM', iv }, key, data)
    .catch(() => { throw new PassphraseError('this passphrase does not open it, or it is damaged') })
  return readState(new Uint8Array(plain))
}

/** A store whose state is sealed by a passphrase, if its owner wants that. */
export class LockedStore implements Store {
  private last: Held | null = null

  private constructor(private readonly inner: Store<State | Locked>, private opener: Opener | null) {}

  /** Open a store; PassphraseError where the passphrase is another one, or is missing. */
  static async open(inner: Store<State | Locked>, passphrase = ''): Promise<LockedStore> {
    const state = (await inner.load())?.state
    const sealed = state !== undefined && 'data' in state
    const store = new LockedStore(inner, sealed ? await openerOf(passphrase, state.salt) : null)
    await store.load()
    return store
  }

  /** Tell whether a passphrase is set. */
  get locked(): boolean {
    return this.opener !== null
  }

  async load(): Promise<Held | null> {
    const held = await this.inner.load()
    if (held === null || held.version === this.last?.version) return held && this.last
    const { state, version } = held
    if (!('data' in state)) return { state, version }
    if (this.opener === null) throw new PassphraseError('a passphrase was set; open the store anew')
    this.last = { state: await opened(this.opener, state), version }
    return this.last
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
    const { state, version } = held
    const kept = await this.inner.commit(opener === null ? state : await shut(opener, state), version)
    if (!kept) throw new PrivacyError('something was changed meanwhile; try again')
    this.opener = opener
  }
}

/** Return a state as a file that only the passphrase opens. */
export async function exported(state: State, passphrase: string): Promise<Bytes> {
  const { salt, iv, data } = await shut(await openerOf(passphrase), state)
  return concat(FILE, salt, iv, data)
}

/** Return the state in a file; PassphraseError where the passphrase is another one. */
export async function imported(file: Bytes, passphrase: string): Promise<State> {
  if (!FILE.every((byte, at) => file[at] === byte)) throw new PrivacyError('this is no file of a device')
  const rest = file.slice(FILE.length)
  const [salt, iv] = [rest.slice(0, SALT_SIZE), rest.slice(SALT_SIZE, SALT_SIZE + IV_SIZE)]
  return opened(await openerOf(passphrase, salt), { salt, iv, data: rest.slice(SALT_SIZE + IV_SIZE) })
}
