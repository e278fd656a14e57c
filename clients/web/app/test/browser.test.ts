import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import type { Browser, ElementHandle, Frame } from 'puppeteer-core'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'

import { MadeUp } from '../demo/world.ts'
import { type Opened, REPORTED, type Served, cell, changed, has, opened, served, started } from './browsing.ts'

const AXE = readFileSync(join(import.meta.dirname, '../../../../tests/e2e/axe.min.js'), 'utf8')
const { link } = await MadeUp.begin({ now: 1 })
const TABS = ['list', 'rate', 'saved', 'privacy'] as const

let site: Served
beforeAll(async () => { site = await served() }, 120_000)
afterAll(() => site?.close())

const turnTo = async (ui: Frame, tab: typeof TABS[number]): Promise<void> => {
  const button = `nav button:nth-of-type(${TABS.indexOf(tab) + 1})`
  await ui.click(button)
  await ui.waitForSelector(`${button}[aria-current]`)
}

/** Give stars to a title of the wall; puppeteer would tap what lies over it. */
async function rate(ui: Frame, at: number, stars: number, tap = (what: ElementHandle): Promise<void> => what.click()): Promise<void> {
  const label = (await (await ui.$$('.tile'))[at].$$('.stars label'))[stars - 1]
  await label.evaluate((each) => each.scrollIntoView({ block: 'center' }))
  await tap(label)
  await ui.waitForFunction((place: number) => document.querySelectorAll('.tile')[place].matches('.rated'), {}, at)
}

/** What axe finds, and what is wider than the screen. */
async function faultsOf({ page, ui }: Opened): Promise<string[]> {
  await ui.evaluate(AXE)
  const found: string[] = await ui.evaluate(`axe.run({ preload: false, rules: { 'target-size': { enabled: true } } }).then(
    ({ violations }) => violations.flatMap(({ id, nodes }) => nodes.map(({ target, html }) => id + ' ' + target + ' ' + html.slice(0, 120))))`) as string[]
  const wide = await ui.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)
  const shell = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)
  return wide + shell > 0 ? [...found, `wider than the screen by ${wide + shell}`] : found
}

