/** A participant in a Node service: `node participant.mjs LINK STORE RATINGS.json [SECONDS]`. */

import { readFile } from 'node:fs/promises'
import { setTimeout } from 'node:timers/promises'

import { Device, LEVELS, join, newState, opened, rate, readLink, serversDigest } from '@hdpmf/core'

import { carrier } from './carrier.mjs'
import { FileStore } from './store.mjs'

const [text, path, ratings, every = '300'] = process.argv.slice(2)
const link = readLink(text)
const now = () => Date.now() / 1000
/** @type {import('@hdpmf/core').Platform['say']} */
const say = (said) => console.log(JSON.stringify(said))
const device = await Device.open({ store: new FileStore(path), carrier, now, every: Number(every), say },
  newState(LEVELS.middle))
if ((await device.held()).state.joined.length === 0) {
  const invitation = opened(link, await carrier.read(link.url, link.most))
  console.log(JSON.stringify({ what: 'joins', digest: serversDigest(invitation.servers) })) // people compare it
  await device.change((state) => join(state, invitation, link.secret))
}
const rated = Object.entries(JSON.parse(await readFile(ratings, 'utf8')))
await device.change((state) => rated.reduce((made, [item, value]) =>
  rate(made, link.address, item, { value: Number(value), weight: 1000, at: now() }), state))
for (;;) await setTimeout(1000 * (await device.step()))
