/**
 * The one place where something is made that leaves a device: an enrolment, a request for a blind token, or a report
 * to two servers, of a committed state only, so that the ledger has a report before it exists. A report is a row, or
 * zeros, in two shares; its size, and the work to make it, depend on the task only.
 */

import { expand, extract } from '@noble/hashes/hkdf.js'
import { sha256 as sha256Hash } from '@noble/hashes/sha2.js'
import {
  PrivacyError, VERSION, canonical, labelledDigest, require, sameBytes, sha256, toBase64, toHex,
} from './documents.ts'
import type { Sending } from './decide.ts'
import { type Bytes, bigEndian, concat, machine, publicOf, random, signed, sized, utf8 } from './platform.ts'
import { NONCE_SIZE, RANDOM_SIZE, shard } from './prio3.ts'
import { configOf, itemsOf } from './published.ts'
import { rowOf, toStars } from './rows.ts'
import { type Answer, type Joined, NONE, type State, of } from './state.ts'
import { type Held, isCommitted } from './store.ts'
import { DAP, type Task, circuitOf, configurationOf, entriesOf, readTask } from './task.ts'
import { headerOf, reportId, tokenRequest } from './tokens.ts'

const KEY = Symbol('made by seal')
const [CLIENT, OUTDATED_CONFIG, REPORT_TOO_EARLY, REPORT_REPLAYED] = [1, 11, 9, 2]

/** Something that may leave this device: a POST to the recommender's or the leader's origin. Only `seal` makes it. */
export class Sealed {
  constructor(
    key: symbol, readonly url: string, readonly headers: Readonly<Record<string, string>>, readonly body: Bytes,
  ) {
    if (key !== KEY) throw new PrivacyError('what leaves a device is made by seal')
    Object.freeze(this)
  }
}

/** The way out, which the host has and the core has not. Whoever answers may be lying. */
export interface Carrier {
  /** Return a public file, by a request that is the same for every device and every time. */
  read(url: string, most: number): Promise<Bytes>
  /** Return the Date header of the answer to a GET; null if it has none. */
  date(url: string): Promise<string | null>
  /** Send something, at a moment that depends on no rating. */
  send(sealed: Sealed): Promise<{ readonly status: number; readonly body: Bytes }>
}

/** Return what is to be sent, of a state that a store has kept. */
export async function seal(committed: Held, sending: Sending, now: number): Promise<Sealed> {
  if (!isCommitted(committed)) throw new PrivacyError('nothing is made of a state that is not kept')
  const { state } = committed
  const joined = of(state, sending.address)
  if (sending.what === 'enrolment') return sealedEnrolment(state, joined)
  const { answer } = joined
  if (answer === null || !sameBytes(answer.task, sending.task) || answer.done) {
    throw new PrivacyError('nothing was promised for this task')
  }
  const task = readTask(answer.document)
  if (sending.what === 'token') return sealedRequest(state, joined, answer, task)
  const [line, ...more] = state.ledger.filter((each) => each.task === toHex(answer.task))
  if (!answer.promised || line === undefined) throw new PrivacyError('the ledger does not have this report')
  const paid = { ...state, wish: Math.min(state.wish, line.wish) }
  return sealedReport(joined, answer, task, ownRow(paid, joined, task, line.zeros || more.length > 0), now)
}

/** The request to be enrolled: the device's key, and its proof. */
async function sealedEnrolment(state: State, { proof, invitation: { address } }: Joined): Promise<Sealed> {
  const [login, secret] = proof.includes('.') ? [proof, ''] : ['', proof]
  const enrolment = { address, identity: await publicOf(state.identity), login, secret }
  const digest = labelledDigest('enrolment', utf8(canonical(enrolment)))
  const signature = toBase64(await signed(state.identity, digest))
  const body = utf8(canonical({ enrolment, signature, type: 'enrolment', version: VERSION }))
  return new Sealed(KEY, `${address}/participants`, { 'content-type': 'application/json' }, body)
}

/** The request for a token, signed: the issuer counts devices, and cannot read it. */
async function sealedRequest(state: State, joined: Joined, answer: Answer, task: Task): Promise<Sealed> {
  const body = tokenRequest(answer, task)
  const digest = labelledDigest('token request', concat(answer.task, sha256(body)))
  const headers = {
    'content-type': 'application/private-token-request',
    'hdpmf-device': await publicOf(state.identity),
    'hdpmf-signature': toBase64(await signed(state.identity, digest)),
  }
  return new Sealed(KEY, `${joined.invitation.address}/tokens/${toBase64(answer.task)}`, headers, body)
}

