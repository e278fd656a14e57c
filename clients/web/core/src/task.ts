/** Tasks of hdp-pairs, the cards in them, and what a participant refuses, by public numbers alone. */

import { type RowPrio, boundedVector, rankOne } from './circuits.ts'
import {
  type Read, VERSION, fromBase64, isSame, labelledDigest, list, object, only, readDocument, require, text,
  toBase64, toHex, whole,
} from './documents.ts'
import { utf8 } from './platform.ts'
import { type Bytes, bigEndian, concat } from './xof.ts'

const HOUR = 3600
const DAY = 24 * HOUR
const MAX_PERIOD = 400 * DAY
const MAX_ITEMS = 2 ** 20
const MAX_ENTRIES = 2 ** 22
const MAX_DEVIATION = 2 ** 49
const RUN_SIZE = 16
const EVERYBODY = 2 ** 16

/** Of the draft of DAP: in HPKE's info, and before a task's id in a VDAF's application context. */
export const DAP = utf8('dap-18')

const key: Read<string> = (value) => toBase64(fromBase64(text()(value), 32))

const hpkeConfig: Read<string> = (value) => {
  const { length } = fromBase64(text()(value))
  require(length >= 9 && length <= 500, 'an HPKE configuration is too short or too long')
  return value as string
}

const organisation: Read<string> = (value) => {
  const right = typeof value === 'string' && value.length >= 1 && value.length <= 200 &&
    !/[\p{C}\p{Zl}\p{Zp}]/u.test(value)
  require(right, "an organisation's name has 1 to 200 characters that can be seen")
  return value
}

const serverAddress: Read<string> = (value) => {
  const right = typeof value === 'string' && value.length <= 300 &&
    /^https:\/\/[^/?#@\s\\]+(\/[^?#\s\\]*)?$/.test(value)
  require(right, "a server's address is like https://host:port")
  return value
}

const server = object({
  authority: text(),
  identity: key,
  organisation,
  signing: key,
  url: serverAddress,
})
export type Server = ReturnType<typeof server>

/** Two servers that are not one, as far as their cards show it. */
export const servers: Read<{ readonly leader: Server; readonly helper: Server }> = (value) => {
  const pair = object({ leader: server, helper: server })(value)
  const keys = [pair.leader, pair.helper].flatMap((each) => [each.identity, each.signing])
  require(keys.slice(2).every((key) => !keys.slice(0, 2).includes(key)),
    'the two servers have the same key, so that they are one')
  const [first, second] = [pair.leader, pair.helper].map((each) => plain(each.organisation))
  require(first !== second, 'both servers are of one organisation, which would see everything')
  const authorities = [pair.leader, pair.helper].map((each) => each.authority.trim())
  require(authorities[0] !== authorities[1] || authorities[0] === '',
    'the two servers have the same certificate authority')
  return pair
}
export type Servers = ReturnType<typeof servers>

const plain = (name: string): string =>
  name.normalize('NFKD').toLowerCase().replace(/[^\p{L}\p{N}]/gu, '')

const collector = object({ hpke: hpkeConfig, identity: key, organisation })
export type Collector = ReturnType<typeof collector>

const shared = { bits: whole(1, 24), bound: whole(1, 2 ** 40), cap: whole(1, 2 ** 20) }

const linear = object({
  ...shared,
  items: whole(1, MAX_ITEMS),
  presence: whole(1, MAX_DEVIATION),
  type: only('linear'),
  values: whole(0, MAX_DEVIATION),
})

const pairs = object({
  ...shared,
  deviation: whole(1, MAX_DEVIATION),
  heads: list(whole(0, MAX_ITEMS - 1), 2, 2000),
  type: only('pairs'),
  weights: list(whole(1, 1024)),
})

export type Sums = ReturnType<typeof linear> | ReturnType<typeof pairs>

const sums: Read<Sums> = (value) =>
  (value as { type?: unknown } | null)?.type === 'pairs' ? pairs(value) : linear(value)

const fields = object({
  asked: whole(1, EVERYBODY),
  begin: whole(),
  catalogue: text(),
  collector,
  end: whole(),
  minimum: whole(2, 2 ** 40 - 1),
  precision: whole(1, MAX_PERIOD),
  run: text(),
  servers,
  sums,
  token_key: text(),
  type: only('task'),
  version: only(VERSION),
})
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
  fromBase64(task.run, RUN_SIZE)
  require(entries(task.sums) <= MAX_ENTRIES, 'a sum has too many entries')
  const largest = Math.floor(Math.sqrt(Math.floor(task.sums.bound / task.sums.cap)))
  require(largest < 2 ** task.sums.bits, 'the cap does not keep numbers within their bits')
  if (task.sums.type === 'pairs') {
    const { heads, weights } = task.sums
    require(heads.every((head, at) => at === 0 || heads[at - 1] < head), 'heads do not ascend')
    require(weights.length === heads.length, 'there is no weight for every head')
  }
  if (task.token_key !== '') readTokenKey(task.token_key)
  return task
}

function entries(of: Sums): number {
  if (of.type === 'pairs') return (of.heads.length * (of.heads.length + 1)) / 2
  return of.items + (of.values > 0 ? of.items + 1 : 0)
}

