import { type Locked, MemoryStore, ProtocolError, type State, type Store } from '@hdpmf/core'
import { describe, expect, test } from 'vitest'

import { MadeUp, type Wishes } from '../demo/world.ts'
import { Host } from '../src/host.ts'
import type { AppView, ListView, PrivacyView, RateView, SavedView, Tab, View } from '../src/messages.ts'

const NOW = 1_800_000_000
const DAY = 86_400

interface Shown {
  readonly list: ListView
  readonly rate: RateView
  readonly saved: SavedView
  readonly privacy: PrivacyView
}

interface Given {
  readonly world?: MadeUp
  readonly store?: Store<State | Locked>
  readonly clock?: number
  readonly typed?: string[]
  readonly wishes?: Partial<Wishes>
}

/** An app in a made-up world, with a clock of its own. */
class Trial {
  host!: Host
  last!: View
  clock = NOW
  saved: { readonly name: string; readonly bytes: Uint8Array<ArrayBuffer> }[] = []
  readonly pages: string[] = []
  world!: MadeUp
  store!: Store<State | Locked>

  static async open(given: Given = {}): Promise<Trial> {
    const trial = new Trial()
    trial.clock = given.clock ?? NOW
    trial.world = given.world ?? await MadeUp.begin({ now: NOW, ...given.wishes })
    trial.store = given.store ?? new MemoryStore<State | Locked>()
    const typed = [...given.typed ?? []]
    trial.host = await Host.open({
      store: trial.store, carrier: trial.world, allow: () => undefined,
      show: (view) => {
        trial.last = view
        trial.pages.push(view.page)
      },
      save: (name, bytes) => trial.saved.push({ name, bytes: bytes as Uint8Array<ArrayBuffer> }),
      choose: () => undefined,
      passphrase: async () => typed.shift() as string,
      now: () => trial.clock,
      host: { origin: 'https://app.example', kind: 'page', version: '2.1.0', digest: 'd' },
    })
    return trial
  }

  static async joined(wishes: Partial<Wishes> = {}): Promise<Trial> {
    const trial = await Trial.open({ wishes })
    await trial.host.act({ do: 'link', link: trial.world.link })
    await trial.host.act({ do: 'join' })
    return trial
  }

  get app(): AppView {
    if (this.last.page !== 'app') throw new Error(`the page is ${this.last.page}`)
    return this.last
  }

  async turn<T extends Tab>(tab: T): Promise<Shown[T]> {
    await this.host.act({ do: 'tab', tab })
    return this.shown(tab)
  }

  shown<T extends Tab>(tab: T): Shown[T] {
    const { shown } = this.app
    if (shown.tab !== tab) throw new Error(`the tab is ${shown.tab}`)
    return shown as Shown[T]
  }

  /** Rate the best known titles. */
  async rate(count: number): Promise<void> {
    const { titles } = await this.turn('rate')
    for (const [at, { id }] of titles.slice(0, count).entries()) {
      await this.host.act({ do: 'rate', id, stars: 3 + (at % 3) })
    }
  }

  /** Let time go by, while the device does what is due. */
  async pass(seconds: number): Promise<void> {
    const until = this.clock + seconds
    while (this.clock < until) this.clock += Math.min(await this.host.step(), until - this.clock)
  }

  get sent(): readonly string[] {
    return this.world.sent.map(({ url }) => url.split('/').at(-1) as string)
  }
}

