/**
 * What the core uses of the machine it runs in, and nothing else.
 *
 * The compiler knows no DOM here: `fetch`, `WebSocket`, `Worker` and the like are no names, and
 * `npm run types` fails where somebody writes one.
 */

import type { Bytes } from './xof.ts'

export interface Key {
  readonly type: string
}

type Subtle = Readonly<Record<string, (...given: readonly any[]) => Promise<any>>>

interface Machine {
  readonly crypto: { readonly subtle: Subtle; getRandomValues(data: Bytes): Bytes }
  readonly TextEncoder: new () => { encode(text: string): Bytes }
  readonly TextDecoder: new (label: string, options: object) => { decode(data: Uint8Array): string }
  readonly btoa: (text: string) => string
  readonly atob: (text: string) => string
}

export const machine = globalThis as unknown as Machine

export const random = (size: number): Bytes =>
  machine.crypto.getRandomValues(new Uint8Array(size))

const encoder = new machine.TextEncoder()
const decoder = new machine.TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

export const utf8 = (text: string): Bytes => encoder.encode(text)

/** Return the text in these bytes; TypeError if it is none. */
export const textOf = (data: Uint8Array): string => decoder.decode(data)

const ED25519_HEAD = Uint8Array.of(
  0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20,
)

/** Return whether a signature by this Ed25519 key is valid. */
export async function verifies(key: Bytes, signature: Bytes, data: Bytes): Promise<boolean> {
  try {
    const { subtle } = machine.crypto
    const imported = await subtle.importKey('raw', key, 'Ed25519', false, ['verify'])
    return await subtle.verify('Ed25519', imported, signature, data)
  } catch {
    return false // no point of the curve, or no signature
  }
}

/** Sign by an Ed25519 key of 32 secret bytes. */
export async function signed(secret: Bytes, data: Bytes): Promise<Bytes> {
  return new Uint8Array(await machine.crypto.subtle.sign('Ed25519', await signer(secret), data))
}

/** Return the public key of 32 secret bytes, in base64url. */
export async function publicOf(secret: Bytes): Promise<string> {
  return (await machine.crypto.subtle.exportKey('jwk', await signer(secret))).x
}

function signer(secret: Bytes): Promise<Key> {
  const encoded = new Uint8Array([...ED25519_HEAD, ...secret])
  return machine.crypto.subtle.importKey('pkcs8', encoded, 'Ed25519', true, ['sign'])
}
