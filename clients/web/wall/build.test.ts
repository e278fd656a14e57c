import { execFileSync } from 'node:child_process'
import { appendFileSync, cpSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { build } from 'vite'
import { afterAll, beforeAll, expect, test } from 'vitest'

import { buildAll, digestOf } from '../build.mjs'

const ROOT = join(import.meta.dirname, '..')
const KB = 1024
const folder = mkdtempSync(join(tmpdir(), 'built-'))
const PARTS = ['page', 'extension-chromium', 'extension-firefox']
let digests: Record<string, string>

beforeAll(async () => { digests = await buildAll(folder) })
afterAll(() => rmSync(folder, { recursive: true }))

const text = (part: string, name: string): string => readFileSync(join(folder, part, name), 'utf8')
const named = (part: string, ending: string): string[] =>
  readdirSync(join(folder, part)).filter((name) => name.endsWith(ending))

test('two clean builds are equal to the byte, elsewhere and at another time', () => {
  const copy = join(folder, 'copy')
  for (const name of readdirSync(ROOT).filter((each) => !['node_modules', 'dist'].includes(each))) {
    cpSync(join(ROOT, name), join(copy, name), { recursive: true, filter: (path) => !path.includes('node_modules') })
  }
  symlinkSync(join(ROOT, 'node_modules'), join(copy, 'node_modules'))
  const env = { ...process.env, TZ: 'Asia/Tokyo', LANG: 'tr_TR.UTF-8' }
  const printed = execFileSync(process.execPath, ['build.mjs'], { cwd: copy, env, encoding: 'utf8' })
  expect(printed.trim().split('\n')).toEqual(PARTS.map((part) => `${digests[part]}  ${part}`))
  for (const part of PARTS) {
    for (const name of readdirSync(join(folder, part))) {
      expect(readFileSync(join(copy, 'dist', part, name)).equals(readFileSync(join(folder, part, name))), name).toBe(true)
    }
  }
})

test.each(PARTS)('the digest that people see is that of the files: %s', (part) => {
  const shown = named(part, '.html').map((name) => /data-digest="(\w+)"/.exec(text(part, name))?.[1])
  expect(shown).toContain(digests[part])
  expect(digestOf(join(folder, part))).toBe(digests[part])
  const changed = join(folder, 'changed')
  for (const name of readdirSync(join(folder, part))) {
    rmSync(changed, { recursive: true, force: true })
    cpSync(join(folder, part), changed, { recursive: true })
    appendFileSync(join(changed, name), ' ')
    expect(digestOf(changed), name).not.toBe(digests[part])
  }
})

test.each(PARTS)('documents have a policy, scripts of their own, and frames that may do nothing else: %s', (part) => {
  for (const name of named(part, '.html')) {
    const page = text(part, name)
    const policy = /<meta http-equiv="Content-Security-Policy" content="([^"]+)">/.exec(page)
    expect(policy?.[1], name).toMatch(/^default-src 'none'; .*require-trusted-types-for 'script'/)
    expect(policy?.[1], name).not.toMatch(/unsafe|\*/)
    expect(page.indexOf('<script'), name).toBeGreaterThan(page.indexOf('Content-Security-Policy'))
    expect(page.replaceAll(/<script defer src="\w+\.js"><\/script>/g, ''), name).not.toMatch(/<script|\son\w+=|style=|javascript:/)
    for (const [frame] of page.matchAll(/<iframe[^>]*>/g)) expect(frame).toContain(' sandbox="allow-scripts" src="')
  }
})

test('the extensions ask for alarms and a document that nobody sees, and for no host', () => {
  for (const [part, wanted] of [
    ['extension-chromium', ['alarms', 'offscreen']], ['extension-firefox', ['alarms']],
  ] as const) {
    const manifest = JSON.parse(text(part, 'manifest.json'))
    expect(manifest.permissions).toEqual(wanted)
    expect(Object.keys(manifest).filter((key) => /host|optional|content_scripts|accessible|externally/.test(key))).toEqual([])
    expect(manifest.content_security_policy.extension_pages).toContain("connect-src 'none'")
  }
})

const sizeOf = async (entry: string): Promise<number> => {
  const [{ output }] = await build({
    root: ROOT, configFile: false, logLevel: 'silent',
    build: { write: false, target: 'es2022', minify: 'esbuild', lib: { entry: join(ROOT, entry), formats: ['iife'], name: 'it' } },
  }) as unknown as { output: { code: string }[] }[]
  return output[0].code.length
}

test('the core, and the app beside it, are as small as promised: minified, not compressed', async () => {
  const core = await sizeOf('core/src/index.ts')
  const whole = named('page', '.js').reduce((sum, name) => sum + text('page', name).length, 0)
  console.info(`core ${core}, all scripts of the page ${whole} bytes`)
  expect(core).toBeLessThanOrEqual(60 * KB)
  expect(whole - core).toBeLessThanOrEqual(120 * KB)
})
