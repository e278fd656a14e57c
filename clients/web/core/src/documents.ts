/** Documents of the wire: canonical JSON (RFC 8785), ids, labelled digests; and what is in them. */

import { sha256 as hashed } from '@noble/hashes/sha2.js'
import { type Bytes, concat, machine, textOf, utf8 } from './platform.ts'

export const VERSION = 2
export const DIGEST_SIZE = 32
const MAX_DOCUMENT = 64 * 2 ** 20

/** What was published or answered is not what the wire says. */
export class ProtocolError extends Error {}

/** A document that is not taken now, and is not refused either. */
export class NotNowError extends ProtocolError {}

/** Something would break a promise to the owner. */
export class PrivacyError extends Error {}

export function require(condition: boolean, what: string): asserts condition {
  if (!condition) throw new ProtocolError(`refused: ${what}`)
}

export const sha256 = (...parts: readonly Uint8Array[]): Bytes => new Uint8Array(hashed(concat(...parts)))

/** Return the digest for an id or a signature: of what it is for, and the document. */
export const labelledDigest = (label: string, data: Uint8Array): Bytes =>
  sha256(utf8(`hdpmf ${VERSION} ${label}\n`), data)

/** Return the SHA-256 of a file, as documents spell it. */
export const fileDigest = (data: Uint8Array): string => toBase64(sha256(data))

/** Return bytes as documents and addresses spell them: base64url without padding. */
export const toBase64 = (data: Uint8Array): string =>
  machine.btoa(Array.from(data, (byte) => String.fromCharCode(byte)).join(''))
    .replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '')

/** Return the bytes that `toBase64` spelled, of this size. */
export function fromBase64(text: string, size?: number): Bytes {
  let data = new Uint8Array(0)
  if (/^[\w-]*$/.test(text) && text.length % 4 !== 1) {
    const plain = machine.atob(text.replaceAll('-', '+').replaceAll('_', '/'))
    data = Uint8Array.from(plain, (letter) => letter.charCodeAt(0))
  }
  require(toBase64(data) === text && (size === undefined || data.length === size),
    'something is not so many bytes in base64url without padding')
  return data
}

/** Return bytes in hexadecimal. */
export const toHex = (data: Uint8Array): string =>
  Array.from(data, (byte) => byte.toString(16).padStart(2, '0')).join('')

export const sameBytes = (a: Uint8Array, b: Uint8Array): boolean =>
  a.length === b.length && a.every((byte, at) => byte === b[at])

/** Return canonical JSON; names are in the order of their UTF-16 units. */
export function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`
  if (typeof value === 'object' && value !== null) {
    const all = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))
    return `{${all.map(([name, each]) => `${JSON.stringify(name)}:${canonical(each)}`).join(',')}}`
  }
  return JSON.stringify(value)
}

export const isSame = (a: unknown, b: unknown): boolean => canonical(a) === canonical(b)

// What documents hold

/** Return a value as what it should be; ProtocolError if it is something else. */
export type Read<T> = (value: unknown) => T

const reads = <T>(right: (value: any) => boolean, what: string): Read<T> => (value) => {
  require(right(value), what)
  return value as T
}

export const text = (most = 2 ** 16): Read<string> =>
  reads((value) => typeof value === 'string' && value.length <= most, 'a text is none, or too long')
export const matching = (pattern: RegExp, what: string): Read<string> =>
  reads((value) => typeof value === 'string' && pattern.test(value), what)
export const numberFrom = (low: number, high: number): Read<number> =>
  reads((value) => Number.isFinite(value) && value >= low && value <= high, 'a number is out of its range')
export const whole = (low = 0, high: number = Number.MAX_SAFE_INTEGER): Read<number> =>
  reads((value) => Number.isInteger(value) && value >= low && value <= high, 'no whole number, or out of its range')
export const flag: Read<boolean> = reads((value) => typeof value === 'boolean', 'yes or no is neither')
export const only = <T extends string | number>(...allowed: readonly T[]): Read<T> =>
  reads((value) => allowed.includes(value), 'a value, a type or a version is not known here')
export const orNull = <T>(read: Read<T>): Read<T | null> => (value) => (value === null ? null : read(value))

export const list = <T>(read: Read<T>, least = 0, most = 2 ** 22): Read<readonly T[]> => (value) => {
  require(Array.isArray(value) && value.length >= least && value.length <= most, 'no list, or of a wrong length')
  return value.map(read)
}

export const named = <T>(read: Read<T>): Read<Readonly<Record<string, T>>> => (value) => {
  require(isObject(value), 'an object is none')
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, read(each)]))
}

type Fields = Readonly<Record<string, Read<unknown>>>
type Made<F extends Fields> = { readonly [name in keyof F]: ReturnType<F[name]> }

/** Read an object with these fields, all of them and no other. */
export const object = <F extends Fields>(fields: F): Read<Made<F>> => (value) => {
  require(isObject(value), 'an object is none')
  const names = Object.keys(fields)
  require(Object.keys(value).length === names.length && names.every((name) => Object.hasOwn(value, name)),
    'an object has other fields')
  return Object.fromEntries(names.map((name) => [name, fields[name](value[name])])) as Made<F>
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Return the document in these bytes, which are its only spelling. */
export function readDocument<T>(read: Read<T>, data: Uint8Array, most = MAX_DOCUMENT): T {
  require(data.length <= most, 'a document is too long')
  let [value, same]: [unknown, boolean] = [null, false]
  try {
    const spelled = textOf(data)
    value = JSON.parse(spelled)
    same = canonical(value) === spelled
  } catch {
    throw new ProtocolError('refused: a document is no JSON, or too deep') // its words would quote the sender
  }
  require(same, 'a document is not in the canonical form of RFC 8785')
  return read(value)
}
