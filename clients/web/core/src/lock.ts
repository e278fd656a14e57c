/** A state under a passphrase: in a store, and in a file to take along. */

import { PrivacyError, fromBase64, sameBytes, toBase64 } from './documents.ts'
import { type Bytes, type Key, concat, machine, random, textOf, utf8 } from './platform.ts'
import type { State } from './state.ts'
import type { Held, Store } from './store.ts'

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
  return concat(HEAD, salt, iv, new Uint8Array(await machine.crypto.subtle.encrypt({ name: 'AES-GCM', iv }, key, plain)))
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
  get locked(): boolean {
    return this.opener !== null
  }

  async load(): Promise<Held | null> {
    const held = await this.inner.load()
    if (held === null || held.version === this.last?.version) return held && this.last
    const { state, version } = held
    if (!(state instanceof Uint8Array)) return { state, version }
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
    const next = opener === null ? held.state : await shut(opener, held.state)
    const kept = await this.inner.commit(next, held.version)
    if (!kept) throw new PrivacyError('something was changed meanwhile; try again')
    this.opener = opener
  }
}
