import { describe, expect, test } from 'vitest'

import { type RowPrio, boundedVector, rankOne } from '../src/circuits.ts'
import {
  MODULUS, type Vector, addAt, elementAt, encoded, mulAt, powers, secretVector, subAt, vectorOf, zeros,
} from '../src/field.ts'
import { type Circuit, Prio3 } from '../src/prio3.ts'
import { concat, deriveSeed } from '../src/xof.ts'
import { OFFICIAL, type Bytes, type Entry, hasOfficial, hex, namesIn, ours, read, unhex } from './files.ts'

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

function checkShares(prio: Prio3, encode: (measurement: Entry) => Vector, given: Entry): number {
  for (const report of given.reports) {
    const shares = prio.shard(encode(report.measurement), unhex(report.nonce), unhex(report.rand))
    expect(hex(shares.publicShare)).toBe(report.public_share)
    expect([shares.leader, shares.helper].map(hex)).toEqual(report.input_shares)
  }
  return given.reports.length
}

function ourPrio(name: string, given: Entry): RowPrio {
  const context = unhex(given.ctx)
  return name.startsWith('Prio3RankOne')
    ? rankOne(given.heads, given.largest, given.bound, context)
    : boundedVector(given.entries, given.largest, given.bound, given.signed, context)
}

const OURS = ours('prio3')

describe('vectors of our circuits', () => {
  test.each(namesIn(OURS, 'Prio3').filter((name) => /_\d+\.json/.test(name)))('%s', (name) => {
    const given = read(OURS, name)
    const prio = ourPrio(name, given)
    expect(hex(prio.parameters)).toBe(given.parameters)
    expect(prio.identifier).toBe(parseInt(given.algorithm_id, 16))
    expect(checkShares(prio, (row) => prio.rows.encode(row), given)).toBeGreaterThan(0)
  })

  test('nothing is shared of rows that break a rule', () => {
    const rows = rankOne(6, 100, 20_000, unhex('')).rows
    for (const bad of [[101, 0, 0, 0, 0, 0], [-1, 0, 0, 0, 0, 0], [0.5, 0, 0, 0, 0, 0], [1],
      [100, 100, 1, 0, 0, 0]]) expect(() => rows.encode(bad)).toThrow(/nothing was shared/)
    expect(rows.encode([100, 100, 0, 0, 0, 0]).length).toBeGreaterThan(0)
    const unsigned = boundedVector(2, 24, 500, false, unhex('')).rows
    expect(() => unsigned.encode([-1, 0])).toThrow(/nothing was shared/)
    expect(() => unsigned.encode([24, 1])).toThrow(/nothing was shared/)
    expect(boundedVector(2, 24, 600, true, unhex('')).rows.encode([-24, 4])).toBeDefined()
  })
})

// The official circuits with this field and hash, here only: they test the framework.

class Count implements Circuit {
  readonly length = 1
  readonly randomLength = 0
  readonly arity = 2
  readonly degree = 2
  readonly calls = 1
  wires(vector: Vector): Vector {
    return new Uint32Array([...vector, ...vector])
  }
  gadget(points: readonly Vector[], count: number): Vector {
    const out = zeros(count)
    for (let at = 0; at < count; at++) mulAt(out, at, points[0], at, points[1], at)
    return out
  }
}

class SumVec implements Circuit {
  readonly degree = 2
  readonly length: number
  readonly randomLength: number
  readonly calls: number
  readonly arity: number
  constructor(length: number, bits: number, private readonly chunk: number) {
    this.length = length * bits
    this.calls = Math.ceil(this.length / chunk)
    this.randomLength = this.calls
    this.arity = 2 * chunk
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
    const inputs = [unhex(given.dst), unhex(given.seed), [unhex(given.binder)]] as const
    const expected: Bytes = concat(unhex(given.expanded_vec_field128))
    expect(hex(deriveSeed(...inputs, 32))).toBe(given.derived_seed)
    expect(hex(deriveSeed(...inputs, expected.length))).toBe(given.expanded_vec_field128)
  })

  // Others of these files have three servers, or proofs of Field128: no task of ours has.
  test.each([0, 2])('Prio3Count_%i', (number) => {
    const given = read(OFFICIAL, `Prio3Count_${number}.json`)
    const prio = new Prio3(new Count(), 1, 1, unhex(given.ctx), unhex(''))
    expect(checkShares(prio, (value) => vectorOf([Number(value)]), given)).toBeGreaterThan(0)
  })

  test.each([0])('Prio3SumVecWithMultiproof_%i', (number) => {
    const given = read(OFFICIAL, `Prio3SumVecWithMultiproof_${number}.json`)
    const bits = given.bits ?? given.max_measurement.toString(2).length
    const circuit = new SumVec(given.length, bits, given.chunk_length)
    const prio = new Prio3(circuit, 0xffffffff, given.proofs ?? 3, unhex(given.ctx), unhex(''))
    const encode = (values: number[]): Vector => vectorOf(values.flatMap((value) =>
      Array.from({ length: bits }, (_, bit) => (value >> bit) & 1)))
    expect(given.shares).toBe(2)
    expect(checkShares(prio, encode, given)).toBeGreaterThan(0)
    expect(encoded(encode([1])).length).toBe(8 * bits)
  })
})
