/** XofTurboShake128 of the draft: TurboSHAKE128 (RFC 9861) of tag, seed and binder. */

import { turboshake128 } from '@noble/hashes/sha3-addons.js'

import { type Vector, zeros } from './field.ts'

export type Bytes = Uint8Array<ArrayBuffer>

const DOMAIN = 1
const BLOCK = 168 * 64

export function concat(...parts: readonly Uint8Array[]): Bytes {
  const out = new Uint8Array(parts.reduce((size, part) => size + part.length, 0))
  let at = 0
  for (const part of parts) {
    out.set(part, at)
    at += part.length
  }
  return out
}

/** Return a whole number as so many bytes, the highest first. */
export function bigEndian(value: number | bigint, size: number): Bytes {
  const out = new Uint8Array(size)
  let rest = BigInt(value)
  for (let at = size - 1; at >= 0; at--, rest >>= 8n) out[at] = Number(rest & 255n)
  return out
}

function absorbed(tag: Bytes, seed: Bytes, binder: readonly Uint8Array[]) {
  const hash = turboshake128.create({ D: DOMAIN })
  hash.update(Uint8Array.of(tag.length & 255, tag.length >> 8)).update(tag)
  hash.update(Uint8Array.of(seed.length)).update(seed)
  for (const part of binder) hash.update(part)
  return hash
}

export function deriveSeed(
  tag: Bytes, seed: Bytes, binder: readonly Uint8Array[], size: number,
): Bytes {
  return new Uint8Array(absorbed(tag, seed, binder).xof(size))
}

/** Return so many pseudorandom elements, by rejection: words that are not below p are left out. */
export function expand(tag: Bytes, seed: Bytes, binder: Uint8Array, count: number): Vector {
  const hash = absorbed(tag, seed, [binder])
  const out = zeros(count)
  const block = new Uint8Array(BLOCK)
  const words = new Uint32Array(block.buffer)
  for (let found = 0; found < count; ) {
    hash.xofInto(block)
    for (let at = 0; at < words.length && found < count; at += 2) {
      if (words[at + 1] === 0xffffffff && words[at] !== 0) continue
      out[2 * found] = words[at]
      out[2 * found + 1] = words[at + 1]
      found++
    }
  }
  return out
}
