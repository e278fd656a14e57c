/**
 * What the core uses of the machine it runs in, and nothing else; and bytes. The compiler knows no DOM here: `fetch`,
 * `WebSocket`, `Worker` and the like are no names, and `npm run types` fails where somebody writes one.
 */

export type Bytes = Uint8Array<ArrayBuffer>

/** A key that the machine keeps. */
export type Key = { readonly type: string }

interface Machine {
  readonly crypto: {
    readonly subtle: Readonly<Record<string, (...given: readonly any[]) => Promise<any>>>
    getRandomValues(data: Bytes): Bytes
  }
  readonly TextEncoder: new () => { encode(text: string): Bytes }
  readonly TextDecoder: new (label: string, options: object) => { decode(data: Uint8Array): string }
  readonly btoa: (text: string) => string
  readonly atob: (text: string) => string
}

export const machine = globalThis as unknown as Machine
const encoder = new machine.TextEncoder()
const decoder = new machine.TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
export const random = (size: number): Bytes => machine.crypto.getRandomValues(new Uint8Array(size))
export const utf8 = (text: string): Bytes => encoder.encode(text)
/** Return the text in these bytes; TypeError if it is none. */
export const textOf = (data: Uint8Array): string => decoder.decode(data)

export function concat(...parts: readonly Uint8Array[]): Bytes {
  const out = new Uint8Array(parts.reduce((size, part) => size + part.length, 0))
  parts.reduce((at, part) => (out.set(part, at), at + part.length), 0)
  return out
}

/** Return a whole number as so many bytes, the highest first. */
export function bigEndian(value: number | bigint, size: number): Bytes {
  const out = new Uint8Array(size)
  let rest = BigInt(value)
  for (let at = size - 1; at >= 0; at--, rest >>= 8n) out[at] = Number(rest & 255n)
  return out
}

/** Return bytes behind their length, which has so many bytes. */
export const sized = (data: Bytes, size: number): Bytes => concat(bigEndian(data.length, size), data)

// Ed25519

const HEAD = Uint8Array.of(0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20)

/** Return whether a signature by this key is valid. */
export async function verifies(key: Bytes, signature: Bytes, data: Bytes): Promise<boolean> {
  try {
    const { subtle } = machine.crypto
    const imported = await subtle.importKey('raw', key, 'Ed25519', false, ['verify'])
    return await subtle.verify('Ed25519', imported, signature, data)
  } catch {
    return false // no point of the curve, or no signature
  }
}

/** Sign by the key of 32 secret bytes. */
export const signed = async (secret: Bytes, data: Bytes): Promise<Bytes> =>
  new Uint8Array(await machine.crypto.subtle.sign('Ed25519', await signer(secret), data))

/** Return the public key of 32 secret bytes, in base64url. */
export const publicOf = async (secret: Bytes): Promise<string> =>
  (await machine.crypto.subtle.exportKey('jwk', await signer(secret))).x

const signer = (secret: Bytes): Promise<Key> =>
  machine.crypto.subtle.importKey('pkcs8', concat(HEAD, secret), 'Ed25519', true, ['sign'])
