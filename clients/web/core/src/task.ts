/** Tasks of hdp-pairs, the cards in them, and what a participant refuses, by public numbers alone. */

import { boundedVector, rankOne } from './circuits.ts'
import {
  type Read, VERSION, fromBase64, isSame, labelledDigest, list, matching, object, only, readDocument, require, text,
  toBase64, toHex, whole,
} from './documents.ts'
import { priceOf } from './ledger.ts'
import { type Bytes, bigEndian, concat, sized, utf8 } from './platform.ts'
import type { Circuit } from './prio3.ts'

const DAY = 86_400
const MAX_PERIOD = 400 * DAY
const [MAX_ITEMS, MAX_DEVIATION, EVERYBODY] = [2 ** 20, 2 ** 49, 2 ** 16]

/** Of the draft of DAP: in HPKE's info, and before a task's id in a VDAF's application context. */
export const DAP = utf8('dap-18')
const bytes = (least: number, most = least): Read<string> => (value) => {
  const data = fromBase64(text()(value))
  require(data.length >= least && data.length <= most, 'a key is too short or too long')
  return toBase64(data)
}
const key = bytes(32)
const organisation = matching(/^[^\p{C}\p{Zl}\p{Zp}]{1,200}$/u,
  "an organisation's name has 1 to 200 characters that can be seen")