/** The owner's row for a task, or zeros. */
export function ownRow(state: State, joined: Joined, task: Task, zeros: boolean): number[] {
  if (zeros) return Array(entriesOf(task.sums)).fill(0)
  const items = itemsOf(state, joined)
  const rated = Object.entries(state.ratings[joined.invitation.address] ?? {}).flatMap(([item, { value, weight }]) => {
    const position = items.positions.get(item)
    const able = position !== undefined && !items.retired.has(position) && weight > 0
    // Nothing that is rated keeps a report from being made.
    const onScale = Math.min(Math.max(value, items.scale_low), items.scale_high)
    return able ? [{ position, stars: toStars(onScale, items), weight }] : []
  })
  return rowOf(task.sums, rated.sort((one, other) => one.position - other.position), state.wish)
}

async function sealedReport(
  joined: Joined, answer: Answer, task: Task, row: readonly number[], now: number,
): Promise<Sealed> {
  const id = reportId(answer.token)
  const shares = shard(circuitOf(task), concat(DAP, answer.task), row, id, random(RANDOM_SIZE))
  const metadata = concat(id, bigEndian(Math.floor(now / task.precision), 8), new Uint8Array(2))
  const aad = concat(answer.task, configurationOf(task, answer.task), metadata, sized(shares.publicShare, 4))
  const encrypted = async (place: 0 | 1): Promise<Bytes> => {
    const role = (['leader', 'helper'] as const)[place]
    const config = await configOf(task.servers[role], joined.keys[place], now)
    const info = concat(DAP, utf8(' input share'), Uint8Array.of(CLIENT, 2 + place))
    const share = concat(new Uint8Array(2), sized(shares[role], 4))
    const { enc, payload } = await encryptTo(config.key, info, aad, share)
    return concat(Uint8Array.of(config.id), sized(enc, 2), sized(payload, 4))
  }
  const body = concat(metadata, sized(shares.publicShare, 4), await encrypted(0), await encrypted(1))
  const url = `${task.servers.leader.url.replace(/\/$/, '')}/tasks/${toBase64(answer.task)}/reports`
  // Nothing here names the device.
  const headers = { 'content-type': 'application/ppm-dap;message=upload-req', authorization: headerOf(answer.token) }
  return new Sealed(KEY, url, headers, body)
}

/** Return the status that a leader's answer to a report amounts to; it has a body if it refuses. */
export function statusIn(body: Bytes): number {
  if (body.length === 0) return 200
  require(body.length === NONCE_SIZE + 1, 'this is no answer to one report')
  const error = body[NONCE_SIZE]
  if (error === OUTDATED_CONFIG || error === REPORT_TOO_EARLY) return 503
  // Another encryption of the report came before: its answer was lost.
  return error === REPORT_REPLAYED ? 200 : 410
}

// HPKE (RFC 9180) in base mode, for one message: X25519, HKDF-SHA256 and AES-128-GCM

const KEM = concat(utf8('KEM'), bigEndian(0x20, 2))
const SUITE = concat(utf8('HPKE'), bigEndian(0x20, 2), bigEndian(1, 2), bigEndian(1, 2))

/** Encrypt to the owner of a key. */
async function encryptTo(key: Bytes, info: Bytes, aad: Bytes, plaintext: Bytes) {
  const { subtle } = machine.crypto
  const { publicKey, privateKey } = await subtle.generateKey('X25519', true, ['deriveBits'])
  const enc = new Uint8Array(await subtle.exportKey('raw', publicKey))
  const other = await subtle.importKey('raw', key, 'X25519', false, [])
  const dh = new Uint8Array(await subtle.deriveBits({ name: 'X25519', public: other }, privateKey, 256).catch(() => []))
  require(dh.some((byte) => byte !== 0), "a server's public key is none") // of small order
  const shared = labelled(KEM, extractWith(KEM, NONE, 'eae_prk', dh), 'shared_secret', concat(enc, key), 32)
  const ids = [extractWith(SUITE, NONE, 'psk_id_hash', NONE), extractWith(SUITE, NONE, 'info_hash', info)]
  const context = concat(Uint8Array.of(0), ...ids)
  const secret = extractWith(SUITE, shared, 'secret', NONE)
  const iv = labelled(SUITE, secret, 'base_nonce', context, 12)
  const raw = labelled(SUITE, secret, 'key', context, 16)
  const gcm = await subtle.importKey('raw', raw, 'AES-GCM', false, ['encrypt'])
  const algorithm = { name: 'AES-GCM', iv, additionalData: aad }
  return { enc, payload: new Uint8Array(await subtle.encrypt(algorithm, gcm, plaintext)) }
}

const extractWith = (suite: Bytes, salt: Bytes, label: string, input: Bytes): Bytes =>
  new Uint8Array(extract(sha256Hash, concat(utf8('HPKE-v1'), suite, utf8(label), input), salt))

function labelled(suite: Bytes, secret: Bytes, label: string, info: Bytes, size: number): Bytes {
  const whole = concat(bigEndian(size, 2), utf8('HPKE-v1'), suite, utf8(label), info)
  return new Uint8Array(expand(sha256Hash, secret, whole, size))
}
