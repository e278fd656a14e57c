import { type Locked, MemoryStore, type State, type Store } from '@hdpmf/core'
import { expect, test } from 'vitest'

import { MadeUp, type Wishes } from '../demo/world.ts'
import { Host } from '../src/host.ts'
import type { AppView, View } from '../src/messages.ts'

const NOW = 1_800_000_000

interface Trial {
  readonly host: Host
  readonly world: MadeUp
  readonly store: Store<State | Locked>
  readonly saved: { readonly name: string; readonly text: string }[]
  clock: number
  view(): View
  app(): AppView
}

async function trial(wishes: Partial<Wishes> = {}, more: Partial<Trial> = {}, link = ''): Promise<Trial> {
  const world = more.world ?? await MadeUp.begin({ now: NOW, ...wishes })
  const store = more.store ?? new MemoryStore<State | Locked>()
  let last: View | undefined
  const saved: { name: string; text: string }[] = []
  const clock = { clock: more.clock ?? NOW }
  const host = await Host.open({
    store, carrier: world, allow: () => undefined, show: (view) => { last = view },
    save: (name, bytes) => saved.push({ name, text: new TextDecoder().decode(bytes) }),
    choose: () => undefined,
    passphrase: () => Promise.resolve('apfelbaum'),
    now: () => clock.clock,
    host: { origin: 'https://app.example', kind: 'page', version: '2.1.0', digest: 'd' },
  }, link)
  const view = (): View => last as View
  return Object.assign(clock, {
    host, world, store, saved, view,
    app: () => {
      const found = view()
      if (found.page !== 'app') throw new Error(`the page is ${found.page}`)
      return found
    },
  })
}

async function joined(wishes: Partial<Wishes> = {}): Promise<Trial> {
  const found = await trial(wishes)
  await found.host.act({ do: 'link', link: found.world.link })
  await found.host.act({ do: 'join' })
  return found
}

test('from a link to a list: who asks is said, nothing leaves but that one takes part', async () => {
  const { host, world, view, app } = await trial()
  expect(view().page).toBe('start')
  await host.act({ do: 'link', link: world.link })
  const invited = view()
  if (invited.page !== 'invited') throw new Error(invited.page)
  expect(invited.invited.servers.map(({ domain, known }) => [domain, known]))
    .toEqual([['sums.civic.example', false], ['zwei.elbe.example', false]])
  expect(world.sent).toEqual([])
  await host.act({ do: 'join' })
  const wall = app().shown
  if (wall.tab !== 'rate') throw new Error(wall.tab)
  expect(wall.wellKnown).toBe(true)
  for (const { id } of wall.titles.slice(0, 5)) await host.act({ do: 'rate', id, stars: 5 })
  const { strip } = app().shown as typeof wall
  expect(strip).toHaveLength(5)
  await host.act({ do: 'tab', tab: 'list' })
  const { shown, sent, rated } = app()
  if (shown.tab !== 'list') throw new Error(shown.tab)
  expect([shown.by, sent, rated, shown.titles.length]).toEqual(['list', 0, 5, 24])
  expect(shown.titles.some(({ reason }) => reason?.kind === 'own')).toBe(true)
  await host.step()
  await host.step()
  expect(world.sent.map(({ url }) => url)).toEqual([`${world.address}/participants`])
})

test('nothing is asked where nothing of the owner would take part, and zeros leave all the same', async () => {
  const { host, world, app, ...rest } = await joined({ task: 3600 })
  await host.step()
  expect(app().asked).toBeNull()
  const wall = app().shown
  if (wall.tab !== 'rate') throw new Error(wall.tab)
  await host.act({ do: 'rate', id: wall.titles[0].id, stars: 4 })
  expect(app().asked?.rated).toBe(1)
  await host.act({ do: 'answer', yes: false })
  expect(app().asked).toBeNull()
  void [world, rest]
})
