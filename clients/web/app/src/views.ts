/** Views of a device's state: what the UI cell draws. Pure, but for lists that are kept by ratings. */

import {
  type Cost, type Items, type Joined, type Line, ProtocolError, type Said, type Server as Card, type State, LEVELS, MONTH, UNIT,
  WHOLE, itemsOf, ownRow, personOf, priceOf, promise, readTask, serversDigest,
  toHex, total,
  worstWithin,
} from '@hdpmf/core'
import { Lists, type Reason, type Recommended } from '@hdpmf/core/lists'

import { type Seen, keptIn } from './kept.ts'
import {
  type Asked, type Invited, type Level, type LevelName, type ListView, type Member, LEVEL_NAMES,
  type Picked, type PrivacyView, type RateView, type Run, type SavedView, type Server,
  type Tab, type Title, type Trouble,
} from './messages.ts'
import { isKnown } from './operators.ts'

/** What the person looks at; it is not kept. */
export interface Look {
  readonly tab: Tab
  readonly pick: Picked
  readonly search: string
  readonly mine: boolean
  readonly count: number
  /** What had been rated when the wall was opened: it is not on it again. */
  readonly ratedBefore: ReadonlySet<string>
  /** The list as it was when something in it was rated or hidden: so it stays until it is left. */
  readonly still: readonly string[]
  readonly troubles: ReadonlyMap<string, Trouble>
}

export const PAGE = 24
export const NO_PICK: Picked = { genre: '', decade: null }
export const FIRST_LOOK: Look = {
  tab: 'list', pick: NO_PICK, search: '', mine: false, count: PAGE, ratedBefore: new Set(), still: [], troubles: new Map(),
}
const STRIP = 5
const MOST_FRESH = 3
const MOST_KNOWN = 600
const [MOST_NAME, MOST_TITLE, MOST_GENRE, MOST_GENRES] = [80, 160, 40, 100]

/** What each level lets through in a whole life, at most; what was spent before counts as well. */
export function levels({ ledger }: Pick<State, 'ledger'>): readonly Level[] {
  const spent = total(ledger)
  return LEVEL_NAMES.map((name) => {
    const worst = worstWithin(LEVELS[name])
    const most = (what: keyof Cost): number => Math.max(worst[what], spent[what])
    return { name, risk: personOf({ none: most('none'), other: most('other'), grain: most('grain') }) }
  })
}

export const levelOf = (state: State): LevelName =>
  LEVEL_NAMES.find((name) => LEVELS[name].life === state.limits.life) ?? 'middle'

export const domainOf = (url: string): string => new URL(url).host

const serverOf = ({ organisation, url }: Card): Server => {
  const domain = domainOf(url)
  return { organisation, domain, known: isKnown(organisation, domain) }
}

/** A text that somebody else wrote, so that it stays where it is drawn. */
const tame = (text: string, most: number): string => {
  const plain = text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, ' ').trim()
  return plain.length > most ? `${plain.slice(0, most)} …` : plain
}

export const nameOf = ({ name, address }: Joined['invitation']): string => tame(name, MOST_NAME) || domainOf(address)

const serversOf = ({ servers }: Joined['invitation']): readonly Server[] =>
  [serverOf(servers.leader), serverOf(servers.helper)]

export const invitedOf = (
  invitation: Joined['invitation'], state: State, level: LevelName, busy: boolean,
): Invited => ({
  busy,
  name: nameOf(invitation),
  domain: domainOf(invitation.address),
  servers: serversOf(invitation),
  levels: levels(state),
  level,
  chosenBefore: keptIn(state).levelChosen,
})

/** A recommender's catalogue and lists with the owner's ratings, as titles that can be drawn. */
export class Shelves {
  readonly items: Items | null
  private readonly lists: Lists | null
  private readonly own: State['ratings'][string]
  private readonly saved: ReadonlySet<string>
  private readonly hidden: ReadonlySet<string>
  private readonly since: Seen | null
  /** What is near the top and was not at the last visit. */
  private readonly fresh: ReadonlySet<string>
  private readonly trouble: Trouble | null

