/** The two circuits; what they prove, and how soundly, is in Python's `prio/{rank_one,bounded_vector}.py`. */

import { type Vector, addAt, mulAt, powers, secretVector, subAt, vectorOf, zeros } from './field.ts'
import { type Bytes, bigEndian, concat } from './platform.ts'
import { type Circuit, bestChunk, bitLength } from './prio3.ts'

const stated = (...parameters: readonly number[]): Bytes => concat(...parameters.map((each) => bigEndian(each, 8)))

/** Return what is left of the bound; RangeError, with nothing shared, if the row is off its range. */
function restOf(row: readonly number[], length: number, lowest: number, largest: number, bound: number): number {
  const rest = bound - row.reduce((sum, each) => sum + each * each, 0)
  const right = row.every((each) => Number.isInteger(each) && each >= lowest && each <= largest)
  if (row.length !== length || !right || rest < 0) throw new RangeError('a row is off its range; nothing was shared')
  return rest
}

/** What bits count of numbers from 0 to `largest`: all ones are just that. */
function weightsOf(largest: number): number[] {
  const below = bitLength(largest) - 1
  return [...Array.from({ length: below }, (_, bit) => 2 ** bit), largest + 1 - 2 ** below]
}

function bitsOf(value: number, largest: number): number[] {
  const below = bitLength(largest) - 1
  const top = Number(value >= 2 ** below)
  const rest = value - (largest + 1 - 2 ** below) * top
  return [...Array.from({ length: below }, (_, bit) => Math.floor(rest / 2 ** bit) % 2), top]
}

/** Rank one: products of one row of so many heads, each at most `largest`, whose squares are at most `bound`. */
export function rankOne(heads: number, largest: number, bound: number): Circuit {
  const entries = weightsOf(largest)
  const bits = heads * entries.length + weightsOf(bound).length
  const chunk = bestChunk(bits + 1, 2, 2)
  const calls = Math.ceil((bits + 1) / chunk)
  return {
    identifier: 0xffff1002,
    parameters: stated(heads, largest, bound),
    degree: 2,
    length: bits + (heads * (heads + 1)) / 2,
    randomLength: 1 + heads,
    arity: 2 * chunk,
    calls,

    encode(row) {
      const rest = restOf(row, heads, 0, largest, bound)
      const each = row.map((value) => bitsOf(value, largest))
      const values = [...entries.flatMap((_, plane) => each.map((own) => own[plane])), ...bitsOf(rest, bound)]
      row.forEach((first, at) => {
        for (let other = at; other < row.length; other++) values.push(first * row[other])
      })
      return secretVector(values)
    },

    // For each bit, and for u a: it times its power of the randomness, and it less 1.
    wires(vector, joint) {
      const numbers = zeros(calls * chunk)
      numbers.set(vector.subarray(0, 2 * bits))
      const counts = vectorOf(entries)
      const [term, sum] = [zeros(1), zeros(1)]
      for (let head = 0; head < heads; head++) {
        sum.fill(0)
        entries.forEach((_, plane) => {
          mulAt(term, 0, vector, plane * heads + head, counts, plane)
          addAt(sum, 0, sum, 0, term, 0)
        })
        mulAt(term, 0, sum, 0, joint, 1 + head)
        addAt(numbers, bits, numbers, bits, term, 0)
      }
      const factors = powers(joint, 0, chunk)
      const one = vectorOf([1])
      const out = zeros(2 * calls * chunk)
      for (let at = 0; at < calls * chunk; at++) {
        mulAt(out, 2 * at, numbers, at, factors, at % chunk)
        subAt(out, 2 * at + 1, numbers, at, one, 0)
      }
      return out
    },

    // The sum over pairs of wires of their products.
    gadget(points, count) {
      const [out, term] = [zeros(count), zeros(1)]
      for (let wire = 0; wire < points.length; wire += 2) {
        for (let at = 0; at < count; at++) {
          mulAt(term, 0, points[wire], at, points[wire + 1], at)
          addAt(out, at, out, at, term, 0)
        }
      }
      return out
    },
  }
}

