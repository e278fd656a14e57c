/** Draw what people see, page by page: `npx vite-node app/test/screenshots.ts OUT WIDTH [dark] [de]`. */

import { join } from 'node:path'

import { REPORTED, cell, changed, opened, served, started } from './browsing.ts'
import { MadeUp } from '../demo/world.ts'

const [out, wide, ...looks] = process.argv.slice(process.argv.findIndex((each) => each.startsWith('/tmp/')))
const webp = looks.includes('webp')
const [dark, language] = [looks.includes('dark'), looks.includes('de') ? 'de' : 'en']
const width = Number(wide)
const shape = { width, height: width > 800 ? 860 : 844, dark, language }
const site = await served()
const browser = await started('chrome')
const { link } = await MadeUp.begin({ now: 1 })
const { page, errors, ...first } = await opened(browser, site.address, shape)
let { ui } = first
const shot = async (name: string): Promise<void> => {
  await new Promise((resolve) => setTimeout(resolve, 250))
  const path = join(out, `${[name, width, ...looks].join('-')}.${webp ? 'webp' : 'png'}`)
  await page.screenshot(webp ? { path, type: 'webp', quality: 82 } : { path })
}

await shot('start')
await ui.type('#link', link)
await ui.click('.strong')
await ui.waitForSelector('.foot')
await shot('invited')
await ui.evaluate(() => window.scrollTo(0, 600))
await shot('invited-below')
await ui.click('.foot .strong')
await ui.waitForSelector('.tile')
await shot('wall')
for (const [at, stars] of [5, 4, 5, 3, 4, 5, 2, 4].entries()) {
  const label = (await (await ui.$$('.tile'))[at].$$('.stars label'))[stars - 1]
  await label.evaluate((each) => each.scrollIntoView({ block: 'center' }))
  await label.click()
}
await shot('rated')
const tab = async (number: number): Promise<void> => {
  await ui.click(`nav button:nth-of-type(${number})`)
  await ui.waitForSelector(`nav button:nth-of-type(${number})[aria-current]`)
}
await tab(1)
await shot('list')
for (const at of [0, 4, 6]) await (await ui.$$('.row .mark'))[at].click()
await tab(3)
await shot('saved')
await tab(1)
const banner = await ui.$('.banner button')
if (banner !== null) {
  await banner.click()
  await ui.waitForSelector('.ask')
  await shot('ask')
  await ui.click('.answer')
  await ui.waitForSelector('nav')
}
await tab(4)
await changed(page, REPORTED)
await page.evaluateOnNewDocument(() => Object.assign(globalThis, { model: 4 }))
await page.reload()
ui = await cell(page, 'ui.html')
await ui.waitForSelector('.news')
await shot('second-day')
await tab(4)
await ui.click('.fold summary')
await shot('privacy')
await ui.evaluate(() => window.scrollTo(0, 900))
await shot('privacy-below')
console.log(errors)
await browser.close()
site.close()