  constructor(
    state: State, joined: Joined, now: number,
    private readonly look: Look,
  ) {
    const { address } = joined.invitation
    const kept = keptIn(state)
    this.items = joined.catalogue === '' ? null : itemsOf(state, joined)
    this.lists = this.items === null ? null : listsOf(state, address, now)
    this.own = state.ratings[address] ?? {}
    this.saved = new Set(kept.saved[address] ?? [])
    this.hidden = new Set(kept.hidden[address] ?? [])
    this.trouble = look.troubles.get(address) ?? null
    this.since = kept.visits[address]?.since ?? null
    const known = new Set(this.since?.top)
    const near = this.since === null || look.tab !== 'list' ? [] : this.top(PAGE)
    this.fresh = new Set(near.filter((id) => !known.has(id)))
  }

  get rated(): number {
    return Object.keys(this.own).length
  }

  get savedCount(): number {
    return this.saved.size
  }

  get stars(): boolean {
    const { items } = this
    return items === null || !(items.scale_low === 0 && items.scale_high === 1 && items.scale_step === null)
  }

  /** The first ids of the list: so many are seen at once, and remembered until the next visit. */
  top(count: number): string[] {
    return this.best(count, NO_PICK).map(({ item }) => item)
  }

  list(): ListView {
    const { since, fresh, look: { pick, count, still } } = this
    const found = this.best(Math.max(count + 1, 2 * still.length), pick)
    const drawn = (each: Recommended): Title => this.title(each.item, each.stars, each.reason)
    const titles = still.length === 0 ? found.slice(0, count).map(drawn) : still.map((id) => {
      const here = found.find(({ item }) => item === id)
      return here === undefined ? this.title(id) : drawn(here)
    })
    const unpicked = pick.genre === '' && pick.decade === null
    return {
      tab: 'list', ...this.choices(), pick, before: since?.at ?? null, trouble: this.trouble,
      by: this.lists === null ? 'none' : this.rated === 0 ? 'known' : 'list',
      fresh: unpicked ? titles.filter(({ id }) => fresh.has(id)).slice(0, MOST_FRESH) : [],
      titles, more: found.length > count,
    }
  }

  rate(): RateView {
    const { pick, count, search, mine } = this.look
    const { genres } = this.choices()
    const known = this.lists?.wellKnown(MOST_KNOWN) ?? []
    const wellKnown = known.length > 0 && search === '' && !mine
    const ids = mine ? this.ownIds() : search !== '' ? this.searched(search) : wellKnown ? known : this.all()
    const shown = ids.filter((id) => this.fits(id, pick.genre) &&
      (mine || search !== '' || !this.look.ratedBefore.has(id)) && (mine || !this.hidden.has(id)))
    const strip = this.best(STRIP, NO_PICK).map(({ item, stars, reason }) => this.title(item, stars, reason))
    return {
      tab: 'rate', genres, pick, search, mine, wellKnown, strip: this.rated === 0 ? [] : strip,
      titles: shown.slice(0, count).map((id) => this.title(id)), more: shown.length > count,
    }
  }

  kept(): SavedView {
    const here = (ids: ReadonlySet<string>): string[] => [...ids].filter((id) => this.items?.positions.has(id))
    const ids = here(this.saved)
    return {
      tab: 'saved', titles: ids.slice(0, this.look.count).map((id) => this.title(id)),
      more: ids.length > this.look.count,
      hidden: here(this.hidden).slice(0, this.look.count).map((id) => this.title(id)),
    }
  }

  private choices(): { readonly genres: readonly string[]; readonly decades: readonly number[] } {
    const { genres, decades } = this.lists?.choices ?? { genres: this.items === null ? [] : genresOf(this.items), decades: [] }
    return { genres: genres.slice(0, MOST_GENRES), decades: decades.slice(-MOST_GENRES) }
  }

  private best(n: number, { genre, decade }: Picked): Recommended[] {
    if (this.lists === null) return []
    const only = {
      ...(genre === '' ? {} : { genres: [genre] }),
      ...(decade === null ? {} : { fromYear: decade, toYear: decade + 9 }),
    }
    return this.lists.recommend({ n, only, hidden: this.hidden })
  }

