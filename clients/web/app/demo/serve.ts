/** Serve the app on a made-up world, and open it in this machine's browser: `make app`. */

import { spawn } from 'node:child_process'
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { buildAll } from '../../build.mjs'
import { serve } from '../../serve.mjs'
import { MadeUp } from './world.ts'

const out = mkdtempSync(join(tmpdir(), 'app-'))
await buildAll(out, { entries: { carrier: join(import.meta.dirname, 'carrier.ts') } })
const { address } = await serve(join(out, 'page'))
const { link } = await MadeUp.begin({ now: 1 })
const url = `${address}/#${link}`
console.log(`The person's app, with a made-up recommender in it and no network:\n\n  ${url}\n\nEnter ends it.`)
const opener = process.platform === 'darwin' ? 'open' : 'xdg-open'
if (process.stdin.isTTY) spawn(opener, [url], { stdio: 'ignore' }).on('error', () => {}) // or open it yourself
for (const event of ['data', 'end']) process.stdin.on(event, () => process.exit(0))