describe('from a link to a list', () => {
  test('who asks is said before anything is sent, and nothing leaves but that one takes part', async () => {
    const trial = await Trial.open()
    expect(trial.last.page).toBe('start')
    await trial.host.act({ do: 'link', link: ` ${trial.world.link}\n` })
    const { last } = trial
    if (last.page !== 'invited') throw new Error(last.page)
    const { servers, level, levels } = last.invited
    expect(servers.map(({ domain, known }) => [domain, known])).toEqual([['sums.civic.example', false], ['zwei.elbe.example', false]])
    expect(level).toBe('middle')
    expect(levels.map(({ risk }) => risk.other.right)).toEqual([...levels.map(({ risk }) => risk.other.right)].sort())
    expect(trial.sent).toEqual([])
    await trial.host.act({ do: 'level', level: 'careful' })
    await trial.host.act({ do: 'join' })
    expect(trial.shown('rate').wellKnown).toBe(true)
    await trial.rate(5)
    expect(trial.shown('rate').strip).toHaveLength(5)
    const list = await trial.turn('list')
    expect([list.by, trial.app.sent, trial.app.rated, list.titles.length, list.more]).toEqual(['list', 0, 5, 24, true])
    expect(list.titles.some(({ reason }) => reason?.kind === 'own')).toBe(true)
    await trial.pass(60)
    expect(trial.sent).toEqual(['participants'])
    expect((await trial.turn('privacy')).level).toBe('careful')
  })

  test('who opens the same link once more sees their list', async () => {
    const trial = await Trial.joined()
    await trial.rate(2)
    await trial.host.act({ do: 'link', link: trial.world.link })
    expect(trial.last.page, 'not enrolled yet: it may be a fresh link').toBe('invited')
    await trial.host.act({ do: 'back' })
    await trial.pass(60)
    await trial.host.act({ do: 'link', link: trial.world.link })
    expect(trial.shown('list').by).toBe('list')
  })

  test.each([
    ['https://films.example/', 'bad link'],
    ['https://films.example/join#AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA', 'bad link'],
    ['https://nobody.example/join#AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA', 'no answer'],
  ])('a link that is none is refused: %s', async (link, what) => {
    const trial = await Trial.open()
    await trial.host.act({ do: 'link', link })
    expect([trial.last.page, trial.last.notice?.what]).toEqual(['start', what])
  })

  test('without a model there is no list and no wall of known titles, but search and genres', async () => {
    const trial = await Trial.joined({ model: 0 })
    const { wellKnown, titles, genres } = trial.shown('rate')
    expect([wellKnown, titles.length, genres.length > 5]).toEqual([false, 24, true])
    await trial.host.act({ do: 'search', text: 'quiét ha' })
    expect(trial.shown('rate').titles.map(({ title }) => title)).toEqual(
      trial.world.made.map(({ title }) => title).filter((title) => /quiet/i.test(title) && /\bha/i.test(title)))
    await trial.host.act({ do: 'rate', id: trial.shown('rate').titles[0].id, stars: 4 })
    expect((await trial.turn('list')).by).toBe('none')
  })

  test('a view of 20,000 titles holds only what is in sight', async () => {
    const trial = await Trial.joined({ items: 20_000 })
    await trial.rate(2)
    expect(JSON.stringify(trial.last).length).toBeLessThan(12_000)
  }, 60_000)
})

describe('lists', () => {
  test('what is rated or hidden in a list stays where it is until the list is left', async () => {
    const trial = await Trial.joined()
    await trial.rate(4)
    const before = (await trial.turn('list')).titles.map(({ id }) => id)
    await trial.host.act({ do: 'rate', id: before[1], stars: 2 })
    await trial.host.act({ do: 'hide', id: before[3], on: true })
    const after = trial.shown('list').titles
    expect([after[1].id, after[1].stars, after[3].id, after[3].hidden]).toEqual([before[1], 2, before[3], true])
    const ids = (await trial.turn('list')).titles.map(({ id }) => id)
    expect(ids).not.toContain(before[1])
    expect(ids).not.toContain(before[3])
    expect((await trial.turn('saved')).hidden.map(({ id }) => id)).toEqual([before[3]])
  })

  test('are filtered by genre and decade, and go on', async () => {
    const trial = await Trial.joined()
    await trial.rate(3)
    const { genres, decades } = await trial.turn('list')
    await trial.host.act({ do: 'pick', pick: { genre: genres[0], decade: null } })
    expect(trial.shown('list').titles.every((each) => each.genres.includes(genres[0]))).toBe(true)
    await trial.host.act({ do: 'pick', pick: { genre: '', decade: decades[0] } })
    const { titles } = trial.shown('list')
    expect(titles.every(({ year }) => year !== null && Math.floor(year / 10) * 10 === decades[0])).toBe(true)
    await trial.host.act({ do: 'pick', pick: { genre: '', decade: null } })
    await trial.host.act({ do: 'more' })
    expect(trial.shown('list').titles).toHaveLength(48)
  })

  test('what one wants to see is kept until it is rated', async () => {
    const trial = await Trial.joined()
    const [one, two] = (await trial.turn('list')).titles
    for (const { id } of [one, two]) await trial.host.act({ do: 'save', id, on: true })
    expect((await trial.turn('saved')).titles.map(({ id }) => id)).toEqual([two.id, one.id])
    await trial.host.act({ do: 'rate', id: two.id, stars: 5 })
    expect(trial.shown('saved').titles.map(({ id }) => id)).toEqual([one.id])
    await trial.host.act({ do: 'rate', id: two.id, stars: null })
    expect(trial.app.rated).toBe(0)
  })

  test('a new model is news on another day, also after a reload, and not for who was here just now', async () => {
    const trial = await Trial.joined()
    await trial.rate(4)
    await trial.turn('list')
    trial.world.publishModel(4)
    const { world, store } = trial
    const soon = await Trial.open({ world, store, clock: NOW + 3600 })
    await soon.host.step()
    expect((await soon.turn('list')).fresh).toEqual([])
    world.publishModel(9)
    for (const clock of [NOW + DAY, NOW + DAY + 600]) {
      const next = await Trial.open({ world, store, clock })
      await next.host.step()
      const { fresh, before, titles } = next.shown('list')
      expect(fresh.length).toBeGreaterThan(0)
      expect(fresh.every((each) => each.fresh && titles.some(({ id }) => id === each.id))).toBe(true)
      expect(before).toBe(NOW + 3600)
    }
  })
})