  private title(id: string, expected: number | null = null, reason: Reason | null = null): Title {
    const { items } = this
    const position = items?.positions.get(id)
    const rated = Object.hasOwn(this.own, id) ? this.own[id] : undefined
    const named = reason?.kind === 'own'
      ? { ...reason, items: reason.items.map((each) => this.nameOf(each)) }
      : reason?.kind === 'stars' ? { ...reason, stars: this.starsOf(reason.stars) } : reason
    return {
      id,
      title: this.nameOf(id),
      year: position === undefined ? null : items?.years[position] ?? null,
      genres: (position === undefined ? [] : items?.genres[position] ?? []).slice(0, MOST_GENRES).map((genre) => tame(genre, MOST_GENRE)),
      stars: rated === undefined ? null : this.starsOf(rated.value),
      expected: expected === null || !this.stars ? null : this.starsOf(expected),
      reason: named,
      saved: this.saved.has(id),
      hidden: this.hidden.has(id),
      fresh: this.fresh.has(id),
    }
  }

  private nameOf(id: string): string {
    const position = this.items?.positions.get(id)
    if (position === undefined) return tame(id, MOST_TITLE)
    const { titles, years } = this.items as Items
    // Many catalogues have the year in the title as well.
    return tame((titles[position] || id).replace(` (${years[position]})`, ''), MOST_TITLE)
  }

  /** A rating on the recommender's scale as stars from 1 to 5. */
  private starsOf(value: number): number {
    const { items } = this
    if (items === null) return value
    return 1 + (4 * (value - items.scale_low)) / (items.scale_high - items.scale_low)
  }

  private fits(id: string, genre: string): boolean {
    const position = this.items?.positions.get(id)
    if (position === undefined) return false
    return genre === '' || (this.items?.genres[position] ?? []).includes(genre)
  }

  private all(): string[] {
    return this.items === null ? [] : this.items.ids.filter((_, at) => !this.items?.retired.has(at))
  }

  private searched(text: string): string[] {
    const words = plain(text).split(' ').filter((each) => each !== '')
    return this.all().filter((id) => {
      const name = ` ${plain(this.nameOf(id))}`
      return words.every((word) => name.includes(` ${word}`))
    })
  }

  private ownIds(): string[] {
    return Object.entries(this.own).sort(([, one], [, other]) => other.at - one.at).map(([id]) => id)
  }
}

/** A rating of so many stars, on a recommender's scale. */
export function valueOf(stars: number, items: Items): number {
  const { scale_low: low, scale_high: high, scale_step: step } = items
  const value = low + ((stars - 1) / 4) * (high - low)
  if (low === 0 && high === 1 && step === null) return 1
  return step === null ? value : Math.min(low + Math.round((value - low) / step) * step, high)
}

const plain = (text: string): string =>
  text.normalize('NFKD').replace(/\p{M}/gu, '').toLowerCase().replace(/[^\p{L}\p{N}]+/gu, ' ').trim()

let madeOf: readonly unknown[] = []
let made: Lists | null = null

/** The lists of the last state that was asked for are kept: most acts change no rating. */
function listsOf(state: State, address: string, now: number): Lists | null {
  const joined = state.joined.find((each) => each.invitation.address === address)
  const of = [address, state.ratings[address], joined?.catalogue, joined?.model]
  if (made === null || of.some((each, at) => each !== madeOf[at])) {
    madeOf = of
    try {
      made = Lists.of(state, address, now)
    } catch (error) {
      if (!(error instanceof ProtocolError || error instanceof RangeError)) throw error
      made = null // a model whose parts do not fit: as if none had come
    }
  }
  return made
}

const genresOf = (items: Items): string[] => [...new Set(items.genres.flat())].sort()

