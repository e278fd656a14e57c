/**
 * Prio3 (draft-irtf-cfrg-vdaf-20), the device's part: a vector in two shares with a proof.
 *
 * A circuit calls one gadget, a polynomial of low degree, several times on wires that are affine in
 * the vector. The proof is the gadget of the wires' polynomials, by its values at roots of unity.
 */

import { type Vector, encoded, extended, sub, zeros } from './field.ts'
import { type Bytes, bigEndian, concat, deriveSeed, expand } from './xof.ts'

export const NONCE_SIZE = 16
const SEED_SIZE = 32
const VERSION = 18 // of the encoding: drafts 18 to 20 have the same one
const LEADER = 0
const HELPER = 1
const [VECTOR, PROOF, JOINT, MASKS, JOINT_SEED, JOINT_PART] = [1, 2, 3, 4, 6, 7]

export interface Circuit {
  /** Elements of the vector that is shared. */
  readonly length: number
  /** Elements of joint randomness for each proof. */
  readonly randomLength: number
  /** Wires of the gadget, its degree, and how often it is called. */
  readonly arity: number
  readonly degree: number
  readonly calls: number
  /** Return the gadget's inputs, a row for each call. */
  wires(vector: Vector, joint: Vector): Vector
  /** Return the gadget at so many points; a row of `points` is a wire. */
  gadget(points: readonly Vector[], count: number, joint: Vector): Vector
}

/** Return the elements per call (so many wires each) that give the shortest proof. */
export function bestChunk(elements: number, wires: number, degree: number): number {
  let best = 0
  let least = Infinity
  for (let span = 2; span <= 2 ** bitLength(elements); span *= 2) {
    const chunk = Math.ceil(elements / (span - 1))
    const size = wires * chunk + degree * (span - 1)
    if (size < least) [best, least] = [chunk, size]
  }
  return best
}

export const bitLength = (value: number): number => value.toString(2).length

/** Return a circuit's parameters as bytes that follow an application's context. */
export const stated = (...parameters: readonly number[]): Bytes =>
  concat(...parameters.map((number) => bigEndian(number, 8)))

export interface Shares {
  readonly publicShare: Bytes
  readonly leader: Bytes
  readonly helper: Bytes
}

export class Prio3 {
  /**
   * @param context Of the application; shares of one context are refused in another.
   * @param parameters Of the circuit, which follow the context.
   */
  constructor(
    readonly circuit: Circuit,
    readonly identifier: number,
    private readonly proofs: number,
    private readonly context: Bytes,
    readonly parameters: Bytes,
  ) {}

  get randomSize(): number {
    return 2 * (SEED_SIZE + this.blindSize)
  }

  private get blindSize(): number {
    return this.circuit.randomLength > 0 ? SEED_SIZE : 0
  }

  /** Share an encoded vector; `random` has `randomSize` bytes. */
  shard(vector: Vector, nonce: Bytes, random: Bytes): Shares {
    if (nonce.length !== NONCE_SIZE || random.length !== this.randomSize) {
      throw new Error('a nonce or randomness has another size')
    }
    const { circuit, proofs } = this
    const each = SEED_SIZE + this.blindSize
    const helper = random.slice(0, each)
    const seed = helper.slice(0, SEED_SIZE)
    const blind = random.slice(each, 2 * each - SEED_SIZE)
    const proveSeed = random.slice(2 * each - SEED_SIZE)

    const own = this.expand(VECTOR, seed, [HELPER], circuit.length)
    const first = encoded(sub(vector, own))
    const publicShare = concat(
      this.jointPart(LEADER, blind, first, nonce),
      this.jointPart(HELPER, helper.slice(SEED_SIZE), encoded(own), nonce),
    )
    const joints = this.joints(publicShare)
    const masks = this.expand(MASKS, proveSeed, [proofs], circuit.arity * proofs)
    const proof = concat(
      ...Array.from({ length: proofs }, (_, at) =>
        encoded(prove(
          circuit, vector, part(masks, at, circuit.arity), part(joints, at, circuit.randomLength),
        ))),
    )
    const whole = new Uint32Array(proof.buffer)
    const other = this.expand(PROOF, seed, [proofs, HELPER], whole.length / 2)
    return { publicShare, leader: concat(first, encoded(sub(whole, other)), blind), helper }
  }

  private joints(publicShare: Bytes): Vector {
    const length = this.circuit.randomLength * this.proofs
    if (length === 0) return zeros(0)
    const seed = deriveSeed(
      this.tag(JOINT_SEED), new Uint8Array(SEED_SIZE), [publicShare], SEED_SIZE,
    )
    return this.expand(JOINT, seed, [this.proofs], length)
  }

  private jointPart(server: number, blind: Bytes, share: Uint8Array, nonce: Bytes): Bytes {
    if (this.blindSize === 0) return new Uint8Array(0)
    const binder = [Uint8Array.of(server), nonce, share]
    return deriveSeed(this.tag(JOINT_PART), blind, binder, SEED_SIZE)
  }

  private expand(usage: number, seed: Bytes, binder: readonly number[], count: number): Vector {
    return expand(this.tag(usage), seed, Uint8Array.from(binder), count)
  }

  private tag(usage: number): Bytes {
    const head = [Uint8Array.of(VERSION, 0), bigEndian(this.identifier, 4), bigEndian(usage, 2)]
    return concat(...head, this.context, this.parameters)
  }
}

const part = (vector: Vector, at: number, length: number): Vector =>
  vector.slice(2 * at * length, 2 * (at + 1) * length)

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
