/**
 * People in browsers, from an invitation to a list, a report, and a second day.
 *
 * `tests/e2e/test_web_participants.py` has the recommender, both servers and other people, and says what comes
 * next, a line of JSON each; the answer is what every person sees.
 */

import { join } from 'node:path'
import { createInterface } from 'node:readline'

import { type Browser, type ElementHandle, type Frame, type Page, type WebWorker, launch } from 'puppeteer-core'

import { Speech } from '../app/src/words/say.ts'
// @ts-expect-error a script without types
import { serve } from '../serve.mjs'

const DIST = join(import.meta.dirname, '../dist')
const PATIENCE = 60_000
const { say } = new Speech('en')

/** A person, and what they have open. */
class Person {
  constructor(readonly page: Page, private readonly address: string) {
    page.setDefaultTimeout(PATIENCE)
  }

  /** The cell that draws; it is another one after each visit. */
  private cell(): Promise<Frame> {
    return this.page.waitForFrame((frame) => frame.url().endsWith('/ui.html'))
  }

  private async find(path: string): Promise<ElementHandle<Element>> {
    const found = await (await this.cell()).waitForSelector(`::-p-xpath(${path})`, { visible: true })
    if (found === null) throw new Error(path)
    return found
  }

  private async tap(path: string): Promise<void> {
    const found = await this.find(path)
    await found.evaluate((element) => element.scrollIntoView({ block: 'center' })) // not below a bar
    await found.click()
  }

  private press(words: string): Promise<void> {
    return this.tap(`//button[normalize-space(.)="${words}"]`)
  }

  private sees(words: string): Promise<unknown> {
    return this.find(`//*[contains(normalize-space(text()), "${words}")]`)
  }

  private async texts(selector: string): Promise<string[]> {
    return (await this.cell()).$$eval(selector, (all) => all.map((each) => each.textContent?.trim() ?? ''))
  }

  private async titles(): Promise<string[]> {
    await this.find('//li[@class="row"]')
    return this.texts('.row .what > :first-child')
  }

  /** Come by the page behind the link; an extension is not opened by a page, so paste it. */
  async come(link: string): Promise<void> {
    if (this.address.startsWith('chrome-extension:')) {
      await this.page.goto(this.address)
      await (await this.find('//input[@id="link"]')).type(link)
      return this.press(say('start.open'))
    }
    await this.page.goto(link)
    await (await this.page.waitForSelector('#app'))?.click()
  }

  /** Join, rate, say whether ratings take part, and return the list. */
  async join(name: string, count: number, yes: boolean): Promise<object> {
    await this.sees(say('invited.title', { name }))
    const servers = await this.texts('.who .domain')
    const promise = await this.texts('.promise')
    await this.press(say('invited.join'))
    for (let rated = 0; rated < count; rated++) {
      await this.tap(`(//li[contains(@class,"tile") and not(contains(@class,"rated"))])[1]//label[${1 + (rated % 5)}]`)
      await this.find(`(//li[contains(@class,"rated")])[${rated + 1}]`)
    }
    await this.press(say('tab.privacy'))
    await this.press(say(yes ? 'ask.yes' : 'ask.no'))
    await this.sees(say(yes ? 'privacy.takesPart' : 'privacy.takesPartNot'))
    await this.press(say('tab.list'))
    await this.sees(say('list.nothingLeft'))
    return { servers, promise, titles: await this.titles() }
  }

  /** Come again: the app looks at what is published, and goes on. */
  look(): Promise<object> {
    return this.visit()
  }

  protected async visit(): Promise<object> {
    await this.page.goto('about:blank')
    await this.page.goto(this.address)
    await this.find('//h1')
    return {}
  }

  /** Wait until so many reports have left, and read what is said of them. */
  async reported(n: number): Promise<object> {
    await this.press(say('tab.privacy'))
    const cell = await this.cell()
    await cell.waitForFunction((least) => document.querySelectorAll('summary:has(time) + ul > li').length >= least, {}, n)
    const [runs, spent] = [await this.texts('summary:has(time) > span'), await this.texts('.promise')]
    await this.press(say('tab.list'))
    return { runs, spent }
  }

  /** A day later, which the app can only tell from what it remembers of the last visit. */
  async tomorrow(): Promise<object> {
    await this.page.evaluate(dayBefore)
    await this.visit()
    await this.sees('New since')
    return { fresh: await this.texts('.news .what > :first-child'), titles: await this.titles() }
  }
}

declare const chrome: { readonly alarms: { create(name: string, when: object): Promise<void> } }

/** Somebody with the extension, who has no page open while reports leave: an alarm wakes it. */
class Away extends Person {
  private async behind(): Promise<WebWorker> {
    const target = await this.page.browser().waitForTarget((each) => each.type() === 'service_worker')
    return (await target.worker())!
  }

  override async look(): Promise<object> {
    await this.page.goto('about:blank')
    // Sooner than the ten minutes of what ships.
    await (await this.behind()).evaluate(
      () => chrome.alarms.create('wake', { delayInMinutes: 0.02, periodInMinutes: 0.25 }))
    return {}
  }

