/**
 * The host of the core in the worker: takes what the person does, and hands out what they see.
 *
 * Acts come one after the other. None of them decides whether or when something leaves: the device
 * does, by `step`, which runs beside them.
 */

import {
  type Carrier, type Invitation, type Link, type Locked, type Platform, type Said, type State, type Store,
  Device, LEVELS, LockedStore, PassphraseError, PrivacyError, ProtocolError, WHOLE, join, leave, newState, opened, rate, readLink,
  serversDigest,
} from '@hdpmf/core'

import { type Kept, Remembering, keptIn, toggled, withKept } from './kept.ts'
import type { Act, HostInfo, LevelName, Notice, Trouble, View } from './messages.ts'
import {
  FIRST_LOOK, type Look, NO_PICK, PAGE, Shelves, askedOf, invitedOf, levelOf, nameOf, privacyOf, receiptsOf,
  troubleOf, valueOf,
} from './views.ts'

export interface Outside {
  readonly store: Store<State | Locked>
  readonly carrier: Carrier
  /** Tell the carrier which origins there are. */
  allow(origins: readonly string[]): void
  show(view: View): void
  save(name: string, bytes: Uint8Array): void
  /** Let the person choose a file, which `restore` then takes. */
  choose(): void
  /** The passphrase that the person types, once they have. */
  passphrase(): Promise<string>
  now(): number
  readonly host: HostInfo
}

const HOUR = 3600
/** A visit is another one after so long. */
const AWAY = 4 * HOUR
const LONGEST = 600

interface Open {
  readonly invitation: Invitation
  readonly link: Link
}

export class Host {
  private device: Device
  private look: Look = FIRST_LOOK
  private address = ''
  private open: Open | null = null
  private level: LevelName = 'middle'
  private asking = false
  private adding = false
  private busy = false
  private notice: Notice | null = null
  private acts: Promise<void> = Promise.resolve()
  private wake: () => void = () => undefined
  private passphrase = ''
  private begun = 0
  private drawn = 0

  private constructor(
    private readonly outside: Outside, private readonly store: LockedStore, device: Device,
  ) {
    this.device = device
  }

  /** Open a device, by its passphrase if it has one. */
  static async open(outside: Outside, link = ''): Promise<Host> {
    const store = await unlocked(outside)
    const host: Host = new Host(outside, store, await deviceOf(outside, store, (said) => host.told(said)))
    const { state } = await host.device.held()
    host.level = levelOf(state)
    host.address = active(state)[0]?.invitation.address ?? ''
    host.tellOrigins(state)
    if (link !== '') await host.act({ do: 'link', link })
    else await host.act({ do: 'tab', tab: 'list' })
    return host
  }

  /** Take part, for as long as this host lives. */
  async run(sleep: (seconds: number, wake: (now: () => void) => void) => Promise<void>): Promise<never> {
    for (;;) await sleep(await this.step(), (now) => { this.wake = now })
  }

  /** Do what is due; return the seconds until there may be something to do again. */
  async step(): Promise<number> {
    let wait = LONGEST
    const others = [...this.look.troubles].filter(([, { what }]) => what !== 'stopped')
    this.look = { ...this.look, troubles: new Map(others) }
    try {
      wait = await this.device.step()
    } catch (error) {
      const trouble: Trouble = { what: 'stopped', why: error instanceof Error ? error.name : '' }
      this.look = { ...this.look, troubles: new Map([...others, [this.address, trouble]]) }
    }
    await this.draw()
    return Math.min(wait, LONGEST)
  }

  /** Take a link that was opened from outside; it does not take the place of what is being decided. */
  async opened(link: string): Promise<void> {
    if (this.open === null && !this.asking) await this.act({ do: 'link', link })
  }

  /** Do something that the person wants, after what came before. */
  act(act: Act): Promise<void> {
    this.acts = this.acts.then(async () => {
      try {
        await this.done(act)
      } catch (error) {
        this.say('failed') // and what comes next is done all the same
        if (!(error instanceof ProtocolError || error instanceof PrivacyError)) queueMicrotask(() => { throw error })
      }
      await this.draw()
    })
    return this.acts
  }