/** The cryptography of a task. */
export function prioOf(task: Task, id: Bytes): RowPrio {
  const context = concat(DAP, id)
  const { bits, bound } = task.sums
  const largest = 2 ** bits - 1
  if (task.sums.type === 'pairs') return rankOne(task.sums.heads.length, largest, bound, context)
  const signed = task.sums.values > 0
  return boundedVector(entries(task.sums), largest, signed ? 2 * bound : bound, signed, context)
}

/** Return whether a participant with this secret is asked to report; it depends on no rating. */
export function isAsked(task: Task, id: Bytes, secret: Bytes): boolean {
  const drawn = labelledDigest('asked', concat(id, secret))
  return drawn[0] * 256 + drawn[1] < task.asked
}

// An RSA key of 2,048 bits with exponent 65,537, as RFC 9578 (8.2) has it: there is one encoding.
const SPKI_HEAD =
  '30820152303d06092a864886f70d01010a3030a00d300b0609608648016503040202a11a301806092a864886f70d' +
  '010108300b0609608648016503040202a2030201300382010f003082010a0282010100'
const SPKI_TAIL = '0203010001'

export interface TokenKey {
  readonly encoded: Bytes
  readonly modulus: bigint
}

export function readTokenKey(spelled: string): TokenKey {
  const encoded = fromBase64(spelled)
  const plain = toHex(encoded)
  const inner = plain.slice(SPKI_HEAD.length, -SPKI_TAIL.length)
  const modulus = BigInt(`0x0${inner}`)
  const whole = plain === SPKI_HEAD + inner + SPKI_TAIL && inner.length === 512
  require(whole && modulus >> 2047n === 1n && modulus % 2n === 1n,
    'a key for tokens is an RSA key of 2,048 bits (RFC 9578)')
  return { encoded, modulus }
}

/** Return DAP's configuration of a task, which is in what is sealed. */
export function configurationOf(task: Task, id: Bytes, prio: RowPrio): Bytes {
  const sized = (data: Bytes, size: number): Bytes => concat(bigEndian(data.length, size), data)
  const steps = [task.begin, task.end - task.begin].map((each) => each / task.precision)
  return concat(
    sized(id, 1),
    sized(utf8(task.servers.leader.url), 2),
    sized(utf8(task.servers.helper.url), 2),
    bigEndian(task.precision, 8),
    bigEndian(task.minimum, 8),
    Uint8Array.of(1, 0, 0), // sums over intervals of time
    bigEndian(prio.identifier, 4),
    sized(prio.parameters, 2),
    Uint8Array.of(0, 20, 0, 1, 0, 16), // one extension: the task's interval
    ...steps.map((each) => bigEndian(each, 8)),
  )
}

// What is refused

/** What must hold, by number; the numbers are those of the wire and of its tests. */
export const RULES = {
  1: 'the task is for the pair of servers, and of the recommender, that are pinned here',
  2: 'it is about the items that are pinned here',
  3: 'its heads are as many as this release takes, and all of them are items',
  4: 'values are asked for only where ratings have stars',
  5: 'rows are as this release makes them, and no rating has more of one than the cap',
  6: 'it costs a person no more than one task may',
  7: 'it is under way, and ends within the time that a task may take',
  8: 'whoever reports shows a token',
} as const

export interface Known {
  readonly servers: Servers
  readonly collector: Collector
  readonly catalogue: string
  readonly items: number
  readonly stars: boolean
}

/** Limits that are the same for everybody of one release: rho of a task is at most 3/2. */
export const EVERYBODY_LIMITS = { rho: [3n, 2n], cap: 16, heads: 300, seconds: 92 * DAY } as const

const BITS = { linear: 8, pairs: 10 } as const

/** Return the number of the first rule that a task breaks; null if a participant answers. */
export function refusedBy(
  task: Task, known: Known, now: number, most: readonly [bigint, bigint] = EVERYBODY_LIMITS.rho,
): keyof typeof RULES | null {
  const { sums } = task
  const limits = EVERYBODY_LIMITS
  const bits = BITS[sums.type]
  const heads = sums.type === 'pairs' ? sums.heads : []
  const items = sums.type === 'pairs' ? known.items : sums.items
  const [a, b] = rhoOf(sums)
  const holds: Record<keyof typeof RULES, boolean> = {
    1: isSame(task.servers, known.servers) && isSame(task.collector, known.collector),
    2: task.catalogue === known.catalogue && items === known.items,
    3: heads.length <= limits.heads && heads.every((head) => head < known.items),
    4: known.stars || sums.type === 'pairs' || sums.values === 0,
    5: sums.bits === bits && sums.bound === 2 ** (2 * bits + 4) - 1 && sums.cap >= limits.cap,
    6: a * most[1] <= most[0] * b,
    7: task.begin <= now && now < task.end && task.end <= now + limits.seconds,
    8: task.token_key !== '',
  }
  const broken = Object.keys(RULES).map(Number).find((rule) => !holds[rule as keyof typeof RULES])
  return (broken ?? null) as keyof typeof RULES | null
}

/** What a person pays: history against none, in zero-concentrated privacy, as a fraction. */
function rhoOf(sums: Sums): readonly [bigint, bigint] {
  const bound = BigInt(sums.bound)
  if (sums.type === 'pairs') return [bound ** 2n, 4n * BigInt(sums.deviation) ** 2n]
  const [first, second] = [sums.presence, sums.values].map((each) => 2n * BigInt(each) ** 2n)
  return second === 0n ? [bound, first] : [bound * (first + second), first * second]
}