describe('taking part', () => {
  const answering = async (yes: boolean | null): Promise<Trial> => {
    const trial = await Trial.joined({ task: 3600 })
    await trial.host.step()
    expect(trial.app.asked, 'nothing of theirs would take part').toBeNull()
    await trial.rate(6)
    expect(trial.app.asked?.rated).toBe(6)
    expect(trial.app.asking).toBe(false)
    if (yes !== null) await trial.host.act({ do: 'answer', yes })
    await trial.pass(3600)
    return trial
  }

  test('whatever is answered, the same leaves; and only a yes is charged and told', async () => {
    const [said, unsaid, silent] = [await answering(true), await answering(false), await answering(null)]
    for (const trial of [said, unsaid, silent]) {
      expect(trial.world.sent.map(({ size }) => size)).toEqual(said.world.sent.map(({ size }) => size))
      expect(trial.sent).toEqual(['participants', expect.any(String), 'reports'])
    }
    const { runs, spent, month, life, takesPart } = await said.turn('privacy')
    expect([runs.length, runs[0].zeros, takesPart, said.app.sent]).toEqual([1, false, true, 1])
    expect(runs[0].name).toBe('Lantern Film Club')
    expect([spent.other.right > 0.5, month > life, life > 0]).toEqual([true, true, true])
    const none = await unsaid.turn('privacy')
    expect([none.runs[0].zeros, none.spent.other.right, none.month, unsaid.app.sent]).toEqual([true, 0.5, 0, 0])
    expect((await silent.turn('privacy')).takesPart).toBeNull()
  })

  test('what is asked says what the ledger then has', async () => {
    const trial = await Trial.joined({ task: 3600 })
    await trial.host.step()
    await trial.rate(2)
    const { after, month, life } = trial.app.asked as NonNullable<AppView['asked']>
    await trial.host.act({ do: 'answer', yes: true })
    await trial.pass(3600)
    const shown = await trial.turn('privacy')
    expect([shown.spent, shown.month, shown.life]).toEqual([after, month[1], life[1]])
  })

  test('a clock that is wrong is said, and no report leaves', async () => {
    const trial = await Trial.joined({ task: 3600 })
    trial.world.date = async () => new Date((trial.clock - 1200) * 1000).toUTCString()
    await trial.pass(3500)
    expect(trial.sent).not.toContain('reports')
    expect((await trial.turn('list')).trouble).toMatchObject({ what: expect.stringMatching(/clock|again/) })
    expect((await trial.turn('privacy')).members[0].trouble).not.toBeNull()
  })

  test('who leaves sends nothing more; who forgets keeps what was spent', async () => {
    const trial = await answering(true)
    await trial.host.act({ do: 'receipts' })
    const [{ name, bytes }] = trial.saved
    expect(name).toMatch(/^[\w-]{1,40}\.json$/)
    expect(JSON.parse(new TextDecoder().decode(bytes)).reports).toHaveLength(1)
    await trial.host.act({ do: 'forget' })
    expect([trial.app.rated, (await trial.turn('privacy')).runs.length]).toEqual([0, 1])
    const count = trial.sent.length
    await trial.world.ask(trial.clock, 3600)
    await trial.host.act({ do: 'leave', address: trial.world.address })
    expect(trial.last.page).toBe('start')
    await trial.pass(3600)
    expect(trial.sent).toHaveLength(count)
  })
})