  override async reported(n: number): Promise<object> {
    const left = async (): Promise<number> => {
      const { lines, done } = await (await this.behind()).evaluate(intended)
      return lines - (done ? 0 : 1)
    }
    for (const end = Date.now() + PATIENCE; (await left()) < n;) {
      if (Date.now() > end) throw new Error('no report leaves with no page open')
      await new Promise((resolve) => { setTimeout(resolve, 500) })
    }
    await this.visit()
    return super.reported(n)
  }
}

/** Runs in the page, or behind the extension: what the device has promised, and intends with the last task. */
async function intended() {
  const [{ name }] = await indexedDB.databases()
  const opened = indexedDB.open(name ?? '')
  await new Promise((resolve) => { opened.onsuccess = resolve })
  const read = opened.result.transaction('device').objectStore('device').get('state')
  await new Promise((resolve) => { read.onsuccess = resolve })
  opened.result.close()
  const { ledger, joined: [{ answer, seen }] } = read.result.state
  const { tokenAt, reportAt, end, token, promised, tries, again, done } = answer ?? { token: '', done: false }
  const now = Date.now() / 1000
  return { lines: ledger.length, now, tokenAt, reportAt, end, token: token.length, promised, tries, again, done, seen }
}

/** Runs in the page, which has the worker's origin: set what the app remembers of the last visit a day back. */
async function dayBefore(): Promise<void> {
  const [{ name }] = await indexedDB.databases()
  const opened = indexedDB.open(name ?? '')
  await new Promise((resolve) => { opened.onsuccess = resolve })
  const table = opened.result.transaction('device', 'readwrite').objectStore('device')
  const read = table.get('state')
  await new Promise((resolve) => { read.onsuccess = resolve })
  const visits = Object.values(read.result.state.kept.visits) as { at: number }[]
  for (const visit of visits) visit.at -= 86_400
  const written = table.put({ ...read.result, version: read.result.version + 1 }, 'state')
  await new Promise((resolve) => { written.onsuccess = resolve })
  opened.result.close()
}

const CHROMIUM = {
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--ignore-certificate-errors', '--lang=en'],
  pipe: true,
}

async function opened(app: string, browsers: Browser[]): Promise<Record<string, Person>> {
  const chromium = await launch({ ...CHROMIUM, enableExtensions: true })
  browsers.push(chromium)
  const firefox = await launch({
    browser: 'firefox', executablePath: process.env.FIREFOX ?? '/usr/bin/firefox-esr',
    acceptInsecureCerts: true, extraPrefsFirefox: { 'intl.accept_languages': 'en' },
  })
  browsers.push(firefox)
  const phone = await (await chromium.createBrowserContext()).newPage()
  await phone.setViewport({ width: 390, height: 844, isMobile: true, hasTouch: true })
  const desktop = await (await chromium.createBrowserContext()).newPage()
  await desktop.setViewport({ width: 1280, height: 800 })
  const fox = await firefox.newPage()
  await fox.setViewport({ width: 1280, height: 800 })
  const id = await chromium.installExtension(join(DIST, 'extension-chromium'))
  return {
    phone: new Person(phone, app),
    desktop: new Person(desktop, app),
    firefox: new Person(fox, app),
    extension: new Away(await chromium.newPage(), `chrome-extension://${id}/index.html`),
  }
}

interface Asked {
  readonly do: 'join' | 'look' | 'reported' | 'tomorrow'
  readonly links?: Readonly<Record<string, string>>
  readonly name?: string
  /** Who does not let ratings take part. */
  readonly no?: readonly string[]
  readonly count?: number
}

async function story(): Promise<void> {
  const browsers: Browser[] = []
  const { address, close } = await serve(join(DIST, 'page'), Number(process.argv[2]))
  try {
    const people = await opened(`${address}/`, browsers)
    const tell = (told: object): void => console.log(JSON.stringify(told))
    tell(Object.keys(people))
    for await (const line of createInterface({ input: process.stdin })) {
      const asked = JSON.parse(line) as Asked
      const one = async ([name, person]: [string, Person]): Promise<[string, object]> => {
        try {
          return [name, await done(person, name, asked)]
        } catch (error) {
          const path = `${process.argv[3]}/${name}.png` as const
          await person.page.screenshot({ path }).catch(() => null)
          console.error(name, await person.page.evaluate(intended).catch(() => 'has no page'))
          console.error(`${name}, ${asked.do}: ${error} (${path})`)
          throw error
        }
      }
      tell(Object.fromEntries(await all(Object.entries(people).map(one))))
    }
  } finally {
    await Promise.all(browsers.map((browser) => browser.close()))
    close()
  }
}

/** Wait for all, also where one fails. */
async function all<T>(each: Promise<T>[]): Promise<T[]> {
  await Promise.allSettled(each)
  return Promise.all(each)
}

async function done(person: Person, name: string, asked: Asked): Promise<object> {
  switch (asked.do) {
    case 'join':
      await person.come(asked.links?.[name] ?? '')
      return person.join(asked.name ?? '', asked.count ?? 0, !(asked.no ?? []).includes(name))
    case 'look': return person.look()
    case 'reported': return person.reported(asked.count ?? 0)
    case 'tomorrow': return person.tomorrow()
  }
}

await story()
