/**
 * Field64 of the draft, p = 2^64 - 2^32 + 1, and polynomials by their values at roots of unity.
 *
 * A vector has two words of 32 bits per element, the lower first, so that its bytes are its encoding. Shares are
 * secret: nothing here branches or looks up by value. JavaScript promises no more than that about time.
 */

export type Vector = Uint32Array<ArrayBuffer>

export const MODULUS = (1n << 64n) - (1n << 32n) + 1n
const [WORD, PART, OFFSET] = [2 ** 32, 2 ** -32, 2 ** 52]
const GENERATOR = 7n // of the multiplicative group

if (new Uint8Array(new Uint32Array([1]).buffer)[0] !== 1) {
  throw new Error('this machine keeps numbers with their highest byte first; it is not supported')
}

export const zeros = (count: number): Vector => new Uint32Array(2 * count)

/** Public whole numbers, negative ones too, as elements. */
export const vectorOf = (values: readonly (bigint | number)[]): Vector => new Uint32Array(
  BigUint64Array.from(values, (value) => ((BigInt(value) % MODULUS) + MODULUS) % MODULUS).buffer)

/** Secret whole numbers below 2^52 as elements: the same steps whatever their sign. */
export function secretVector(values: ArrayLike<number>): Vector {
  const out = zeros(values.length)
  const offset = vectorOf([OFFSET])
  for (let at = 0; at < values.length; at++) {
    const moved = values[at] + OFFSET
    out[2 * at] = moved % WORD
    out[2 * at + 1] = Math.floor(moved * PART)
    subAt(out, at, out, at, offset, 0)
  }
  return out
}

/** Return a vector's bytes, little-endian. */
export const encoded = ({ buffer, byteOffset, byteLength }: Vector) => new Uint8Array(buffer, byteOffset, byteLength)

/** out[o] = a[i] + b[j]. */
export function addAt(out: Vector, o: number, a: Vector, i: number, b: Vector, j: number): void {
  settle(out, o, a[2 * i] + b[2 * j], a[2 * i + 1] + b[2 * j + 1])
}

/** out[o] = a[i] - b[j]. */
export function subAt(out: Vector, o: number, a: Vector, i: number, b: Vector, j: number): void {
  settle(out, o, a[2 * i] - b[2 * j], a[2 * i + 1] - b[2 * j + 1])
}

/** out[o] = a[i] b[j]. */
export function mulAt(out: Vector, o: number, a: Vector, i: number, b: Vector, j: number): void {
  const al = a[2 * i]
  const ah = a[2 * i + 1]
  const bl = b[2 * j]
  const bh = b[2 * j + 1]
  // The lower word of a product is exact by imul; a product of doubles is off by less than 2^11, so
  // that what is left of it, rounded, is the upper word.
  const r0 = Math.imul(al, bl) >>> 0
  const first = ((al * bl - r0) * PART + 0.5) >>> 0
  const low1 = Math.imul(al, bh) >>> 0
  const high1 = ((al * bh - low1) * PART + 0.5) >>> 0
  const low2 = Math.imul(ah, bl) >>> 0
  const high2 = ((ah * bl - low2) * PART + 0.5) >>> 0
  const low3 = Math.imul(ah, bh) >>> 0
  const high3 = ((ah * bh - low3) * PART + 0.5) >>> 0
  const middle = first + low1 + low2
  const r1 = middle >>> 0
  const top = high1 + high2 + low3 + (middle - r1) * PART
  const r2 = top >>> 0
  const r3 = high3 + (top - r2) * PART
  settle(out, o, r0 - r2 - r3, r1 + r2) // 2^64 = 2^32 - 1 and 2^96 = -1
}

/** Store a number of two words, which may be too large or negative, as what it is modulo p. */
function settle(out: Vector, o: number, lower: number, upper: number): void {
  const borrow = Math.floor(lower * PART)
  let low = lower - borrow * WORD
  let high = upper + borrow
  const over = Math.floor(high * PART)
  high += over - over * WORD
  low -= over
  const last = Math.floor(low * PART)
  low = (low - last * WORD) | 0
  high = (high + last) | 0
  // Less p where it is not below it.
  const past = ~high
  const above = (~(past | -past) >>> 31) & ((low | -low) >>> 31)
  const less = (low - above) | 0
  out[2 * o] = less
  out[2 * o + 1] = high + above - ((~low & less) >>> 31)
}

export function sub(a: Vector, b: Vector): Vector {
  const out = zeros(a.length / 2)
  for (let at = 0; at < a.length / 2; at++) subAt(out, at, a, at, b, at)
  return out
}

/** So many powers of an element, from the first one on. */
export function powers(base: Vector, at: number, count: number): Vector {
  const out = zeros(count)
  out.set(base.subarray(2 * at, 2 * at + (count > 0 ? 2 : 0)))
  for (let k = 1; k < count; k++) mulAt(out, k, out, k - 1, base, at)
  return out
}

export function power(base: bigint, exponent: bigint, modulus: bigint): bigint {
  let found = 1n
  let square = base % modulus
  for (let rest = exponent; rest > 0n; rest >>= 1n) {
    if (rest & 1n) found = (found * square) % modulus
    square = (square * square) % modulus
  }
  return found
}

const known = new Map<number, Vector>()

/** The powers of a root of unity, from 1 on; of a negative size, of its inverse. */
function roots(size: number): Vector {
  let found = known.get(size)
  if (found === undefined) {
    const exponent = (MODULUS - 1n) / BigInt(Math.abs(size))
    const root = power(GENERATOR, size > 0 ? exponent : MODULUS - 1n - exponent, MODULUS)
    found = vectorOf([1, ...Array(Math.abs(size) / 2 - 1).fill(0)])
    found.set(powers(vectorOf([root]), 0, Math.abs(size) / 2 - 1), 2)
    known.set(size, found)
  }
  return found
}

/** Values of a polynomial at the powers of a root (of so many), from `count` coefficients. */
function transform(coefficients: Vector, count: number, size: number, root: Vector): Vector {
  const out = zeros(size)
  const bits = Math.log2(count)
  let half = size / count
  for (let block = 0, from = 0; block < count; block++, from = 0) {
    for (let bit = 0; bit < bits; bit++) from |= ((block >> bit) & 1) << (bits - 1 - bit)
    const coefficient = coefficients.subarray(2 * from, 2 * from + 2)
    for (let at = block * half; at < (block + 1) * half; at++) out.set(coefficient, 2 * at)
  }
  const product = zeros(1)
  for (; half < size; half *= 2) {
    const step = size / (2 * half)
    for (let start = 0; start < size; start += 2 * half) {
      for (let k = 0; k < half; k++) {
        const low = start + k
        mulAt(product, 0, out, low + half, root, k * step)
        subAt(out, low + half, out, low, product, 0)
        addAt(out, low, out, low, product, 0)
      }
    }
  }
  return out
}

/** A polynomial, given by its values at all powers of a root of unity, at those of another. */
export function extended(values: Vector, size: number): Vector {
  const span = values.length / 2
  const part = vectorOf([power(BigInt(span), MODULUS - 2n, MODULUS)])
  const coefficients = transform(values, span, span, roots(-span))
  for (let at = 0; at < span; at++) mulAt(coefficients, at, coefficients, at, part, 0)
  return transform(coefficients, span, size, roots(size))
}