  private async done(act: Act): Promise<void> {
    switch (act.do) {
      case 'link': return this.readLink(act.link)
      case 'level': return this.chooseLevel(act.level)
      case 'join': return this.join()
      case 'add': this.adding = true; return
      case 'back':
        if (this.open !== null) this.open = null
        else this.adding = false
        return
      case 'member':
        this.address = act.address
        this.look = { ...FIRST_LOOK, tab: this.look.tab, troubles: this.look.troubles }
        return this.visit()
      case 'tab': return this.turnTo(act.tab)
      case 'pick': this.look = { ...this.look, pick: act.pick, count: PAGE, still: [] }; return
      case 'search': this.look = { ...this.look, search: act.text.slice(0, 100), count: PAGE }; return
      case 'mine': this.look = { ...this.look, mine: act.on, search: '', count: PAGE }; return
      case 'more': this.look = { ...this.look, count: this.look.count + PAGE, still: [] }; return
      case 'rate': return this.rate(act.id, act.stars)
      case 'save': return this.mark('saved', act.id, act.on)
      case 'hide': return this.mark('hidden', act.id, act.on)
      case 'ask': this.asking = act.on; return
      case 'answer':
        this.asking = false
        return this.change((state) => withKept({ ...state, wish: act.yes ? WHOLE : 0 }, { answer: act.yes }))
      case 'language': return this.keep({ language: act.language })
      case 'leave':
        await this.change((state) => leave(state, act.address))
        return this.left()
      case 'forget': return this.forget()
      case 'erase': return this.erase()
      case 'receipts':
        return this.outside.save('sumi-receipts.json', new TextEncoder().encode(receiptsOf((await this.device.held()).state)))
      case 'export': return this.export(act.passphrase)
      case 'import':
        this.passphrase = act.passphrase
        return this.outside.choose()
      case 'passphrase': return this.protect(act.old, act.passphrase)
      case 'unlock': return
    }
  }

  private async readLink(text: string): Promise<void> {
    let link: Link
    try {
      link = readLink(text.trim())
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error
      return this.say('bad link')
    }
    const { state } = await this.device.held()
    this.busy = true
    await this.draw()
    try {
      this.tellOrigins(state, link.address)
      const data = await this.outside.carrier.read(link.url, link.most).catch(() => null)
      if (data === null) return this.say('no answer')
      const invitation = opened(link, data)
      const { leader, helper } = invitation.servers
      ;[leader, helper].forEach(({ url }) => new URL(url)) // TypeError where that is no address
      const before = active(state).find((each) => each.invitation.address === link.address)
      this.level = levelOf(state)
      // Whoever opens the link once more wants their list.
      if (before?.enrolled && serversDigest(before.invitation.servers) === serversDigest(invitation.servers)) {
        this.adding = false
        await this.done({ do: 'member', address: link.address })
        return await this.turnTo('list')
      }
      this.open = { invitation, link }
    } catch (error) {
      if (!(error instanceof ProtocolError || error instanceof TypeError)) throw error
      this.say('bad link')
    } finally {
      this.busy = false
      this.tellOrigins(state)
    }
  }

  private async chooseLevel(level: LevelName): Promise<void> {
    this.level = level
    if (this.open !== null) return
    await this.change((state) => withKept({ ...state, limits: LEVELS[level] }, { levelChosen: true }))
    this.say('changed')
  }

  private async join(): Promise<void> {
    if (this.open === null) return
    const { invitation, link } = this.open
    const { level } = this
    try {
      await this.change((state) => {
        const limits = keptIn(state).levelChosen ? state.limits : LEVELS[level]
        return join(withKept({ ...state, limits }, { levelChosen: true }), invitation, link.secret)
      })
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error
      return this.say('other servers')
    }
    this.busy = true
    await this.draw()
    // A new device looks at once at what is published.
    this.device = await deviceOf(this.outside, this.store, (said) => this.told(said))
    this.tellOrigins((await this.device.held()).state)
    await this.device.step()
    this.busy = false
    this.open = null
    this.adding = false
    this.address = invitation.address
    await this.visit()
    await this.turnTo('rate')
    this.wake()
  }

