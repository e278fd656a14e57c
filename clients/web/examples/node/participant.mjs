/** A participant in a Node service: `node participant.mjs LINK STORE RATINGS.json [SECONDS]`. */

import { readFile } from 'node:fs/promises'
import { setTimeout } from 'node:timers/promises'

import { Device, LEVELS, join, newState, opened, rate, readLink, serversDigest } from '@hdpmf/core'
import { Lists } from '@hdpmf/core/lists'

import { carrier } from './carrier.mjs'
import { FileStore } from './store.mjs'

const [text, path, ratings, every = '300'] = process.argv.slice(2)
const link = readLink(text)
const now = () => Date.now() / 1000
/** @type {import('@hdpmf/core').Platform['say']} */
const say = (said) => console.log(JSON.stringify(said)) // of it nothing is a rating
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
for (let known = ''; ;) {
  const seconds = await device.step()
  const { state } = await device.held()
  const [{ model }] = state.joined
  const list = model === known ? null : Lists.of(state, link.address, now())
  if (list !== null) console.log(JSON.stringify({ what: 'list', items: list.recommend({ n: 5 }) }))
  known = model
  await setTimeout(1000 * seconds)
}
