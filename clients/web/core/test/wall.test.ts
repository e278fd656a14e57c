import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'

import { build } from 'vite'
import { expect, test } from 'vitest'

/** Ways out of a worker or a page, as names; none of them may be in what is shipped. */
const WAYS = [
  'fetch', 'XMLHttpRequest', 'WebSocket', 'WebTransport', 'EventSource', 'sendBeacon',
  'RTCPeerConnection', 'importScripts', 'Worker', 'SharedWorker', 'BroadcastChannel', 'window',
  'location', 'navigator', 'caches', 'Image', 'eval', 'Function', 'self', 'postMessage',
]

const wayIn = (code: string): string[] =>
  WAYS.filter((way) => new RegExp(`(?<![\\w.$'"\`-])${way}(?![\\w$:'"\`-])`).test(code))

const bundled = async (entry: string): Promise<string> => {
  const built = await build({
    configFile: false,
    logLevel: 'silent',
    build: {
      write: false, minify: false, target: 'es2022',
      lib: { entry, formats: ['es'] },
    },
  })
  const [{ output }] = built as unknown as { output: { code: string }[] }[]
  return output.map(({ code }) => code).join('\n')
}

/** Code without comments and texts, in which a word is only a word. */
const bare = (code: string): string =>
  code.replace(/\/\*[\s\S]*?\*\/|(?<=^|\s)\/\/[^\n]*|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"/g, '""')

test.each([['src', 40_000], ['lists', 10_000]])('nothing in %s names a way out, or imports at run time', async (folder, least) => {
  const code = bare(await bundled(join(import.meta.dirname, '..', folder, 'index.ts')))
  expect(code.length).toBeGreaterThan(least)
  expect(wayIn(code)).toEqual([])
  expect(code).not.toMatch(/\bimport\s*\(|^import\b/m)
})

test('the search finds ways out where there are some', () => {
  for (const way of ['fetch(url)', 'new WebSocket(url)', 'globalThis[x] ; new Worker(u)', 'eval(x)']) {
    expect(wayIn(way), way).toHaveLength(1)
  }
  expect(wayIn('const prefetched = a.b')).toEqual([])
})

test('sources import each other, and one audited package of hashes', () => {
  const imported = ['src', 'lists'].flatMap((folder) => {
    const path = join(import.meta.dirname, '..', folder)
    return readdirSync(path).flatMap((name) =>
      [...readFileSync(join(path, name), 'utf8').matchAll(/from '([^']+)'/g)].map(([, from]) => from))
  })
  const others = new Set(imported.filter((name) => !/^(\.|\.\.\/src)\/\w+\.ts$/.test(name)))
  expect([...others].every((name) => name.startsWith('@noble/hashes/'))).toBe(true)
  expect(others.size).toBeGreaterThan(2)
})

test.each([['src', 2500], ['lists', 800]])('%s is small enough to be read', (folder, most) => {
  const path = join(import.meta.dirname, '..', folder)
  const lines = readdirSync(path).flatMap((name) => readFileSync(join(path, name), 'utf8').trimEnd().split('\n'))
  expect(lines.length).toBeLessThanOrEqual(most)
  expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(120)
})

test('a whole report has the sizes that the servers expect', async () => {
  const { boundedVector, rankOne } = await import('../src/circuits.ts')
  const { RANDOM_SIZE, shard } = await import('../src/prio3.ts')
  const random = (size: number) => globalThis.crypto.getRandomValues(new Uint8Array(size))
  const begin = process.cpuUsage()
  const both = [
    boundedVector(7413, 255, 2 * (2 ** 20 - 1), true), rankOne(300, 1023, 2 ** 24 - 1),
  ]
  const sizes = both.map((circuit, at) => {
    const row = Array.from({ length: at === 0 ? 7413 : 300 }, (_, place) => (place % 40 === 0 ? 9 : 0))
    return shard(circuit, random(38), row, random(16), random(RANDOM_SIZE)).leader.length
  })
  expect(sizes).toEqual([148_184, 390_824])
  const { user } = process.cpuUsage(begin)
  console.info(`popularity, values (3,706 items) and pairs (300 heads): ${(user / 1e6).toFixed(2)} s`)
})