  private async turnTo(tab: Look['tab']): Promise<void> {
    const { state } = await this.device.held()
    this.look = {
      ...this.look, tab, pick: NO_PICK, search: '', mine: false, count: PAGE, still: [],
      ratedBefore: new Set(Object.keys(state.ratings[this.address] ?? {})),
    }
    if (tab === 'list') await this.visit()
  }

  private async rate(id: string, stars: number | null): Promise<void> {
    const { address } = this
    const at = Math.floor(this.outside.now())
    const { items } = await this.shelves()
    if (items === null || !items.positions.has(id)) return
    await this.still()
    const rated = stars === null ? null : { value: valueOf(stars, items), weight: WHOLE, at }
    await this.change((state) => {
      const saved = keptIn(state).saved
      // What was watched is no longer to be seen.
      const others = rated === null ? saved : { ...saved, [address]: toggled(saved[address] ?? [], id, false) }
      return rate(withKept(state, { saved: others }), address, id, rated)
    })
  }

  private async mark(what: 'saved' | 'hidden', id: string, on: boolean): Promise<void> {
    const { address } = this
    if (what === 'hidden' && on) await this.still()
    await this.change((state) => {
      const marks = keptIn(state)[what]
      return withKept(state, { [what]: { ...marks, [address]: toggled(marks[address] ?? [], id, on) } })
    })
  }

  /** Let the list stay as it is, so that nothing jumps under a thumb. */
  private async still(): Promise<void> {
    if (this.look.tab !== 'list' || this.look.still.length > 0) return
    const { titles } = (await this.shelves()).list()
    this.look = { ...this.look, still: titles.map((each) => each.id) }
  }

  /** Remember what the list shows, and, where the last look is long ago, what it showed then. */
  private async visit(): Promise<void> {
    const { address } = this
    const top = (await this.shelves().catch(() => null))?.top(PAGE) ?? []
    if (top.length === 0) return
    const at = Math.floor(this.outside.now())
    await this.change((state) => {
      const { visits } = keptIn(state)
      const last = visits[address]
      const since = last === undefined ? null : at - last.at > AWAY ? { at: last.at, top: last.top } : last.since
      return withKept(state, { visits: { ...visits, [address]: { at, top, since } } })
    })
  }

  private async left(): Promise<void> {
    const { state } = await this.device.held()
    this.address = active(state)[0]?.invitation.address ?? ''
    this.tellOrigins(state)
    this.say('left')
  }

  /** Forget ratings and all that follows from them; what has left stays in the ledger. */
  private async forget(): Promise<void> {
    await this.change((state) =>
      withKept({ ...state, ratings: {} }, { saved: {}, hidden: {}, visits: {} }))
    this.say('forgotten')
  }

  /** Save everything in a file. This device leaves all recommenders: two would spend one budget. */
  private async export(passphrase: string): Promise<void> {
    this.outside.save('device.hdpmf', await this.device.export(passphrase))
    await this.left()
  }

  /** Become the device in a file that the person has chosen. */
  restore(file: Uint8Array<ArrayBuffer>): Promise<void> {
    this.acts = this.acts.then(async () => {
      try {
        await this.device.restore(file, this.passphrase)
        await this.left()
        this.adding = false
        this.say('imported')
      } catch (error) {
        if (!(error instanceof PrivacyError)) throw error
        this.say(error instanceof PassphraseError ? 'bad passphrase' : 'bad file')
      }
      this.passphrase = ''
      await this.draw()
    })
    return this.acts
  }

  private async protect(old: string, passphrase: string): Promise<void> {
    try {
      await LockedStore.open(this.outside.store, old) // whoever finds the app open may not change it
    } catch (error) {
      if (!(error instanceof PassphraseError)) throw error
      return this.say('bad passphrase')
    }
    await this.store.protect(passphrase === '' ? null : passphrase)
    this.say(passphrase === '' ? 'unlocked for good' : 'locked next time')
  }