/** A vector of numbers up to `largest`, of either sign or not, whose squares are at most `bound`. */
export function boundedVector(entries: number, largest: number, bound: number, signed: boolean): Circuit {
  const reached = (half: number): number => (signed ? 2 : 4) * half * (half + 1)
  let half = 0
  while (reached(half) < largest) half++
  const reach = reached(half)
  const degree = 2 * half + 1
  const fill = Math.floor(bound / reach ** 2) + mostRoots(reach ** 2 - 1)
  const items = entries + fill
  const slots = bestChunk(items, 2, degree)
  const calls = Math.ceil(items / slots)
  const arity = 2 * slots
  return {
    identifier: 0xffff1003,
    parameters: stated(entries, largest, bound, Number(signed)),
    degree,
    length: 2 * items + calls,
    randomLength: 1,
    arity,
    calls,

    encode(row) {
      let rest = restOf(row, entries, signed ? -largest : 0, largest, bound)
      const every = [...row]
      for (let at = 0; at < fill; at++) {
        const root = Math.min(Math.floor(Math.sqrt(rest)), reach)
        every.push(root)
        rest -= root * root
      }
      const offset = signed ? half : 0
      const shifted = every.map((each) => each + offset * (degree + 1))
      const upper = shifted.map((each) => Math.floor(each / degree) - offset)
      const lower = shifted.map((each) => (each % degree) - offset)
      const subtotals: number[] = Array(calls).fill(0)
      every.forEach((each, at) => { subtotals[Math.floor(at / slots)] += each * each })
      return secretVector([...lower, ...upper, ...subtotals])
    },

    // For each call, its items' lower digits and then their upper ones.
    wires(vector) {
      const out = zeros(calls * arity)
      for (let at = 0; at < items; at++) {
        const to = Math.floor(at / slots) * arity + (at % slots)
        out.set(vector.subarray(2 * at, 2 * at + 2), 2 * to)
        out.set(vector.subarray(2 * (items + at), 2 * (items + at) + 2), 2 * (to + slots))
      }
      return out
    },

    // Both digits' constraints and the square of the entry, each with its factor, over all slots.
    gadget(points, count, joint) {
      const factors = powers(joint, 0, arity + 1)
      const constants = vectorOf([signed ? 0 : half, degree])
      const squares = vectorOf(Array.from({ length: half }, (_, k) => (k + 1) ** 2))
      const [out, product, square, term] = [zeros(count), zeros(1), zeros(1), zeros(1)]
      const digit = (wire: Vector, at: number, factor: number): void => {
        subAt(product, 0, wire, at, constants, 0)
        mulAt(square, 0, product, 0, product, 0)
        for (let k = 0; k < half; k++) {
          subAt(term, 0, square, 0, squares, k)
          mulAt(product, 0, product, 0, term, 0)
        }
        mulAt(product, 0, product, 0, factors, factor)
        addAt(out, at, out, at, product, 0)
      }
      for (let slot = 0; slot < slots; slot++) {
        const [lower, upper] = [points[slot], points[slots + slot]]
        for (let at = 0; at < count; at++) {
          digit(lower, at, slot)
          digit(upper, at, slots + slot)
          mulAt(term, 0, upper, at, constants, 1)
          addAt(term, 0, term, 0, lower, at)
          mulAt(term, 0, term, 0, term, 0)
          mulAt(term, 0, term, 0, factors, 2 * slots)
          addAt(out, at, out, at, term, 0)
        }
      }
      return out
    },
  }
}

/** So many largest roots are enough for any whole number up to this one. */
function mostRoots(number: number): number {
  let count = 0
  for (let least = 1; least <= number; count++) least += Math.floor((least + 1) / 2) ** 2
  return count
}
