/**
 * The one place where something is made that leaves a device.
 *
 * To see what can leave, read `seal`: an enrolment, a request for a blind token, or a report to two
 * servers. They are made of a committed state only, so that the ledger has a report before it exists. A report is
 * a row, or zeros, in two shares; its size, and the work to make it, depend on the task only.
 */

import {
  PrivacyError, VERSION, canonical, labelledDigest, require, sameBytes, sha256, toBase64, toHex,
} from './documents.ts'
import { type Sending, isZeros } from './decide.ts'
import { encryptTo } from './hpke.ts'
import { publicOf, random, signed, utf8 } from './platform.ts'
import { NONCE_SIZE, type Shares } from './prio3.ts'
import { configOf, itemsOf } from './published.ts'
import { type Starred, rowOf, toStars, zeroRow } from './rows.ts'
import { type Answer, type Joined, type State, of } from './state.ts'
import { Committed } from './store.ts'
import { DAP, type Task, configurationOf, prioOf, readTask } from './task.ts'
import { headerOf, reportId, tokenRequest } from './tokens.ts'
import { type Bytes, bigEndian, concat } from './xof.ts'

const KEY = Symbol('made by seal')
const [CLIENT, LEADER, HELPER] = [1, 2, 3]
const [OUTDATED_CONFIG, REPORT_TOO_EARLY, REPORT_REPLAYED] = [11, 9, 2]

/** Something that may leave this device. Only `seal` makes it. */
export class Sealed {
  /** A POST to the recommender's or the leader's origin. */
  constructor(
    key: symbol,
    readonly url: string,
    readonly headers: Readonly<Record<string, string>>,
    readonly body: Bytes,
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
export async function seal(committed: Committed, sending: Sending, now: number): Promise<Sealed> {
  if (!Committed.is(committed)) throw new PrivacyError('nothing is made of a state that is not kept')
  const { state } = committed
  const joined = of(state, sending.address)
  if (sending.what === 'enrolment') return sealedEnrolment(state, joined)
  const { answer } = joined
  if (answer === null || !sameBytes(answer.task, sending.task) || answer.done) {
    throw new PrivacyError('nothing was promised for this task')
  }
  const task = readTask(answer.document)
  if (sending.what === 'token') return sealedRequest(state, joined, answer, task)
  if (!answer.promised || !state.ledger.some((line) => line.task === toHex(answer.task))) {
    throw new PrivacyError('the ledger does not have this report; nothing is made of it')
  }
  return sealedReport(state, joined, answer, task, now)
}

/** The request to be enrolled: the device's key, and its proof. */
async function sealedEnrolment(state: State, joined: Joined): Promise<Sealed> {
  const { proof, invitation: { address } } = joined
  const [login, secret] = proof.includes('.') ? [proof, ''] : ['', proof]
  const enrolment = { address, identity: await publicOf(state.identity), login, secret }
  const digest = labelledDigest('enrolment', utf8(canonical(enrolment)))
  const signature = toBase64(await signed(state.identity, digest))
  const body = utf8(canonical({ enrolment, signature, type: 'enrolment', version: VERSION }))
  return new Sealed(KEY, `${address}/participants`, { 'content-type': 'application/json' }, body)
}

/** The request for a token, signed: the issuer counts devices, and cannot read it. */
async function sealedRequest(
  state: State, joined: Joined, answer: Answer, task: Task,
): Promise<Sealed> {
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
  if (zeros) return zeroRow(task.sums)
  const items = itemsOf(state, joined)
  const scale = { low: items.scale_low, high: items.scale_high, step: items.scale_step }
  const rated: Starred[] = []
  for (const [item, { value, weight }] of Object.entries(state.ratings[joined.invitation.address] ?? {})) {
    const position = items.positions.get(item)
    if (position === undefined || items.retired.has(position) || weight === 0) continue
    rated.push({ position, stars: toStars(value, scale), weight })
  }
  rated.sort((one, other) => one.position - other.position)
  return rowOf(task.sums, rated, state.wish)
}

async function sealedReport(
  state: State, joined: Joined, answer: Answer, task: Task, now: number,
): Promise<Sealed> {
  const { servers } = task
  const id = reportId(answer.token)
  require(id.length === NONCE_SIZE, 'no id of a report')
  const prio = prioOf(task, answer.task)
  const row = ownRow(state, joined, task, isZeros(state, answer.task))
  const shares: Shares = prio.shard(prio.rows.encode(row), id, random(prio.randomSize))
  const steps = Math.floor((now - task.begin) / task.precision) + task.begin / task.precision
  const metadata = concat(id, bigEndian(steps, 8), new Uint8Array(2))
  const aad = concat(
    answer.task, configurationOf(task, answer.task, prio), metadata, sized(shares.publicShare),
  )
  const encrypted = async (place: 0 | 1): Promise<Bytes> => {
    const server = place === 0 ? servers.leader : servers.helper
    const config = await configOf(server, joined.keys[place], now)
    const info = concat(DAP, utf8(' input share'), Uint8Array.of(CLIENT, [LEADER, HELPER][place]))
    const share = concat(new Uint8Array(2), sized(place === 0 ? shares.leader : shares.helper))
    const { enc, payload } = await encryptTo(config.key, info, aad, share)
    return concat(Uint8Array.of(config.id), bigEndian(enc.length, 2), enc, sized(payload))
  }
  const body = concat(metadata, sized(shares.publicShare), await encrypted(0), await encrypted(1))
  const url = `${servers.leader.url.replace(/\/$/, '')}/tasks/${toBase64(answer.task)}/reports`
  // Nothing here names the device.
  const headers = {
    'content-type': 'application/ppm-dap;message=upload-req',
    authorization: headerOf(answer.token),
  }
  return new Sealed(KEY, url, headers, body)
}

const sized = (data: Bytes): Bytes => concat(bigEndian(data.length, 4), data)

/** Return the status that a leader's answer to a report amounts to; it has a body if it refuses. */
export function statusIn(body: Bytes): number {
  if (body.length === 0) return 200
  require(body.length === NONCE_SIZE + 1, 'this is no answer to one report')
  const error = body[NONCE_SIZE]
  if (error === OUTDATED_CONFIG || error === REPORT_TOO_EARLY) return 503
  // Another encryption of the report came before: its answer was lost.
  return error === REPORT_REPLAYED ? 200 : 410
}
