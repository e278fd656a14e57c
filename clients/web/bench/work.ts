/** What a device does for its owner: reports, and a list, of a catalogue of MovieLens-1M's size. */

import { Lists } from '../core/lists/index.ts'
import { boundedVector, rankOne } from '../core/src/circuits.ts'
import { canonical, fileDigest } from '../core/src/documents.ts'
import { LEVELS, itemsOf, newState } from '../core/src/index.ts'
import { random, utf8 } from '../core/src/platform.ts'
import { RANDOM_SIZE, shard } from '../core/src/prio3.ts'
import type { Joined, State } from '../core/src/state.ts'

const [ITEMS, HEADS, DIRECTIONS, RATED] = [3706, 300, 64, 120]
const ADDRESS = 'https://films.example'

const row = (length: number): number[] => Array.from({ length }, (_, at) => (at % 40 === 0 ? 9 : 0))

const share = (circuit: ReturnType<typeof rankOne>, length: number) => (): void => {
  shard(circuit, random(38), row(length), random(16), random(RANDOM_SIZE))
}

/** A device with a model whose numbers are drawn: how long a list takes does not depend on them. */
function device(): State {
  const genres = ['Action', 'Comedy', 'Crime', 'Drama', 'Family', 'Horror', 'Musical', 'Romance', 'War', 'Western']
  const ids = Array.from({ length: ITEMS }, (_, at) => String(at + 1))
  const link = { content: '', items: ITEMS, number: 1, previous: '', retired: [], signature: '' }
  const table = {
    audiences: [], genres: ids.map((_, at) => [genres[at % 10], genres[(at >> 3) % 10]]), ids, integer_ids: true,
    scale_high: 5, scale_low: 1, scale_step: 1, titles: ids, type: 'items', version: 2, years: ids.map((_, at) => 1930 + (at % 80)),
  }
  const catalogue = utf8(canonical({ key: '', links: [link], table, type: 'catalogue', version: 2 }))
  const files: Record<string, ReturnType<typeof utf8>> = { [fileDigest(catalogue)]: catalogue }
  const state = (joined: Partial<Joined>): State =>
    ({ ...newState(LEVELS.middle), files, joined: [{ invitation: { address: ADDRESS }, ...joined } as Joined] })
  const joined = { catalogue: fileDigest(catalogue) }
  const { fingerprint } = itemsOf(state(joined), joined as Joined)
  const add = (kind: string, shape: number[], numbers: ArrayBufferView): object => {
    const data = new Uint8Array(numbers.buffer as ArrayBuffer)
    files[fileDigest(data)] = data
    return { kind, sha256: fileDigest(data), shape }
  }
  const floats = (length: number) => Float32Array.from({ length }, Math.random)
  const small = () => Int8Array.from({ length: HEADS * DIRECTIONS }, () => Math.random() * 99)
  const arrays = {
    bias: add('f4', [ITEMS], floats(ITEMS)), variance: add('f4', [ITEMS], floats(ITEMS)),
    popularity: add('f4', [ITEMS], floats(ITEMS).map((each) => 2000 * each ** 3)),
    heads: add('u4', [HEADS], Uint32Array.from({ length: HEADS }, (_, at) => 12 * at)),
    encode: add('i1', [HEADS, DIRECTIONS], small()), decode: add('i1', [HEADS, DIRECTIONS], small()),
    'encode-unit': add('f4', [DIRECTIONS], floats(DIRECTIONS)), 'decode-unit': add('f4', [DIRECTIONS], floats(DIRECTIONS)),
    stars: add('f2', [HEADS, DIRECTIONS], Uint16Array.from({ length: HEADS * DIRECTIONS }, () => 0x3000)),
    'stars-rest': add('f4', [HEADS], floats(HEADS)),
  }
  const model = utf8(canonical({
    arrays, catalogue: fingerprint, mean: 3.5, reports: [1, 1],
    run: 'A'.repeat(22), type: 'model', version: 2,
  }))
  files[fileDigest(model)] = model
  const own = ids.filter((_, at) => at % 31 === 0).slice(0, RATED)
  return {
    ...state({ ...joined, model: fileDigest(model) }),
    ratings: { [ADDRESS]: Object.fromEntries(own.map((item, at) => [item, { value: 1 + (at % 5), weight: 1000, at }])) },
  }
}

const state = device()
const list = (): void => {
  Lists.of(state, ADDRESS, 1_900_000_000)?.recommend({ n: 20 })
}

/** What is timed, in this order. */
export const works: Record<string, () => void> = {
  [`report: popularity and values, ${ITEMS} items`]: share(boundedVector(2 * ITEMS + 1, 255, 2 * (2 ** 20 - 1), true), 2 * ITEMS + 1),
  [`report: pairs, ${HEADS} heads`]: share(rankOne(HEADS, 1023, 2 ** 24 - 1), HEADS),
  'first list of a model': list,
  'list after a rating': list,
}
