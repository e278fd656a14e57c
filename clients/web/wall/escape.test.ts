import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, beforeAll, describe, expect, test } from 'vitest'

import { Adversary } from './adversary.ts'
import { NAMES } from './browsers.ts'
import { type Found, HOSTS, buildFree, buildHoled, buildTrying, run } from './run.ts'
import { ALL, TOGETHER } from './ways.ts'

/** Ways that the threat model says are open, by context: rows of its table. */
function named(context: string): string[] {
  const page = readFileSync(join(import.meta.dirname, '../../../docs/threat-model.md'), 'utf8')
  const row = page.split('\n').find((line) => line.startsWith(`| ${context} |`))
  return row!.split(' | ')[1].split(', ').sort()
}

const folder = mkdtempSync(join(tmpdir(), 'escape-'))
const found: Record<string, Found> = {}

beforeAll(async () => {
  const adversary = await Adversary.waiting()
  try {
    await Promise.all([buildTrying(folder), buildHoled(folder), buildFree(folder)])
    await Promise.all(NAMES.map(async (name) => (found[name] = await run(name, folder, adversary))))
  } finally {
    adversary.close()
  }
}, 240_000)
afterAll(() => rmSync(folder, { recursive: true }))

describe.each(NAMES)('%s', (name) => {
  test('many ways lead out of a page without a policy', () => {
    const { counted } = found[name]
    console.info(`${name}: ${counted.length} of ${Object.keys(ALL).length} ways reached the adversary from where nothing stops them`)
    expect(counted.length).toBeGreaterThanOrEqual(80) // a machine that is busy sees fewer
  })

  test('all ways were tried in all contexts', () => {
    expect(new Set(found[name].tried)).toEqual(new Set([1, TOGETHER.length]))
  })

  test.each(HOSTS)('nothing leaves the worker: %s', (host) => {
    expect(found[name].out[`${host} worker`]).toEqual([])
  })

  test.each(HOSTS)('what leaves the cells is named in the threat model: %s', (host) => {
    expect(named('UI cell')).toEqual(expect.arrayContaining([...found[name].out[`${host} ui`]]))
    expect(named('carrier cell')).toEqual(expect.arrayContaining([...found[name].out[`${host} carrier`]]))
  })

  test.runIf(name === 'chromium')('where a host sends headers, nothing leaves the UI cell', () => {
    expect(found[name].out['headed page ui']).toEqual([])
  })

  test('a hole in the policy is found', () => {
    const out = found[name].out['holed page worker']
    expect(out).toEqual(expect.arrayContaining(['fetch', 'WebSocket', 'XMLHttpRequest']))
  })
})

test('the threat model names nothing that is closed in both browsers', () => {
  for (const [context, row] of [['ui', 'UI cell'], ['carrier', 'carrier cell']]) {
    const out = NAMES.flatMap((name) => HOSTS.flatMap((host) => found[name].out[`${host} ${context}`]))
    expect([...new Set(out)].sort()).toEqual(named(row))
  }
})