/** What a report would take part with, if there is one to decide on; else null. */
export function askedOf(state: State, joined: Joined, now: number): Asked | null {
  const { answer } = joined
  if (keptIn(state).answer !== null || answer === null || answer.done || answer.promised) return null
  const task = readTask(answer.document)
  const about = { at: now, recommender: joined.invitation.address, task: toHex(answer.task), part: task.sums.type }
  const whole = { ...state, wish: WHOLE }
  const line = promise(state.limits, state.ledger, priceOf(task), WHOLE, about)
  if (line.zeros || ownRow(whole, joined, task, false).every((entry) => entry === 0)) return null
  const [spent, month] = [total(state.ledger), total(state.ledger, now - MONTH)]
  const after = total([...state.ledger, line])
  const { limits } = state
  return {
    name: nameOf(joined.invitation),
    servers: serversOf(joined.invitation),
    rated: Object.keys(state.ratings[joined.invitation.address] ?? {}).length,
    before: personOf(spent),
    after: personOf(after),
    most: levels(state).find(({ name }) => name === levelOf(state))?.risk ?? personOf(worstWithin(limits)),
    month: [part(month.none, limits.month), part(month.none + line.cost.none, limits.month)],
    life: [part(spent.none, limits.life), part(after.none, limits.life)],
  }
}

const part = (amount: number, of: number): number => (of === 0 ? Number(amount > 0) : amount / of)

export function privacyOf(
  state: State, now: number, passphrase: boolean, { troubles }: Look,
): PrivacyView {
  const spent = total(state.ledger)
  return {
    tab: 'privacy',
    level: levelOf(state),
    levels: levels(state),
    spent: personOf(spent),
    month: part(total(state.ledger, now - MONTH).none, state.limits.month),
    life: part(spent.none, state.limits.life),
    takesPart: state.wish > 0 ? true : keptIn(state).answer,
    runs: runsOf(state),
    members: state.joined.map((each) => memberOf(state, each, troubles)),
    passphrase,
  }
}

const memberOf = (state: State, joined: Joined, troubles: Look['troubles']): Member => ({
  address: joined.invitation.address,
  name: nameOf(joined.invitation),
  domain: domainOf(joined.invitation.address),
  servers: serversOf(joined.invitation),
  digest: serversDigest(joined.invitation.servers),
  enrolled: joined.enrolled,
  left: joined.left,
  rated: Object.keys(state.ratings[joined.invitation.address] ?? {}).length,
  trouble: troubles.get(joined.invitation.address) ?? null,
})

/** What is told of something as trouble; null where it is none, so that an older one is over. */
export function troubleOf(said: Said): Trouble | null {
  switch (said.what) {
    case 'clock': return { what: said.what, minutes: Math.round(said.ahead / 60) }
    case 'refused': return { what: said.what, why: said.why }
    case 'not enrolled': return { what: said.what, why: '' }
    case 'again':
    case 'given up': return { what: said.what, why: said.status === null ? '' : String(said.status) }
    default: return null
  }
}

/** The ledger as runs, the newest first: what a recommender asks of pairs follows its rows. */
export function runsOf(state: State): Run[] {
  const runs: Line[][] = []
  for (const line of state.ledger) {
    const last = runs.findLast(([first]) => first.recommender === line.recommender)
    if (line.part === 'pairs' && last?.length === 1 && last[0].part === 'linear') last.push(line)
    else runs.push([line])
  }
  const names = new Map(state.joined.map(({ invitation }) => [invitation.address, nameOf(invitation)]))
  return runs.reverse().map((lines) => ({
    at: lines[0].at,
    name: names.get(lines[0].recommender) ?? domainOf(lines[0].recommender),
    reports: lines.map(({ task, part, at, zeros, cost }) => ({ task, part, at, zeros, risk: personOf(cost) })),
    risk: personOf(total(lines)),
    zeros: lines.every(({ zeros }) => zeros),
  }))
}

/** What left, for the owner to keep: every line of the ledger. */
export const receiptsOf = (state: State): string =>
  JSON.stringify({
    about: 'Reports that left this device: mu squared, as history against none and against another one',
    reports: state.ledger.map(({ at, recommender, task, part, wish, zeros, cost }) => ({
      time: new Date(at * 1000).toISOString(), recommender, task, part, wish: wish / WHOLE, zeros,
      none: cost.none / UNIT, other: cost.other / UNIT,
    })),
  }, null, 2)

