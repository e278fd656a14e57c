import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'

import { expect, test } from 'vitest'

const WEB = join(import.meta.dirname, '../..')

test('make app serves the page at the address that it says, until Enter', async () => {
  const demo = spawn(join(WEB, 'node_modules/.bin/vite-node'), ['app/demo/serve.ts'], { cwd: WEB, stdio: ['pipe', 'pipe', 'inherit'] })
  let said = ''
  for await (const part of demo.stdout) {
    said += part
    if (said.includes('Enter ends it')) break
  }
  const [, address, link] = /(http:\/\/localhost:\d+\/)#(https:\S+)/.exec(said) ?? []
  expect(link).toMatch(/^https:\/\/films\.example\/join#[\w-]{43}$/)
  expect(await (await fetch(address)).text()).toContain('<iframe id="ui"')
  demo.stdin.end('\n')
  expect(await once(demo, 'exit')).toEqual([0, null])
})
