/** Numbers row by row, and systems of equations of the size of a person's taste. */

export interface Matrix {
  readonly width: number
  readonly data: Float64Array
}

export const rowOf = (matrix: Matrix, row: number): Float64Array =>
  matrix.data.subarray(row * matrix.width, (row + 1) * matrix.width)

/** Return a matrix of columns of one length. */
export function ofColumns(columns: readonly ArrayLike<number>[], rows: number): Matrix {
  const width = columns.length
  const data = new Float64Array(rows * width)
  columns.forEach((column, place) => {
    for (let row = 0; row < rows; row++) data[row * width + place] = column[row]
  })
  return { width, data }
}

export function dot(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let found = 0
  for (let at = 0; at < a.length; at++) found += a[at] * b[at]
  return found
}

export const total = (values: ArrayLike<number>): number => {
  let found = 0
  for (let at = 0; at < values.length; at++) found += values[at]
  return found
}

/** Add a row's outer product with itself, times a factor, to a square matrix. */
export function addSquare(square: Matrix, row: ArrayLike<number>, factor: number): void {
  const { width, data } = square
  for (let a = 0; a < width; a++) {
    const scaled = factor * row[a]
    if (scaled === 0) continue
    for (let b = 0; b < width; b++) data[a * width + b] += scaled * row[b]
  }
}

/** Solve a positive definite system, by Cholesky's factors. */
export function solved({ width, data }: Matrix, right: Float64Array): Float64Array {
  const lower = Float64Array.from(data)
  const found = Float64Array.from(right)
  for (let a = 0; a < width; a++) {
    for (let b = 0; b <= a; b++) {
      let rest = lower[a * width + b]
      for (let k = 0; k < b; k++) rest -= lower[a * width + k] * lower[b * width + k]
      lower[a * width + b] = a === b ? Math.sqrt(rest) : rest / lower[b * width + b]
    }
    for (let k = 0; k < a; k++) found[a] -= lower[a * width + k] * found[k]
    found[a] /= lower[a * width + a]
  }
  for (let a = width - 1; a >= 0; a--) {
    for (let k = a + 1; k < width; k++) found[a] -= lower[k * width + a] * found[k]
    found[a] /= lower[a * width + a]
  }
  return found
}