test('what is kept is read once, and somebody else’s change is not lost', async () => {
  const inner = new MemoryStore<State | Locked>()
  let loads = 0
  const store: Store<State | Locked> = {
    load: () => { loads += 1; return inner.load() },
    commit: (next, expected) => inner.commit(next, expected),
    erase: () => inner.erase(),
  }
  const trial = await Trial.open({ store })
  await trial.host.act({ do: 'link', link: trial.world.link })
  await trial.host.act({ do: 'join' })
  const before = loads
  await trial.rate(3)
  expect(loads).toBe(before)
  const { state, version } = (await inner.load()) as { state: State; version: number }
  await inner.commit({ ...state, wish: 7 }, version)
  await trial.rate(4)
  expect([((await inner.load())?.state as State).wish, trial.app.rated]).toEqual([7, 7])
})

describe('this device', () => {
  test('is locked only by a passphrase, which opens it again', async () => {
    const trial = await Trial.joined()
    await trial.rate(2)
    const { world, store } = trial
    expect((await Trial.open({ world, store })).pages).not.toContain('locked')
    await trial.host.act({ do: 'passphrase', old: '', passphrase: 'apfelbaum' })
    expect((await trial.turn('privacy')).passphrase).toBe(true)
    const next = await Trial.open({ world, store, typed: ['birnbaum', 'apfelbaum'] })
    expect(next.pages.filter((page) => page === 'locked')).toHaveLength(2)
    expect(next.app.rated).toBe(2)
    await next.host.act({ do: 'passphrase', old: 'birnbaum', passphrase: '' })
    expect([next.last.notice?.what, (await next.turn('privacy')).passphrase]).toEqual(['bad passphrase', true])
    await next.host.act({ do: 'passphrase', old: 'apfelbaum', passphrase: '' })
    expect((await Trial.open({ world, store })).pages).not.toContain('locked')
  }, 60_000)

  test('is emptied where its owner wants that, and begins anew', async () => {
    const trial = await Trial.joined()
    await trial.rate(3)
    await trial.host.act({ do: 'erase' })
    expect([trial.last.page, trial.last.notice?.what]).toEqual(['start', 'erased'])
    const { state } = (await trial.store.load()) as { state: State }
    expect([state.ratings, state.joined, state.ledger, state.wish]).toEqual([{}, [], [], 0])
    await trial.host.act({ do: 'link', link: trial.world.link })
    await trial.host.act({ do: 'join' })
    expect(trial.app.rated).toBe(0)
  })

  test('goes on after a store that failed, and says so', async () => {
    const trial = await Trial.joined()
    const { commit } = trial.store
    trial.store.commit = () => Promise.reject(new ProtocolError('the disk is full'))
    const { titles } = trial.shown('rate')
    await trial.host.act({ do: 'rate', id: titles[0].id, stars: 3 })
    expect([trial.last.notice?.what, trial.app.rated]).toEqual(['failed', 0])
    trial.clock += 3600
    await trial.host.step()
    expect((await trial.turn('privacy')).members[0].trouble?.what).toBe('stopped')
    trial.store.commit = commit
    await trial.host.act({ do: 'rate', id: titles[0].id, stars: 3 })
    expect(trial.app.rated).toBe(1)
  })

  test('is taken along in a file, and takes part no more itself', async () => {
    const trial = await Trial.joined()
    await trial.rate(3)
    await trial.host.act({ do: 'export', passphrase: 'apfelbaum' })
    const [{ name, bytes }] = trial.saved
    expect([name, trial.last.page]).toEqual(['device.hdpmf', 'start'])
    const next = await Trial.open({ world: trial.world })
    await next.host.act({ do: 'import', passphrase: 'birnbaum' })
    await next.host.restore(bytes)
    expect([next.last.page, next.last.notice?.what]).toEqual(['start', 'bad passphrase'])
    await next.host.act({ do: 'import', passphrase: 'apfelbaum' })
    await next.host.restore(bytes)
    expect([next.app.rated, next.last.notice?.what]).toEqual([3, 'imported'])
  }, 60_000)
})