describe.skipIf(!has('chrome'))('in Chromium', () => {
  let browser: Browser
  beforeAll(async () => { browser = await started('chrome') }, 120_000)
  afterAll(() => browser?.close())

  test('on a phone, 20 ratings take at most 25 taps and no key, with the list in sight', async () => {
    const { page, ui, errors } = await opened(browser, site.address, { link, items: 3706 })
    let taps = 0
    const tap = async (what: ElementHandle): Promise<void> => {
      taps += 1
      await what.tap()
    }
    await tap((await ui.waitForSelector('.foot .strong')) as ElementHandle)
    await ui.waitForSelector('.tile')
    for (let at = 0; at < 20; at++) {
      await rate(ui, at, 2 + (at % 4), tap)
      const strip = (await (await ui.waitForSelector('.strip'))?.boundingBox()) as { y: number; height: number }
      expect(strip.y + strip.height).toBeLessThanOrEqual(844)
    }
    expect(await ui.$$('.strip li')).toHaveLength(5)
    await tap((await ui.$('nav button:nth-of-type(1)')) as ElementHandle)
    await ui.waitForSelector('.row')
    const whole = await ui.evaluate(() => [...document.querySelectorAll('.row')].filter((row) => {
      const box = row.getBoundingClientRect()
      const nav = document.querySelector('nav')?.getBoundingClientRect().top ?? 0
      return box.top >= 0 && (row.querySelector('.use')?.getBoundingClientRect().bottom ?? 1e9) <= nav
    }).length)
    console.info(`${taps} taps from link to list; ${whole} whole titles in sight`)
    expect(taps).toBeLessThanOrEqual(25)
    expect(whole).toBeGreaterThanOrEqual(5)
    expect(await ui.$eval('.calm', (each) => each.textContent)).toMatch(/has left|left this device/)
    // To make 3,706 titles takes a second, which is not the app's.
    await page.evaluateOnNewDocument(() => Object.assign(globalThis, { items: 1, model: 0 }))
    const waits: number[] = []
    for (let tries = 0; tries < 3; tries++) {
      const begin = Date.now()
      await page.reload()
      await (await cell(page, 'ui.html')).waitForSelector('.row')
      waits.push(Date.now() - begin)
    }
    console.info(`the list after ${waits.join(', ')} ms`)
    expect(Math.min(...waits), 'of others that use this machine as well').toBeLessThan(2000)
    expect(errors).toEqual([])
    await page.close()
  })

  test.each([
    { width: 390, height: 844, dark: false, language: 'en' },
    { width: 1280, height: 800, dark: true, language: 'de' },
    { width: 320, height: 640, dark: true, language: 'de' },
    { width: 320, height: 256, dark: false, language: 'de' }, // 1280 by 1024 at 400 %
  ])('axe finds nothing, and nothing is too wide: $width by $height, dark: $dark', async (shape) => {
    const app = await opened(browser, site.address, shape)
    const { page, ui, errors } = app
    const found: Record<string, string[]> = {}
    const look = async (name: string): Promise<void> => { found[name] = await faultsOf(app) }
    await ui.waitForSelector('#link')
    await look('start')
    await ui.type('#link', link)
    await page.keyboard.press('Enter')
    await ui.waitForSelector('.levels')
    await look('invited')
    await ui.click('.foot .strong')
    await ui.waitForSelector('.tile')
    await look('wall')
    for (const at of [0, 1, 2, 5]) await rate(ui, at, 5)
    await ui.waitForSelector('.strip li')
    await look('rated')
    await turnTo(ui, 'list')
    await ui.waitForSelector('.row')
    await look('list')
    for (const at of [0, 3]) await (await ui.$$('.row .mark'))[at].click()
    await turnTo(ui, 'saved')
    await look('saved')
    await turnTo(ui, 'list')
    await (await ui.waitForSelector('.banner button'))?.click()
    await ui.waitForSelector('.ask')
    await look('ask')
    await (await ui.$$('.answer'))[0].click()
    await ui.waitForSelector('nav')
    await page.goto('about:blank')
    await page.goto(site.address)
    expect(errors).toEqual([])
    await changed(page, REPORTED)
    await page.reload()
    const next = { ...app, ui: await cell(page, 'ui.html') }
    await next.ui.waitForSelector('nav')
    await turnTo(next.ui, 'privacy')
    await (await next.ui.waitForSelector('.fold summary'))?.click()
    await next.ui.waitForSelector('.fold[open] code')
    found.privacy = await faultsOf(next)
    expect(found).toEqual(Object.fromEntries(Object.keys(found).map((name) => [name, []])))
    await page.close()
  }, 60_000)

  test('by keyboard alone: paste, join, rate, look at the list, hide, and take it back', async () => {
    const { page, ui, errors } = await opened(browser, site.address)
    const here = (): Promise<string> => ui.evaluate(() => {
      const found = document.activeElement
      return found?.getAttribute('aria-label') ?? found?.textContent ?? ''
    })
    /** Press Tab until something of this name has the focus. */
    const reach = async (name: RegExp): Promise<void> => {
      for (let tries = 0; tries < 60; tries++) {
        if (name.test(await here())) return
        await page.keyboard.press('Tab')
      }
      throw new Error(`${name} is not reached; at ${await here()}`)
    }
    await ui.focus('#link')
    await page.keyboard.type(link)
    await page.keyboard.press('Enter')
    await ui.waitForSelector('.foot')
    expect(await here()).toMatch(/invites you$/)
    await reach(/^Join$/)
    await page.keyboard.press('Enter')
    await ui.waitForSelector('.tile')
    await reach(/^1 star$/)
    for (const _ of [2, 3, 4]) await page.keyboard.press('ArrowRight')
    await ui.waitForSelector('.strip li')
    await ui.waitForFunction(() => document.querySelectorAll('.tile:first-child .on').length === 4)
    expect(await here()).toBe('4 stars')
    const seen = await ui.evaluate(() => {
      const [box, strip] = [document.activeElement, document.querySelector('.strip')].map((each) => each?.getBoundingClientRect())
      return (box?.bottom ?? 0) <= (strip?.top ?? 0)
    })
    expect(seen, 'nothing lies over what has the focus').toBe(true)
    await reach(/^For you$/)
    await page.keyboard.press('Enter')
    await ui.waitForSelector('.row')
    expect(await here()).toBe('Your list')
    await reach(/^Hide /)
    await page.keyboard.press('Enter')
    await ui.waitForSelector('.gone')
    expect(await here()).toBe('Show again')
    await page.keyboard.press('Enter')
    await ui.waitForFunction(() => document.querySelector('.gone') === null)
    expect(errors).toEqual([])
    await page.close()
  })

  test('on the second day it says what is new', async () => {
    const { page, ui } = await opened(browser, site.address, { link })
    await ui.waitForSelector('.foot .strong')
    await ui.click('.foot .strong')
    await ui.waitForSelector('.tile')
    for (const at of [0, 1, 2]) await rate(ui, at, 5)
    await turnTo(ui, 'list')
    await ui.waitForSelector('.row')
    expect(await ui.$('.news')).toBeNull()
    await changed(page, REPORTED)
    await page.evaluateOnNewDocument(() => Object.assign(globalThis, { model: 4 }))
    await page.reload()
    const after = await cell(page, 'ui.html')
    await after.waitForSelector('.news .row')
    expect(await after.$eval('.news h2', (each) => each.textContent)).toMatch(/^New since \w+day$/)
    expect(await after.$$('.row mark')).not.toHaveLength(0)
    await page.close()
  })
})

test.skipIf(!has('firefox'))('in Firefox, from a link to a list', async () => {
  const browser = await started('firefox')
  try {
    const { ui, errors } = await opened(browser, site.address, { link })
    await (await ui.waitForSelector('.foot .strong'))?.click()
    await ui.waitForSelector('.tile')
    for (const at of [0, 1, 2]) await rate(ui, at, 5)
    await ui.waitForSelector('.strip li')
    await turnTo(ui, 'list')
    await ui.waitForSelector('.row')
    expect(await ui.$$('.row')).toHaveLength(24)
    expect(errors).toEqual([])
  } finally {
    await browser.close()
  }
})