  /** Forget everything, also what was spent. */
  private async erase(): Promise<void> {
    await this.device.erase()
    this.device = await deviceOf(this.outside, this.store, (said) => this.told(said))
    this.look = FIRST_LOOK
    await this.left()
    this.say('erased')
  }

  private keep(change: Partial<Kept>): Promise<void> {
    return this.change((state) => withKept(state, change))
  }

  private async change(make: (state: State) => State): Promise<void> {
    await this.device.change(make)
  }

  /** Take what the device says: some of it is trouble. */
  private told(said: Said): void {
    const trouble = troubleOf(said)
    const others = [...this.look.troubles].filter(([address]) => address !== said.address)
    const troubles = new Map(trouble === null ? others : [...others, [said.address, trouble] as const])
    this.look = { ...this.look, troubles }
    void this.draw()
  }

  private say(what: Notice['what']): void {
    this.notice = { what, number: (this.notice?.number ?? 0) + 1 }
  }

  private tellOrigins(state: State, also = ''): void {
    const urls = active(state).flatMap(({ invitation: { address, servers } }) => [address, servers.leader.url])
    this.outside.allow([...new Set([...urls, ...(also === '' ? [] : [also])].map((url) => new URL(url).origin))])
  }

  private async shelves(): Promise<Shelves> {
    const { state } = await this.device.held()
    const joined = state.joined.find(({ invitation }) => invitation.address === this.address)
    if (joined === undefined) throw new PrivacyError('no recommender was joined')
    return new Shelves(state, joined, Math.floor(this.outside.now()), this.look)
  }

  /** Show how things are now; what was begun before something newer was shown is left. */
  async draw(): Promise<void> {
    const number = ++this.begun
    const view = await this.view()
    if (number < this.drawn) return
    this.drawn = number
    this.outside.show(view)
  }

  private async view(): Promise<View> {
    const { state } = await this.device.held()
    const shown = { host: this.outside.host, language: keptIn(state).language, notice: this.notice }
    if (this.open !== null) {
      return { ...shown, page: 'invited', invited: invitedOf(this.open.invitation, state, this.level, this.busy) }
    }
    const members = active(state)
    const joined = members.find(({ invitation }) => invitation.address === this.address)
    if (joined === undefined || this.adding) {
      return { ...shown, page: 'start', busy: this.busy, back: joined !== undefined }
    }
    const now = Math.floor(this.outside.now())
    const shelves = new Shelves(state, joined, now, this.look)
    const { tab } = this.look
    const asked = askedOf(state, joined, now)
    return {
      ...shown, page: 'app',
      member: named(joined),
      others: members.map(named),
      rated: shelves.rated,
      savedCount: shelves.savedCount,
      sent: state.ledger.filter((line) => !line.zeros).length,
      asked,
      asking: this.asking && asked !== null,
      stars: shelves.stars,
      shown: tab === 'list' ? shelves.list() : tab === 'rate' ? shelves.rate()
        : tab === 'saved' ? shelves.kept() : privacyOf(state, now, this.store.locked, this.look),
    }
  }
}

const active = (state: State): State['joined'] => state.joined.filter(({ left }) => !left)

const named = ({ invitation }: State['joined'][number]): {
  readonly address: string
  readonly name: string
} => ({ address: invitation.address, name: nameOf(invitation) })

/** Ask for the passphrase until it is the one. */
async function unlocked(outside: Outside): Promise<LockedStore> {
  let passphrase = ''
  for (let number = 0; ; number++) {
    try {
      return await LockedStore.open(outside.store, passphrase)
    } catch (error) {
      if (!(error instanceof PassphraseError)) throw error
    }
    const notice: Notice | null = number === 0 ? null : { what: 'bad passphrase', number }
    outside.show({ page: 'locked', host: outside.host, language: '', notice })
    passphrase = await outside.passphrase()
  }
}

/** Nothing of a new device takes part before its owner has said so. */
function deviceOf(
  { carrier, now }: Outside, store: Store, say: (said: Said) => void,
): Promise<Device> {
  const platform: Platform = { store: new Remembering(store), carrier, now, say }
  return Device.open(platform, newState(LEVELS.middle, 0))
}
