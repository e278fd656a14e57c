/**
 * Taking part: read what is public, decide, commit, seal, send, and take the answer. A step either works on ratings or
 * sends: a report is made before its moment, and leaves at it.
 */

import { type Decision, type Said, type Sending, answered, decide, nextMoment } from './decide.ts'
import { PrivacyError, ProtocolError } from './documents.ts'
import { type Bytes, random } from './platform.ts'
import { INDEX, type Published, readIndex, wanted } from './published.ts'
import { type Carrier, type Sealed, seal, statusIn } from './seal.ts'
import { type Joined, NONE, type State, leave, of } from './state.ts'
import { type Held, type Store, commit, exported, imported } from './store.ts'
import { readTask } from './task.ts'
import { tokenIn } from './tokens.ts'

const [TOLERANCE, POLL_EVERY] = [300, 300] // seconds: that a clock may be wrong; about, between two looks
const MOST_TRIES = 16

/** What a host gives a device. */
export interface Platform {
  readonly store: Store
  readonly carrier: Carrier
  /** Unix time, in seconds. */
  now(): number
  /** Seconds, about, between two looks at what is published. */
  readonly every?: number
  /** Is told what happens, for its owner; nothing of it holds a rating. */
  say?(said: Said): void
}

/** A person's device: it takes part with every recommender that was joined, by `step`. */
export class Device {
  private lookAt = 0
  private ready: { readonly sending: Sending; readonly sealed: Sealed }[] = []
  private version = 0 // of the state that they were made of

  private constructor(private readonly platform: Platform) {}

  /** Open a device's store; `fresh` is the state of one that is new. */
  static async open(platform: Platform, fresh: State): Promise<Device> {
    if ((await platform.store.load()) === null) await platform.store.commit(fresh, 0)
    return new Device(platform)
  }

  /** Return what was kept last. */
  async held(): Promise<Held> {
    const held = await this.platform.store.load()
    if (held === null) throw new PrivacyError('this device was erased')
    return held
  }

  /** Commit a change of the state; it is made again where another one was committed meanwhile. */
  async change(make: (state: State) => State | Promise<State>): Promise<Held> {
    for (let tries = 0; tries < MOST_TRIES; tries++) {
      const { state, version } = await this.held()
      const committed = await commit(this.platform.store, await make(state), version)
      if (committed !== null) return committed
    }
    throw new PrivacyError('the store takes no change')
  }

  /**
   * Return everything in a file that the passphrase opens, for another machine. This device leaves all recommenders, so
   * that no two spend of one ledger; joining again is the owner's to decide.
   */
  async export(passphrase: string): Promise<Bytes> {
    let before = (await this.held()).state
    await this.change((state) => {
      before = state
      return state.joined.reduce((all, { invitation }) => leave(all, invitation.address), state)
    })
    return exported(before, passphrase)
  }

  /** Become the device in such a file. What was spent here stays spent. */
  async restore(file: Bytes, passphrase: string): Promise<void> {
    const taken = await imported(file, passphrase)
    const known = new Set(taken.ledger.map(({ task, at }) => `${task} ${at}`))
    const more = ({ ledger }: State) => ledger.filter(({ task, at }) => !known.has(`${task} ${at}`))
    await this.change((state) => ({ ...taken, ledger: [...taken.ledger, ...more(state)] }))
  }

  /** Forget everything, what was spent as well. */
  async erase(): Promise<void> {
    this.ready = []
    await this.platform.store.erase()
  }

  /** Do what is due; return the seconds until there may be something to do again. */
  async step(): Promise<number> {
    const now = this.platform.now()
    // Where the owner has changed something, it is decided again.
    if (this.ready.length > 0 && (await this.held()).version !== this.version) this.ready = []
    if (this.ready.length > 0) await this.sendDue(now)
    else await this.decided(now)
    const due = nextMoment((await this.held()).state)
    const moments = this.ready.length > 0 ? this.ready.map(({ sending }) => sending.at) : [this.lookAt, due ?? Infinity]
    return Math.max(Math.min(...moments) - this.platform.now(), 1)
  }

