/**
 * Prio3 (draft-irtf-cfrg-vdaf-20), the device's part: a vector in two shares with proofs. A circuit calls one gadget, a
 * polynomial of low degree, several times on wires that are affine in the vector; a proof is the gadget of the wires'
 * polynomials, by its values at roots of unity.
 */

import { turboshake128 } from '@noble/hashes/sha3-addons.js'
import { type Vector, encoded, extended, sub, zeros } from './field.ts'
import { type Bytes, bigEndian, concat } from './platform.ts'

export const NONCE_SIZE = 16
const SEED_SIZE = 32
/** Bytes of randomness for a report. */
export const RANDOM_SIZE = 4 * SEED_SIZE
const VERSION = 18 // of the encoding: drafts 18 to 20 have the same one
const [LEADER, HELPER, BLOCK] = [0, 1, 168 * 64]
const [VECTOR, PROOF, JOINT, MASKS, JOINT_SEED, JOINT_PART] = [1, 2, 3, 4, 6, 7]

export interface Circuit {
  readonly identifier: number
  /** They follow the application's context. */
  readonly parameters: Bytes
  /** Elements of the vector that is shared, and of joint randomness for each proof. */
  readonly length: number
  readonly randomLength: number
  /** Wires of the gadget, its degree, and how often it is called. */
  readonly arity: number
  readonly degree: number
  readonly calls: number
  /** Return the vector of a row, by the same steps whatever is in it. */
  encode(row: readonly number[]): Vector
  /** Return the gadget's inputs, a row for each call. */
  wires(vector: Vector, joint: Vector): Vector
  /** Return the gadget at so many points; a row of `points` is a wire. */
  gadget(points: readonly Vector[], count: number, joint: Vector): Vector
}

/** Share a row. Shares of one context are refused in another. */
export function shard(
  circuit: Circuit, context: Bytes, row: readonly number[], nonce: Bytes, random: Bytes, proofs = 3,
): Readonly<Record<'publicShare' | 'leader' | 'helper', Bytes>> {
  if (nonce.length !== NONCE_SIZE || random.length !== RANDOM_SIZE) throw new Error('randomness of another size')
  const tag = (usage: number): Bytes => concat(Uint8Array.of(VERSION, 0), bigEndian(circuit.identifier, 4),
    bigEndian(usage, 2), context, circuit.parameters)
  const drawn = (usage: number, from: Bytes, binder: readonly number[], count: number): Vector =>
    expand(tag(usage), from, Uint8Array.from(binder), count)
  const jointPart = (server: number, blind: Bytes, share: Bytes): Bytes =>
    deriveSeed(tag(JOINT_PART), blind, SEED_SIZE, Uint8Array.of(server), nonce, share)
  const [seed, otherBlind, blind, proveSeed] =
    [0, 1, 2, 3].map((at) => random.slice(at * SEED_SIZE, (at + 1) * SEED_SIZE))

  const vector = circuit.encode(row)
  const own = drawn(VECTOR, seed, [HELPER], circuit.length)
  const first = encoded(sub(vector, own))
  const publicShare = concat(jointPart(LEADER, blind, first), jointPart(HELPER, otherBlind, encoded(own)))
  const jointSeed = deriveSeed(tag(JOINT_SEED), new Uint8Array(SEED_SIZE), SEED_SIZE, publicShare)
  const joints = drawn(JOINT, jointSeed, [proofs], circuit.randomLength * proofs)
  const masks = drawn(MASKS, proveSeed, [proofs], circuit.arity * proofs)
  const part = (all: Vector, at: number): Vector => all.subarray(...[at, at + 1].map((k) => (k * all.length) / proofs))
  const proof = concat(...Array.from({ length: proofs }, (_, at) =>
    encoded(prove(circuit, vector, part(masks, at), part(joints, at)))))
  const whole = new Uint32Array(proof.buffer)
  const other = drawn(PROOF, seed, [proofs, HELPER], whole.length / 2)
  return { publicShare, leader: concat(first, encoded(sub(whole, other)), blind), helper: concat(seed, otherBlind) }
}

/** Prove validity. Seeds are random elements, one for each wire, which hide the wires. */
function prove(circuit: Circuit, vector: Vector, seeds: Vector, joint: Vector): Vector {
  const { arity, calls, degree } = circuit
  const span = 2 ** bitLength(calls)
  const count = degree * (span - 1) + 1
  const size = 2 ** bitLength(count - 1)
  const wires = circuit.wires(vector, joint)
  const points = Array.from({ length: arity }, (_, wire) => {
    const row = zeros(span)
    row.set(seeds.subarray(2 * wire, 2 * wire + 2))
    for (let call = 0; call < calls; call++) {
      const from = 2 * (call * arity + wire)
      row.set(wires.subarray(from, from + 2), 2 * (call + 1))
    }
    return extended(row, size)
  })
  const out = zeros(arity + count)
  out.set(seeds)
  out.set(circuit.gadget(points, count, joint), 2 * arity)
  return out
}

/** Return the elements per call (so many wires each) that give the shortest proof. */
export function bestChunk(elements: number, wires: number, degree: number): number {
  let [best, least] = [0, Infinity]
  for (let span = 2; span <= 2 ** bitLength(elements); span *= 2) {
    const chunk = Math.ceil(elements / (span - 1))
    const size = wires * chunk + degree * (span - 1)
    if (size < least) [best, least] = [chunk, size]
  }
  return best
}

export const bitLength = (value: number): number => value.toString(2).length

// XofTurboShake128: TurboSHAKE128 (RFC 9861) of tag, seed and binder.

function absorbed(tag: Bytes, seed: Bytes, binder: readonly Uint8Array[]) {
  const hash = turboshake128.create({ D: 1 }).update(Uint8Array.of(tag.length & 255, tag.length >> 8)).update(tag)
  for (const part of [Uint8Array.of(seed.length), seed, ...binder]) hash.update(part)
  return hash
}

export const deriveSeed = (tag: Bytes, seed: Bytes, size: number, ...binder: readonly Uint8Array[]): Bytes =>
  new Uint8Array(absorbed(tag, seed, binder).xof(size))

/** Return so many pseudorandom elements, by rejection: words that are not below p are left out. */
function expand(tag: Bytes, seed: Bytes, binder: Uint8Array, count: number): Vector {
  const hash = absorbed(tag, seed, [binder])
  const out = zeros(count)
  const block = new Uint8Array(BLOCK)
  const words = new Uint32Array(block.buffer)
  for (let found = 0; found < count; ) {
    hash.xofInto(block)
    for (let at = 0; at < words.length && found < count; at += 2) {
      if (words[at + 1] === 0xffffffff && words[at] !== 0) continue
      out.set(words.subarray(at, at + 2), 2 * found++)
    }
  }
  return out
}
