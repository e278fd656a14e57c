import { describe, expect, test } from 'vitest'

import { boundedVector, rankOne } from '../src/circuits.ts'
import {
  MODULUS, type Vector, addAt, encoded, mulAt, powers, secretVector, subAt, vectorOf, zeros,
} from '../src/field.ts'
import { concat } from '../src/platform.ts'
import { type Circuit, deriveSeed, shard } from '../src/prio3.ts'
import { OFFICIAL, type Bytes, type Entry, hasOfficial, hex, namesIn, ours, read, unhex } from './files.ts'

const elementAt = (vector: Vector, at: number): bigint =>
  (BigInt(vector[2 * at + 1]) << 32n) | BigInt(vector[2 * at])

const EDGES = [
  0n, 1n, 2n, 0x7fffffffn, 0x80000000n, 0xffffffffn, 1n << 32n, (1n << 32n) + 1n, 1n << 63n,
  0x7fffffff_ffffffffn, 0xfffffffe_ffffffffn, MODULUS - 1n, MODULUS - 2n, MODULUS - (1n << 32n),
]

test('sums, differences and products of elements are those of whole numbers', () => {
  let state = 1n
  const drawn = Array.from({ length: 60 }, () => {
    state = (state * 6364136223846793005n + 1442695040888963407n) % (1n << 64n)
    return state % MODULUS
  })
  const values = [...EDGES, ...drawn]
  const vector = vectorOf(values)
  const out = zeros(3)
  values.forEach((a, i) => {
    values.forEach((b, j) => {
      addAt(out, 0, vector, i, vector, j)
      subAt(out, 1, vector, i, vector, j)
      mulAt(out, 2, vector, i, vector, j)
      const found = [0, 1, 2].map((at) => elementAt(out, at))
      expect(found).toEqual([(a + b) % MODULUS, (a - b + MODULUS) % MODULUS, (a * b) % MODULUS])
    })
  })
  const secret = [0, 1, -1, 255, -255, 2 ** 40 + 5, -(2 ** 40) - 5]
  expect(secretVector(secret)).toEqual(vectorOf(secret))
})

function checkShares(circuit: Circuit, given: Entry): number {
  for (const report of given.reports) {
    const [nonce, rand] = [report.nonce, report.rand].map(unhex)
    const shares = shard(circuit, unhex(given.ctx), report.measurement, nonce, rand, given.proofs)
    expect(hex(shares.publicShare)).toBe(report.public_share)
    expect([shares.leader, shares.helper].map(hex)).toEqual(report.input_shares)
  }
  return given.reports.length
}

const circuitOf = (name: string, given: Entry): Circuit =>
  (name.startsWith('Prio3RankOne')
    ? rankOne(given.heads, given.largest, given.bound)
    : boundedVector(given.entries, given.largest, given.bound, given.signed))

const OURS = ours('prio3')

describe('vectors of our circuits', () => {
  test.each(namesIn(OURS, 'Prio3').filter((name) => /_\d+\.json/.test(name)))('%s', (name) => {
    const given = read(OURS, name)
    const circuit = circuitOf(name, given)
    expect(hex(circuit.parameters)).toBe(given.parameters)
    expect(circuit.identifier).toBe(parseInt(given.algorithm_id, 16))
    expect(checkShares(circuit, given)).toBeGreaterThan(0)
  })

  test('nothing is shared of rows that break a rule', () => {
    const rows = rankOne(6, 100, 20_000)
    for (const bad of [[101, 0, 0, 0, 0, 0], [-1, 0, 0, 0, 0, 0], [0.5, 0, 0, 0, 0, 0], [1],
      [100, 100, 1, 0, 0, 0]]) expect(() => rows.encode(bad)).toThrow(/nothing was shared/)
    expect(rows.encode([100, 100, 0, 0, 0, 0]).length).toBeGreaterThan(0)
    const unsigned = boundedVector(2, 24, 500, false)
    expect(() => unsigned.encode([-1, 0])).toThrow(/nothing was shared/)
    expect(() => unsigned.encode([24, 1])).toThrow(/nothing was shared/)
    expect(boundedVector(2, 24, 600, true).encode([-24, 4])).toBeDefined()
  })
})

// The official circuit with this field, hash and joint randomness, here only: it tests the framework.

class SumVec implements Circuit {
  readonly identifier = 0xffffffff
  readonly parameters = unhex('')
  readonly degree = 2
  readonly length: number
  readonly randomLength: number
  readonly calls: number
  readonly arity: number
  constructor(length: number, private readonly bits: number, private readonly chunk: number) {
    this.length = length * bits
    this.calls = Math.ceil(this.length / chunk)
    this.randomLength = this.calls
    this.arity = 2 * chunk
  }
  encode(values: number[]): Vector {
    return vectorOf(values.flatMap((value) => Array.from({ length: this.bits }, (_, bit) => (value >> bit) & 1)))
  }
  wires(vector: Vector, joint: Vector): Vector {
    const out = zeros(this.calls * this.arity)
    const [one, padded] = [vectorOf([1]), zeros(this.calls * this.chunk)]
    padded.set(vector)
    for (let call = 0; call < this.calls; call++) {
      const factors = powers(joint, call, this.chunk)
      for (let at = 0; at < this.chunk; at++) {
        const item = call * this.chunk + at
        mulAt(out, 2 * item, padded, item, factors, at)
        subAt(out, 2 * item + 1, padded, item, one, 0)
      }
    }
    return out
  }
  gadget(points: readonly Vector[], count: number): Vector {
    const [out, term] = [zeros(count), zeros(1)]
    for (let wire = 0; wire < points.length; wire += 2) {
      for (let at = 0; at < count; at++) {
        mulAt(term, 0, points[wire], at, points[wire + 1], at)
        addAt(out, at, out, at, term, 0)
      }
    }
    return out
  }
}

describe.skipIf(!hasOfficial)('official vectors', () => {
  test('XofTurboShake128', () => {
    const given = read(OFFICIAL, 'XofTurboShake128.json')
    const inputs = [given.dst, given.seed, given.binder].map(unhex)
    const expected: Bytes = concat(unhex(given.expanded_vec_field128))
    const [dst, seed, binder] = inputs
    expect(hex(deriveSeed(dst, seed, 32, binder))).toBe(given.derived_seed)
    expect(hex(deriveSeed(dst, seed, expected.length, binder))).toBe(given.expanded_vec_field128)
  })

  // Others of these files have three servers, or proofs of Field128: no task of ours has.
  test.each([0])('Prio3SumVecWithMultiproof_%i', (number) => {
    const given = read(OFFICIAL, `Prio3SumVecWithMultiproof_${number}.json`)
    const bits = given.bits ?? given.max_measurement.toString(2).length
    const circuit = new SumVec(given.length, bits, given.chunk_length)
    expect(given.shares).toBe(2)
    expect(checkShares(circuit, given)).toBeGreaterThan(0)
    expect(encoded(circuit.encode([1])).length).toBe(8 * bits)
  })
})