  private async decided(now: number): Promise<void> {
    const { every = POLL_EVERY } = this.platform
    let published: ReadonlyMap<string, Published> = new Map()
    // Or the clock was put back.
    if (now >= this.lookAt || this.lookAt > now + 3 * every) {
      published = await this.look(Math.floor(now))
      this.lookAt = now + every * (0.5 + random(1)[0] / 256)
    }
    let decision: Decision | undefined
    const committed = await this.change(async (state) => {
      decision = await decide(state, published, Math.floor(this.platform.now()))
      return decision.state
    })
    const { said, sending: due } = decision as Decision
    this.version = committed.version
    said.forEach((each) => this.platform.say?.(each))
    for (const sending of due) {
      try {
        this.ready.push({ sending, sealed: await seal(committed, sending, Math.floor(now)) })
      } catch (error) {
        if (!(error instanceof ProtocolError)) throw error
        await this.take(sending, null)
      }
    }
  }

  /** Send what is due, one at a time; a report only where this clock and the leader's agree: it would not count. */
  private async sendDue(now: number): Promise<void> {
    const place = this.ready.findIndex(({ sending }) => sending.at <= now)
    if (place < 0) return
    const [{ sending, sealed }] = this.ready.splice(place, 1)
    const ahead = sending.what === 'report' ? await this.ahead(sealed).catch(() => NaN) : 0
    if ((await this.held()).version !== this.version) return // the owner was here meanwhile: it is decided again
    const told = Math.abs(ahead) < TOLERANCE ? await this.platform.carrier.send(sealed).catch(() => null) : null
    await this.take(sending, told?.status ?? null, told?.body)
    if (Math.abs(ahead) >= TOLERANCE) this.platform.say?.({ what: 'clock', address: sending.address, ahead })
  }

  /** Return by how many seconds this clock is ahead of the leader's; NaN where that says no time. */
  private async ahead({ url }: Sealed): Promise<number> {
    const date = await this.platform.carrier.date(url.replace(/tasks\/[^/]*\/reports$/, 'healthz'))
    return date === null ? 0 : this.platform.now() - Date.parse(date) / 1000
  }

  /** Commit what came of something that was sent. */
  private async take(sending: Sending, status: number | null, body: Bytes = NONE): Promise<void> {
    let said: readonly Said[] = []
    const now = Math.floor(this.platform.now())
    const { version } = await this.change((state) => {
      const { answer } = of(state, sending.address)
      let [told, token] = [status, NONE]
      try {
        if (status === 200 && sending.what === 'report') told = statusIn(body)
        if (status === 200 && sending.what === 'token' && answer !== null) {
          token = tokenIn(answer, readTask(answer.document), body)
        }
      } catch (error) {
        if (!(error instanceof ProtocolError)) throw error
        told = null // an answer that is none
      }
      const decision = answered(state, sending, now, told, token)
      said = decision.said
      return decision.state
    })
    if (version === this.version + 1) this.version = version // else the owner was here: what is ready is made again
    said.forEach((each) => this.platform.say?.(each))
  }

  /** Read what is published. What is read depends on nothing but what is public. */
  private async look(now: number): Promise<ReadonlyMap<string, Published>> {
    const { state } = await this.held()
    const found = new Map<string, Published>()
    for (const joined of state.joined.filter(({ left }) => !left)) {
      const { address } = joined.invitation
      try {
        const index = readIndex(await this.platform.carrier.read(`${address}/${INDEX.name}`, INDEX.most))
        found.set(address, await this.files(state, joined, index, now))
      } catch {} // it could not be reached, or says nothing that can be read
    }
    return found
  }

  private async files(state: State, joined: Joined, index: Published['index'], now: number): Promise<Published> {
    const files = new Map<string, Bytes>()
    const tried = new Set<string>()
    let read = 0
    for (;;) {
      const seen = { index, files, read }
      const waiting = wanted(state, joined, seen, now).filter(({ name }) => !tried.has(name))
      if (waiting.length === 0) return seen
      for (const { name, digest, most } of waiting) {
        tried.add(name)
        const data = await this.platform.carrier.read(`${joined.invitation.address}/${name}`, most).catch(() => null)
        if (data === null) continue
        read += data.length
        files.set(digest, data.length > most ? NONE : data) // so that it is refused
      }
    }
  }
}
