/** Everything that a device knows, as one value: read once, decided on, committed once. PRIVATE. */

import { PrivacyError, fileDigest, object, require, text } from './documents.ts'
import type { Limits, Line } from './ledger.ts'
import { WHOLE } from './ledger.ts'
import { random } from './platform.ts'
import { type Collector, type Servers, servers } from './task.ts'
import type { Bytes } from './xof.ts'

export const DAY = 86_400

const MOST_REFUSED = 64

export interface Rated {
  readonly value: number
  /** The item's, in thousandths: how much of the wish it may use. 0 is never sent. */
  readonly weight: number
  readonly at: number
}

/** This device's answer to a task: promised when the task was taken, sent once. */
export interface Answer {
  readonly task: Bytes
  readonly document: Bytes
  /** Of this answer alone: the token's nonce and the moments follow from it. */
  readonly secret: Bytes
  readonly tokenAt: number
  readonly reportAt: number
  readonly end: number
  /** Seconds that are enough to make a report, whatever the ratings are. */
  readonly lead: number
  readonly token: Bytes
  readonly promised: boolean
  readonly tries: number
  readonly again: number
  readonly done: boolean
}

export const invitation = object({ address: text(300), authority: text(), name: text(), servers })
export interface Invitation {
  readonly address: string
  readonly authority: string
  readonly name: string
  readonly servers: Servers
}

/** A recommender that the owner has joined, what is pinned of it, and its public files here. */
export interface Joined {
  readonly invitation: Invitation
  readonly left: boolean
  /** It has said that this device is enrolled; else it is asked again from `enrolAt` on. */
  readonly enrolled: boolean
  readonly enrolAt: number
  /** Until then: the secret of an invitation, or a token of a login (JWT); empty for none. */
  readonly proof: string
  readonly catalogue: string
  readonly model: string
  readonly arrays: readonly string[]
  /** The lists of the servers' keys, as they were signed: leader's and helper's. */
  readonly keys: readonly [Bytes, Bytes]
  readonly keysDigest: string
  readonly collector: Collector | null
  readonly answer: Answer | null
  /** Tasks that were taken and are not over: ids (base64url), and when each was taken and ends. */
  readonly seen: readonly (readonly [string, number, number])[]
  readonly refused: readonly (readonly [string, number])[]
  readonly day: number
  readonly read: number
}

export interface State {
  /** Secret of the key that signs requests for tokens. */
  readonly identity: Bytes
  /** Secret from which every answer gets its own, and which is replaced then. */
  readonly seed: Bytes
  readonly limits: Limits
  /** How much of a task's price the owner lets through, in thousandths. */
  readonly wish: number
  readonly joined: readonly Joined[]
  readonly ledger: readonly Line[]
  readonly ratings: Readonly<Record<string, Readonly<Record<string, Rated>>>>
  readonly files: Readonly<Record<string, Bytes>>
  /** What the app keeps for its owner: what they want to see, say. Nothing that leaves is made of it. */
  readonly kept: Readonly<Record<string, unknown>>
}

export const newState = (limits: Limits, wish = WHOLE): State => ({
  identity: random(32),
  seed: random(32),
  limits,
  wish,
  joined: [],
  ledger: [],
  ratings: {},
  files: {},
  kept: {},
})

const NONE: Bytes = new Uint8Array(0)

/** Return a recommender that was joined. */
export function of(state: State, address: string): Joined {
  const found = state.joined.find((each) => each.invitation.address === address)
  if (found === undefined) throw new PrivacyError('this recommender was not joined')
  return found
}

/** Return the state with a recommender as it is now, and without files that nobody needs. */
export function withJoined(state: State, joined: Joined): State {
  const { address } = joined.invitation
  const here = state.joined.some((each) => each.invitation.address === address)
  const all = here
    ? state.joined.map((each) => (each.invitation.address === address ? joined : each))
    : [...state.joined, joined]
  const needed = new Set(all.flatMap((each) => [each.catalogue, each.model, ...each.arrays]))
  const files = Object.entries(state.files).filter(([name]) => needed.has(name))
  return { ...state, joined: all, files: Object.fromEntries(files) }
}

/** Return the state with a public file, and its digest. */
export function withFile(state: State, data: Bytes): readonly [State, string] {
  const name = fileDigest(data)
  return [{ ...state, files: { ...state.files, [name]: data } }, name]
}

/** Return the state with a recommender joined, and its servers pinned. */
export function join(state: State, given: unknown, proof = ''): State {
  const found: Invitation = invitation(given)
  require(/^https:\/\/[a-z0-9.:[\]-]+(\/[\w.~/-]*)?(?<!\/)$/.test(found.address),
    "a recommender's address is like https://host:port")
  const hosts = [found.servers.leader, found.servers.helper].map(hostOf)
  require(hosts[0] !== hosts[1], 'both servers are on one host, whose operator would see everything')
  const before = state.joined.find((each) => each.invitation.address === found.address)
  if (before === undefined) return withJoined(state, fresh(found, proof))
  const pinned = JSON.stringify([before.invitation.servers, before.invitation.authority])
  if (pinned === JSON.stringify([found.servers, found.authority])) {
    return withJoined(state, { ...before, invitation: found, left: false, proof })
  }
  require(before.left, 'other servers are pinned of this recommender; leave it first')
  return withJoined(state, {
    ...before, invitation: found, left: false, proof, keys: [NONE, NONE], keysDigest: '', collector: null,
  })
}

const hostOf = (server: { readonly url: string }): string =>
  (/^https:\/\/(\[[^\]]*\]|[^/:]*)/.exec(server.url)?.[1] ?? '').toLowerCase().replace(/\.$/, '')

const fresh = (found: Invitation, proof: string): Joined => ({
  invitation: found, left: false, enrolled: false, enrolAt: 0, proof, catalogue: '', model: '', arrays: [], keys: [NONE, NONE],
  keysDigest: '', collector: null, answer: null, seen: [], refused: [], day: 0, read: 0,
})

/** Return the state with a recommender left: nothing is read of it or sent any more. */
export const leave = (state: State, address: string): State =>
  withJoined(state, { ...of(state, address), left: true, answer: null })

/** Return the state with a rating, or without it (null). */
export function rate(state: State, address: string, item: string, rated: Rated | null): State {
  const { [item]: _, ...others } = state.ratings[address] ?? {}
  const own = rated === null ? others : { ...others, [item]: rated }
  return { ...state, ratings: { ...state.ratings, [address]: own } }
}

export const readToday = (joined: Joined, now: number): number =>
  joined.day === Math.floor(now / DAY) ? joined.read : 0

export const refusing = (joined: Joined, digest: string, now: number): Joined => ({
  ...joined, refused: [...joined.refused, [digest, now] as const].slice(-MOST_REFUSED),
})
