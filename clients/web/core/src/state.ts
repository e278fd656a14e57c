/** Everything that a device knows, as one value: read once, decided on, committed once. PRIVATE. */

import {
  DIGEST_SIZE, PrivacyError, canonical, fileDigest, fromBase64, isSame, labelledDigest, matching, object, readDocument,
  require, text, toHex,
} from './documents.ts'
import { type Limits, type Line, WHOLE } from './ledger.ts'
import { type Bytes, random, utf8 } from './platform.ts'
import { type Collector, type Server, type Servers, servers } from './task.ts'

export const DAY = 86_400
export const NONE: Bytes = new Uint8Array(0)
const [MOST_REFUSED, MOST_LINK, MOST_INVITATION] = [64, 300, 2 ** 16]

/** A rating; its item's weight is how much of the wish it may use, in thousandths: 0 is never sent. */
export type Rated = Readonly<Record<'value' | 'weight' | 'at', number>>

/** This device's answer to a task: promised when the task was taken, sent once. */
export interface Answer {
  readonly task: Bytes
  readonly document: Bytes
  /** Of this answer alone: the token's nonce and the moments follow from it. */
  readonly secret: Bytes
  readonly tokenAt: number; readonly reportAt: number; readonly end: number
  /** Seconds that are enough to make a report, whatever the ratings are. */
  readonly lead: number
  readonly token: Bytes
  readonly promised: boolean; readonly done: boolean
  readonly tries: number; readonly again: number
}

const address = matching(/^(?=.{1,300}$)https:\/\/[a-z0-9.:[\]-]+(\/[\w.~/-]*)?(?<!\/)$/,
  "a recommender's address is like https://host:port")
const invitation = object({ address, authority: text(), name: text(), servers })

/** Who asks, and by which two servers. */
export type Invitation = ReturnType<typeof invitation>

/** A recommender that the owner has joined, what is pinned of it, and its public files here. */
export interface Joined {
  readonly invitation: Invitation
  readonly left: boolean
  /** It has said that this device is enrolled; else it is asked again from `enrolAt` on. */
  readonly enrolled: boolean
  readonly enrolAt: number
  /** Until then: the secret of an invitation, or a token of a login (JWT); empty for none. */
  readonly proof: string
  readonly catalogue: string; readonly model: string; readonly arrays: readonly string[]
  /** The lists of the servers' keys, as they were signed: leader's and helper's. */
  readonly keys: readonly [Bytes, Bytes]
  readonly keysDigest: string
  readonly collector: Collector | null
  readonly answer: Answer | null
  /** Tasks that were taken and are not over: ids (base64url), and when each was taken and ends. */
  readonly seen: readonly (readonly [string, number, number])[]
  readonly refused: readonly (readonly [string, number])[]
  readonly day: number; readonly read: number
}

/** All of it. */
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

/** Return the state of a new device. */
export const newState = (limits: Limits, wish = WHOLE): State => ({
  identity: random(32), seed: random(32), limits, wish, joined: [], ledger: [], ratings: {}, files: {}, kept: {},
})

/** Return a recommender that was joined. */
export function of(state: State, address: string): Joined {
  const found = state.joined.find((each) => each.invitation.address === address)
  if (found === undefined) throw new PrivacyError('this recommender was not joined')
  return found
}

/** Return the state with a recommender as it is now, and without files that nobody needs. */
export function withJoined(state: State, joined: Joined): State {
  const place = state.joined.findIndex((each) => each.invitation.address === joined.invitation.address)
  const all = place < 0 ? [...state.joined, joined] : state.joined.with(place, joined)
  const needed = new Set(all.flatMap((each) => [each.catalogue, each.model, ...each.arrays]))
  const files = Object.entries(state.files).filter(([name]) => needed.has(name))
  return { ...state, joined: all, files: Object.fromEntries(files) }
}

/** Return the state with a recommender joined, and its servers pinned. */
export function join(state: State, given: unknown, proof = ''): State {
  const found = invitation(given)
  const { leader, helper } = found.servers
  require(hostOf(leader) !== hostOf(helper), 'both servers are on one host, whose operator would see everything')
  const before = state.joined.find((each) => each.invitation.address === found.address) ?? fresh(found)
  const same = isSame(before.invitation.servers, found.servers)
  require(same || before.left, 'other servers are pinned of this recommender; leave it first')
  const pinned = same ? before : { ...before, keys: [NONE, NONE], keysDigest: '', collector: null } as const
  return withJoined(state, { ...pinned, invitation: found, left: false, proof })
}

const hostOf = ({ url }: Server): string =>
  (/^https:\/\/(\[[^\]]*\]|[^/:]*)/.exec(url)?.[1] ?? '').toLowerCase().replace(/\.$/, '')

const fresh = (found: Invitation): Joined => ({
  invitation: found, left: false, enrolled: false, enrolAt: 0, proof: '', catalogue: '', model: '', arrays: [],
  keys: [NONE, NONE], keysDigest: '', collector: null, answer: null, seen: [], refused: [], day: 0, read: 0,
})

/** Return the state with a recommender left: nothing is read of it or sent any more. */
export const leave = (state: State, address: string): State =>
  withJoined(state, { ...of(state, address), left: true, answer: null })

/** Return the state with a rating, or without it (null). */
export function rate(state: State, address: string, item: string, rated: Rated | null): State {
  const right = rated === null || (Number.isFinite(rated.value) && rated.weight >= 0 && rated.weight <= WHOLE)
  if (!right) throw new PrivacyError(`a rating is a number, and its weight from 0 to ${WHOLE}`)
  const { [item]: _, ...others } = state.ratings[address] ?? {}
  const own = rated === null ? others : { ...others, [item]: rated }
  return { ...state, ratings: { ...state.ratings, [address]: own } }
}

export const readToday = ({ day, read }: Joined, now: number): number => (day === Math.floor(now / DAY) ? read : 0)

export const refusing = (joined: Joined, digest: string, now: number): Joined => ({
  ...joined, refused: [...joined.refused, [digest, now] as const].slice(-MOST_REFUSED),
})

// Links

/** Where an invitation is, of so many bytes at most; its secret lets one person in, once. */
export type Link = Readonly<Record<'address' | 'url' | 'digest' | 'secret', string>> & { readonly most: number }

/** Return what a link to an invitation says. What is behind its # is told to nobody. */
export function readLink(text: string): Link {
  const plain = text.trim()
  const found = /^(https:\/\/[^#\s]+)\/join#([\w-]{43})(?:\.([\w-]{32}))?$/.exec(plain)
  require(found !== null && plain.length <= MOST_LINK, 'this is no link to an invitation, or it is cut off')
  const [, address, digest, secret = ''] = found
  fromBase64(digest, DIGEST_SIZE)
  return { address, url: `${address}/invitation.json`, most: MOST_INVITATION, digest, secret }
}

/** Return the invitation of a link, which is all that the recommender may show for it. */
export function opened(link: Link, data: Bytes): Invitation {
  require(fileDigest(data) === link.digest, 'the recommender shows another invitation than that of this link')
  const found = readDocument(invitation, data, MOST_INVITATION)
  require(found.address === link.address, 'the invitation is of another address than its link')
  return found
}

/** Return the digest of two servers that people compare, in groups of four. */
export const serversDigest = (servers: Servers): string =>
  (toHex(labelledDigest('servers', utf8(canonical(servers))).slice(0, 16)).match(/.{4}/g) ?? []).join(' ')
