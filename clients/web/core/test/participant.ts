/**
 * The core as a participant whose whole outside is the other end of a pipe, a line for each request.
 *
 * `tests/unit/participant/test_web_core.py` starts it, and is the recommender and both servers.
 */

import { createInterface } from 'node:readline'

import { Device, MemoryStore, type State, join, newState, rate } from '../src/index.ts'
import { type Bytes, type Entry, hex, unhex } from './files.ts'

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()

async function ask(request: Entry): Promise<Entry> {
  process.stdout.write(`${JSON.stringify(request)}\n`)
  return JSON.parse((await lines.next()).value)
}

const begin = await ask({ what: 'begin' })
let { now } = begin
const address = begin.invitation.address
const fresh: State = { ...newState(begin.limits, begin.wish), seed: unhex(begin.seed) }
const rated = Object.entries<number>(begin.ratings).reduce(
  (state, [item, value]) => rate(state, address, item, { value, weight: 1000, at: now }),
  join(fresh, begin.invitation, begin.proof),
)

const device = await Device.open({
  store: new MemoryStore(),
  now: () => now,
  carrier: {
    async read(url: string, most: number): Promise<Bytes> {
      const { data } = await ask({ what: 'read', url, most, now })
      if (data === null) throw new Error('not there')
      return unhex(data)
    },
    async date(url: string): Promise<string> {
      return (await ask({ what: 'date', url, now })).date
    },
    async send({ url, headers, body }) {
      const told = await ask({ what: 'send', url, headers, body: hex(body), now })
      return { status: told.status, body: unhex(told.body) }
    },
  },
}, rated)

while (now < begin.until) now += await device.step()
const { state } = await device.held()
await ask({ what: 'end', ledger: state.ledger, done: state.joined[0].answer?.done ?? null })
process.exit(0)
