import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import type { Browser, Page } from 'puppeteer-core'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'

import { buildAll } from '../build.mjs'
import { serve } from '../serve.mjs'
import { NAMES, launched } from './browsers.ts'

const folder = mkdtempSync(join(tmpdir(), 'shell-'))
const LINK = 'https://recommender.example/join#AAAA.BBBB'
let host: Awaited<ReturnType<typeof serve>>

beforeAll(async () => {
  // Stand where the app's worker and UI do: what a test says in the UI cell, the worker says to the shell, and back.
  writeFileSync(join(folder, 'worker.ts'), `
    addEventListener('message', ({ data: { ui, shell, link, host } }) => {
      ui.postMessage({ link, host })
      // By itself: whoever drives a browser taps whenever they say or open something.
      if (link === 'unasked') {
        setTimeout(() => shell.postMessage({ save: { name: 'unasked.hdpmf', bytes: new Uint8Array(1) } }), 1500)
      }
      ui.onmessage = ({ data }) => shell.postMessage(data)
      shell.onmessage = ({ data }) => ui.postMessage(data)
    }, { once: true })`)
  writeFileSync(join(folder, 'ui.ts'), `
    addEventListener('message', ({ data: { core } }) => {
      Object.assign(globalThis, { told: [], core })
      core.onmessage = ({ data }) => told.push(data)
    }, { once: true })`)
  await buildAll(folder, { entries: { worker: join(folder, 'worker.ts'), ui: join(folder, 'ui.ts') } })
  host = await serve(join(folder, 'page'))
})
afterAll(() => {
  host.close()
  rmSync(folder, { recursive: true })
})

const soon = (time = 400): Promise<void> => new Promise((go) => setTimeout(go, time))
const until = async <T>(what: () => Promise<T> | T): Promise<T> => {
  for (const end = Date.now() + 20_000; ; await soon(50)) {
    const found = await what()
    if (found || Date.now() > end) return found
  }
}

describe.each(NAMES)('%s', (name) => {
  let browser: Browser
  const downloads = join(folder, `downloads-${name}`)

  beforeAll(async () => {
    browser = await launched(name, {
      'browser.download.dir': downloads, 'browser.download.folderList': 2, 'browser.download.useDownloadDir': true,
      'dom.user_activation.transient.timeout': 500,
      'browser.download.always_ask_before_handling_new_types': false,
    })
    if (name === 'chromium') {
      const session = await browser.target().createCDPSession()
      await session.send('Browser.setDownloadBehavior', { behavior: 'allow', downloadPath: downloads })
    }
  }, 60_000)
  afterAll(() => browser.close())

  /** Open the app; `say` has the worker tell the shell something. */
  async function app(hash = '') {
    const page = await browser.newPage()
    await page.goto(`${host.address}/index.html${hash}`)
    const cell = page.frames().find((each) => each.url().endsWith('/ui.html'))!
    const told = (): Promise<any[]> => cell.evaluate(() => ((globalThis as any).told ?? []).map(
      (each: any) => (each.file ? { file: [...each.file] } : each)))
    await until(async () => (await told()).length)
    const say = (what: object): Promise<void> => cell.evaluate((sent) => {
      const revived = JSON.parse(sent, (key, value) => (key === 'bytes' ? Uint8Array.from(value) : value))
      ;(globalThis as any).core.postMessage(revived)
    }, JSON.stringify(what))
    return { page, told, say }
  }
  const tap = (page: Page): Promise<void> => page.mouse.click(200, 200)
  const saved = (): string[] => (existsSync(downloads) ? readdirSync(downloads).filter((each) => !each.endsWith('.part')) : [])
  const FILE = { save: { name: 'device.hdpmf', bytes: [1, 2, 250] } }

  test('an invitation reaches the worker, and is gone from the address', async () => {
    const { page, told } = await app(`#${LINK}`)
    const [{ link, host: { origin, kind, digest } }] = await told()
    expect([link, origin, kind]).toEqual([LINK, host.address, 'page'])
    expect(digest).toMatch(/^[0-9a-f]{64}$/)
    expect(await page.evaluate(() => location.href)).toBe(`${host.address}/index.html`)
    await page.evaluate((given) => void (location.hash = given), LINK)
    await until(async () => (await told()).length === 2)
    expect((await told())[1]).toEqual({ link: LINK })
    expect(await page.evaluate(() => location.href)).toBe(`${host.address}/index.html`)
    await page.close()
  })

  test('nothing is opened, and nothing saved unless the person tapped, under a name for it', async () => {
    const alone = await browser.newPage()
    await alone.goto(`${host.address}/index.html#unasked`)
    await soon(3500)
    expect(saved()).toEqual([])
    await alone.close()
    const { page, say } = await app()
    const pages = (await browser.pages()).length
    for (const what of [
      { open: 'https://recommender.example/?rating=5' }, { open: 'javascript:alert(1)' }, { open: `${host.address}/index.html` },
      { save: { name: '../device.hdpmf', bytes: [1] } }, { save: { name: 'rating.exe', bytes: [1] } }, { save: { name: 'a.json' } },
    ]) {
      await tap(page)
      await say(what)
    }
    await soon()
    expect(saved()).toEqual([])
    expect((await browser.pages()).length).toBe(pages)
    await page.close()
  })

  test('after a tap a file is saved, and one is chosen', async () => {
    const { page, told, say } = await app()
    await tap(page)
    await say(FILE)
    const file = join(downloads, 'device.hdpmf')
    // Browsers make the file first, and write it then.
    await until(() => saved().includes('device.hdpmf') && readFileSync(file).length > 0)
    expect([...readFileSync(file)]).toEqual([1, 2, 250])
    if (name === 'chromium') {
      await tap(page)
      const [chooser] = await Promise.all([page.waitForFileChooser(), say({ choose: true })])
      await chooser.accept([file])
      await until(async () => (await told()).length === 2)
      expect((await told())[1]).toEqual({ file: [1, 2, 250] })
    }
    await page.close()
  })

  test('the newest page has the core; in a frame there is none', async () => {
    const first = await app()
    const second = await app()
    expect(await until(() => first.page.evaluate(() => 'elsewhere' in document.body.dataset))).toBe(true)
    expect([first.page.workers().length, second.page.workers().length]).toEqual([0, 1])
    const framing = createServer((_, response) => {
      response.setHeader('content-type', 'text/html').end(`<iframe src="${host.address}/index.html"></iframe>`)
    })
    await new Promise<void>((go) => framing.listen(0, '127.0.0.1', go))
    const page = await browser.newPage()
    await page.goto(`http://localhost:${(framing.address() as AddressInfo).port}/`)
    await soon(1000)
    expect([page.workers().length, second.page.workers().length]).toEqual([0, 1])
    framing.close()
    await Promise.all([first.page, second.page, page].map((each) => each.close()))
  })

  test.runIf(name === 'chromium')('the page can be installed', async () => {
    const { page } = await app()
    const session = await page.createCDPSession()
    const { installabilityErrors } = await session.send('Page.getInstallabilityErrors')
    expect(installabilityErrors.filter(({ errorId }) => errorId !== 'in-incognito')).toEqual([])
    await page.close()
  })
})