const serverAddress = matching(/^(?=.{1,300}$)https:\/\/[^/?#@\s\\]+(\/[^?#\s\\]*)?$/,
  "a server's address is like https://host:port")
const server = object({ authority: text(), identity: key, organisation, signing: key, url: serverAddress })

/** The card of one of the two servers. */
export type Server = ReturnType<typeof server>

/** Two servers that are not one, as far as their cards show it. */
export const servers: Read<{ readonly leader: Server; readonly helper: Server }> = (value) => {
  const pair = object({ leader: server, helper: server })(value)
  const { leader, helper } = pair
  require([helper.identity, helper.signing].every((one) => one !== leader.identity && one !== leader.signing),
    'the two servers have the same key, so that they are one')
  require(plain(leader.organisation) !== plain(helper.organisation),
    'both servers are of one organisation, which would see everything')
  const [first, second] = [leader, helper].map((each) => each.authority.trim())
  require(first !== second || first === '', 'the two servers have the same certificate authority')
  return pair
}
export type Servers = ReturnType<typeof servers>

const plain = (name: string): string => name.normalize('NFKD').toLowerCase().replace(/[^\p{L}\p{N}]/gu, '')
const collector = object({ hpke: bytes(9, 500), identity: key, organisation })
export type Collector = ReturnType<typeof collector>

const shared = { bits: whole(1, 24), bound: whole(1, 2 ** 40), cap: whole(1, 2 ** 20) }
const linear = object({
  ...shared, items: whole(1, MAX_ITEMS), presence: whole(1, MAX_DEVIATION), type: only('linear'),
  values: whole(0, MAX_DEVIATION),
})
const pairs = object({
  ...shared, deviation: whole(1, MAX_DEVIATION), heads: list(whole(0, MAX_ITEMS - 1), 2, 2000), type: only('pairs'),
  weights: list(whole(1, 1024)),
})

/** What is summed, and the noise. */
export type Sums = ReturnType<typeof linear> | ReturnType<typeof pairs>

const sums: Read<Sums> = (value) =>
  (value as { type?: unknown } | null)?.type === 'pairs' ? pairs(value) : linear(value)

const fields = object({
  asked: whole(1, EVERYBODY), begin: whole(), catalogue: text(), collector, end: whole(),
  minimum: whole(2, 2 ** 40 - 1), precision: whole(1, MAX_PERIOD), run: text(), servers, sums, token_key: text(),
  type: only('task'), version: only(VERSION),
})

/** What a participant is asked for. */
export type Task = ReturnType<typeof fields>

/** The id of a task: the digest of its document as it was published. */
export const taskId = (document: Bytes): Bytes => labelledDigest('task', document)

/** Return the task in a document; ProtocolError if it is none. */
export function readTask(document: Bytes): Task {
  const task = readDocument(fields, document)
  const { begin, end, precision } = task
  const times = begin > 0 && begin < end && end < 2 ** 40 && end - begin <= MAX_PERIOD
  require(times, 'a task begins before it ends, within 400 days')
  require(begin % precision === 0 && end % precision === 0, 'begin and end are not on the grid')
  require(task.catalogue !== '', 'a task has no fingerprint of its items')
  fromBase64(task.run, 16)
  const { bits, bound, cap } = task.sums
  require(Math.floor(Math.sqrt(Math.floor(bound / cap))) < 2 ** bits, 'the cap does not keep numbers within their bits')
  if (task.sums.type === 'pairs') {
    const { heads, weights } = task.sums
    require(heads.every((head, at) => at === 0 || heads[at - 1] < head), 'heads do not ascend')
    require(weights.length === heads.length, 'there is no weight for every head')
  }
  if (task.token_key !== '') readTokenKey(task.token_key)
  return task
}

/** Return how many numbers a row has. */
export const entriesOf = (of: Sums): number =>
  of.type === 'pairs' ? of.heads.length : of.items + (of.values > 0 ? of.items + 1 : 0)

/** The circuit of a task. */
export function circuitOf({ sums: of }: Task): Circuit {
  const largest = 2 ** of.bits - 1
  if (of.type === 'pairs') return rankOne(of.heads.length, largest, of.bound)
  const signed = of.values > 0
  return boundedVector(entriesOf(of), largest, signed ? 2 * of.bound : of.bound, signed)
}

/** Return whether a participant with this secret is asked to report; it depends on no rating. */
export function isAsked(task: Task, id: Bytes, secret: Bytes): boolean {
  const drawn = labelledDigest('asked', concat(id, secret))
  return drawn[0] * 256 + drawn[1] < task.asked
}

// An RSA key of 2,048 bits with exponent 65,537, as RFC 9578 (8.2) has it: there is one encoding.
const SPKI = new RegExp('^30820152303d06092a864886f70d01010a3030a00d300b0609608648016503040202a11a301806092a864886' +
  'f70d010108300b0609608648016503040202a2030201300382010f003082010a0282010100([0-9a-f]{512})0203010001$')

/** Return an issuer's key as it is hashed, and its modulus. */
export function readTokenKey(spelled: string): { readonly encoded: Bytes; readonly modulus: bigint } {
  const encoded = fromBase64(spelled)
  const modulus = BigInt(`0x0${SPKI.exec(toHex(encoded))?.[1] ?? ''}`)
  require(modulus >> 2047n === 1n && modulus % 2n === 1n, 'a key for tokens is an RSA key of 2,048 bits (RFC 9578)')
  return { encoded, modulus }
}

/** Return DAP's configuration of a task, which is in what is sealed. */
export function configurationOf(task: Task, id: Bytes): Bytes {
  const { identifier, parameters } = circuitOf(task)
  const steps = [task.begin, task.end - task.begin].map((each) => each / task.precision)
  return concat(
    sized(id, 1),
    ...[task.servers.leader, task.servers.helper].map(({ url }) => sized(utf8(url), 2)),
    bigEndian(task.precision, 8),
    bigEndian(task.minimum, 8),
    Uint8Array.of(1, 0, 0), // sums over intervals of time
    bigEndian(identifier, 4),
    sized(parameters, 2),
    Uint8Array.of(0, 20, 0, 1, 0, 16), // one extension: the task's interval
    ...steps.map((each) => bigEndian(each, 8)),
  )
}

// What is refused

/** What a participant knows beside the task. */
export type Known = Pick<Task, 'servers' | 'collector' | 'catalogue'> & { items: number; stars: boolean }
// The same for everybody of one release.
const RHO = [3n, 2n] as const
const [LEAST_CAP, MOST_HEADS, LONGEST] = [16, 300, 92 * DAY]
const BITS = { linear: 8, pairs: 10 } as const

/** Return the number of the first rule (spec/wire.md, 8) that a task breaks; null if a participant answers. */
export function refusedBy(task: Task, known: Known, now: number, most: readonly [bigint, bigint] = RHO): number | null {
  const { sums: of } = task
  const bits = BITS[of.type]
  const heads = of.type === 'pairs' ? of.heads : []
  const [a, b] = priceOf(task).none // twice rho
  const holds = [
    isSame(task.servers, known.servers) && isSame(task.collector, known.collector),
    task.catalogue === known.catalogue && (of.type === 'pairs' || of.items === known.items),
    heads.length <= MOST_HEADS && heads.every((head) => head < known.items),
    known.stars || of.type === 'pairs' || of.values === 0,
    of.bits === bits && of.bound === 2 ** (2 * bits + 4) - 1 && of.cap >= LEAST_CAP,
    a * most[1] <= 2n * most[0] * b,
    task.begin <= now && now < task.end && task.end <= now + LONGEST,
    task.token_key !== '',
  ]
  return holds.includes(false) ? 1 + holds.indexOf(false) : null
}
