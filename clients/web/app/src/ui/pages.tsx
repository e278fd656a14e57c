/** The pages: before joining, and behind the four tabs. */

import type { VNode } from 'preact'
import { useRef, useState } from 'preact/hooks'

import type {
  AppView, Asked, Invited, ListView, Picked, RateView, SavedView, Title,
} from '../messages.ts'
import { Cover } from './cover.tsx'
import { Fields, Gauge, Levels, Picture, Row, Servers, Stars, Text, Why, type With, about } from './parts.tsx'

export function Start({ busy, speech, act, onBack }: With & { readonly busy: boolean; readonly onBack?: boolean }): VNode {
  const { say } = speech
  const [link, change] = useState('')
  const send = (): void => { if (link !== '') act({ do: 'link', link }) }
  const taken = [['The Quiet Harbour', 1962, 'Drama'], ['Orbit of Salt', 1979, 'Sci-Fi'], ['Two for the Ferry', 1994, 'Romance'],
    ['Low Sun', 1968, 'Western'], ['Nine Keys', 1951, 'Crime'], ['The Lamp Eaters', 2003, 'Fantasy']] as const
  return (
    <main class="page narrow start" id="main">
      <div class="fan" aria-hidden="true">
        {taken.map(([title, year, genre]) => <Cover key={title} title={title} year={year} genres={[genre]} />)}
      </div>
      <h1>{say('start.title')}</h1>
      <Text speech={speech} of="start.text" />
      <Fields send={send}>
        <label for="link">{say('start.link')}</label>
        <input id="link" type="text" inputMode="url" autocomplete="off" spellcheck={false} value={link} placeholder="https://…"
          onInput={(event) => change(event.currentTarget.value)} aria-describedby="paste" />
        <small id="paste">{say('start.paste')}</small>
        <button type="button" class="strong" disabled={busy} onClick={send}>{say(busy ? 'start.busy' : 'start.open')}</button>
        {onBack && <button type="button" class="plain" onClick={() => act({ do: 'back' })}>{say('back')}</button>}
      </Fields>
    </main>
  )
}

export function Invitation({ invited, speech, act }: With & { readonly invited: Invited }): VNode {
  const { say } = speech
  const { name, domain, servers, levels, level, chosenBefore, busy } = invited
  const unknown = servers.filter(({ known }) => !known)
  return (
    <main class="page narrow" id="main">
      <button type="button" class="quiet" onClick={() => act({ do: 'back' })}><Picture of="back" /> {say('back')}</button>
      <h1>{say('invited.title', { name })}</h1>
      <Text speech={speech} of="invited.what" values={{ name }} />
      <ul class="who" aria-label={say('invited.who')}>
        <li><b>{name}</b><small><span class="domain">{domain}</span> · {say('invited.asks')}</small></li>
        <Servers servers={servers} speech={speech} />
      </ul>
      {unknown.length > 0 && (
        <p class="warning">⚠ {say('invited.unknown', { domains: unknown.map((each) => each.domain).join(', ') })}</p>
      )}
      <h2>{say('invited.level')}</h2>
      {chosenBefore
        ? <Text speech={speech} of="invited.chosen" values={{ level: say(`level.${level}`) }} />
        : <Levels levels={levels} level={level} speech={speech} choose={(each) => act({ do: 'level', level: each })} />}
      <small>{say('invited.joins')}</small>
      <div class="foot">
        <button type="button" class="strong" disabled={busy} onClick={() => act({ do: 'join' })}>{say(busy ? 'invited.busy' : 'invited.join')}</button>
      </div>
    </main>
  )
}

function Picks({ pick, genres, decades, speech, act }: With & {
  readonly pick: Picked
  readonly genres: readonly string[]
  readonly decades: readonly number[]
}): VNode {
  const { say } = speech
  return (
    <div class="picks">
      {genres.length > 0 && (
        <select aria-label={say('pick.genre')} value={pick.genre}
          onChange={(event) => act({ do: 'pick', pick: { ...pick, genre: event.currentTarget.value } })}>
          <option value="">{say('pick.all')}</option>
          {genres.map((genre) => <option key={genre} value={genre}>{genre}</option>)}
        </select>
      )}
      {decades.length > 0 && (
        <select aria-label={say('pick.decade')} value={pick.decade ?? ''}
          onChange={(event) => {
            const { value } = event.currentTarget
            act({ do: 'pick', pick: { ...pick, decade: value === '' ? null : Number(value) } })
          }}>
          <option value="">{say('pick.always')}</option>
          {decades.map((decade) => <option key={decade} value={decade}>{say('pick.decadeOf', { decade: String(decade) })}</option>)}
        </select>
      )}
    </div>
  )
}

const Rows = ({ titles, ...row }: With & {
  readonly titles: readonly Title[]
  readonly stars: boolean
  readonly deep?: boolean
}): VNode => <ul class="rows">{titles.map((title) => <Row key={title.id} title={title} {...row} />)}</ul>

const More = ({ more, speech, act }: With & { readonly more: boolean }): VNode | null =>
  more ? <button type="button" class="plain wide" onClick={() => act({ do: 'more' })}>{speech.say('list.more')}</button> : null

export function ListPage({ view, shown, speech, act }: With & { readonly view: AppView; readonly shown: ListView }): VNode {
  const { say } = speech
  const { titles, fresh, by, before, more } = shown
  const newer = new Set(fresh.map(({ id }) => id))
  return (
    <>
      <header class="head">
        <h1>{say(by === 'none' ? 'list.none' : by === 'known' ? 'list.known' : 'list.title')}</h1>
        {by !== 'none' && <Picks {...shown} speech={speech} act={act} />}
        <p class="calm">
          {by === 'none' ? say('list.noneText', { name: view.member.name })
            : by === 'known' ? say('list.knownText')
              : view.sent > 0 ? say('list.left', { n: view.sent }) : say('list.nothingLeft')}
        </p>
      </header>
      <Why trouble={shown.trouble} speech={speech} />
      {view.asked !== null && (
        <p class="banner">{say('ask.banner')}
          <button type="button" class="plain" onClick={() => act({ do: 'ask', on: true })}>{say('ask.open')}</button>
        </p>
      )}
      {by === 'none' && (
        <button type="button" class="strong" onClick={() => act({ do: 'tab', tab: 'rate' })}>{say('list.rate')}</button>
      )}
      {fresh.length > 0 && before !== null && (
        <section class="news">
          <h2>{say('list.new', { day: speech.day(before, Date.now() / 1000) })}</h2>
          <Rows titles={fresh} stars={view.stars} speech={speech} act={act} deep />
        </section>
      )}
      <Rows titles={titles.filter(({ id }) => !newer.has(id))} stars={view.stars} speech={speech} act={act} />
      {by !== 'none' && titles.length === 0 && <Text speech={speech} of="list.empty" />}
      <More more={more} speech={speech} act={act} />
    </>
  )
}

export function RatePage({ view, shown, speech, act }: With & { readonly view: AppView; readonly shown: RateView }): VNode {
  const { say } = speech
  const { titles, more, genres, pick, search, mine } = shown
  const waiting = useRef<ReturnType<typeof setTimeout>>(undefined)
  const searched = (text: string): void => {
    clearTimeout(waiting.current)
    waiting.current = setTimeout(() => act({ do: 'search', text }), 150)
  }
  return (
    <>
      <header class="head">
        <h1>{say('rate.title')}</h1>
        <div class="two" role="group" aria-label={say('rate.count', { n: view.rated })}>
          <button type="button" aria-pressed={!mine} onClick={() => act({ do: 'mine', on: false })}>{say('rate.wall')}</button>
          <button type="button" aria-pressed={mine} onClick={() => act({ do: 'mine', on: true })}>
            {say('rate.mine')} <span class="count">{view.rated}</span>
          </button>
        </div>
      </header>
      <input type="search" aria-label={say('rate.search')} placeholder={say('rate.search')} defaultValue={search}
        onInput={(event) => searched(event.currentTarget.value)} />
      <div class="chips" role="group" aria-label={say('pick.genre')} tabIndex={0}>
        {['', ...genres].map((genre) => (
          <button key={genre} type="button" aria-pressed={pick.genre === genre}
            onClick={() => act({ do: 'pick', pick: { ...pick, genre } })}>{genre === '' ? say('pick.all') : genre}</button>
        ))}
      </div>
      <ul class="wall">
        {titles.map((title) => (
          <li key={title.id} class={title.stars === null ? 'tile' : 'tile rated'}>
            <Cover {...title} />
            <h2 class="unseen">{title.title}, {about(title)}</h2>
            <Stars title={title} stars={view.stars} speech={speech} act={act} />
          </li>
        ))}
      </ul>
      {titles.length === 0 && <Text speech={speech} of="rate.none" />}
      <More more={more} speech={speech} act={act} />
    </>
  )
}

/** The list as it is now, in sight while rating. */
export function Strip({ view, shown, speech, act }: With & { readonly view: AppView; readonly shown: RateView }): VNode {
  const { say } = speech
  return (
    <section class="strip" aria-label={say('rate.strip')}>
      {shown.strip.length === 0 ? <small>{say('rate.stripEmpty')}</small> : (
        <button type="button" onClick={() => act({ do: 'tab', tab: 'list' })}>
          <small><b>{say('rate.strip')}</b>{view.sent === 0 && <> · {say('rate.nothingLeft')}</>}</small>
          <ol>{shown.strip.map((title) => <li key={title.id}><Cover {...title} small /><span>{title.title}</span></li>)}</ol>
        </button>
      )}
    </section>
  )
}

export function SavedPage({ view, shown, speech, act }: With & { readonly view: AppView; readonly shown: SavedView }): VNode {
  const { say } = speech
  return (
    <>
      <header class="head"><h1>{say('saved.title')}</h1></header>
      {shown.titles.length === 0 && <p class="calm">{say('saved.empty')}</p>}
      <Rows titles={shown.titles} stars={view.stars} speech={speech} act={act} />
      <More more={shown.more} speech={speech} act={act} />
      {shown.hidden.length > 0 && (
        <details class="fold">
          <summary>{say('saved.hidden')} ({shown.hidden.length})</summary>
          <Rows titles={shown.hidden} stars={view.stars} speech={speech} act={act} />
        </details>
      )}
    </>
  )
}

/** The one question, on one screen. */
export function Ask({ asked, speech, act }: With & { readonly asked: Asked }): VNode {
  const { say } = speech
  const { before, after, most, month, life, name, rated, servers } = asked
  const then = (from: string, to: string): string => say('gauge.then', { from, to })
  return (
    <main class="page narrow ask" id="main">
      <h1>{say('ask.title')}</h1>
      <p>{say('ask.gain', { name, n: rated })}</p>
      <p>{say('ask.give', { before: speech.right(before.other), after: speech.right(after.other) })}</p>
      <div class="gauges">
        <Gauge label={say('gauge.person')} from={0.5} value={after.other.right} before={before.other.right}
          text={then(speech.right(before.other), say('gauge.right', { right: speech.right(after.other) }))} />
        <Gauge label={say('gauge.month')} value={month[1]} before={month[0]} text={then(speech.percent(month[0]), speech.percent(month[1]))} />
        <Gauge label={say('gauge.life')} value={life[1]} before={life[0]} text={then(speech.percent(life[0]), speech.percent(life[1]))} />
      </div>
      <small>{say('ask.noise', { leader: servers[0].organisation, helper: servers[1].organisation })}</small>
      <small>{say('ask.holds', { most: speech.right(most.other) })}</small>
      <small>{say('ask.same')}</small>
      <div class="even">
        <button type="button" class="answer" onClick={() => act({ do: 'answer', yes: true })}>{say('ask.yes')}</button>
        <button type="button" class="answer" onClick={() => act({ do: 'answer', yes: false })}>{say('ask.no')}</button>
      </div>
      <button type="button" class="quiet" onClick={() => act({ do: 'ask', on: false })}>{say('ask.later')}</button>
    </main>
  )
}

export function Locked({ speech, act }: With): VNode {
  const { say } = speech
  const [passphrase, change] = useState('')
  const send = (): void => act({ do: 'unlock', passphrase })
  return (
    <main class="page narrow start" id="main">
      <h1>{say('locked.title')}</h1>
      <Text speech={speech} of="locked.text" />
      <Fields send={send}>
        <label for="passphrase">{say('locked.passphrase')}</label>
        <input id="passphrase" type="password" autocomplete="current-password" value={passphrase}
          onInput={(event) => change(event.currentTarget.value)} />
        <button type="button" class="strong" onClick={send}>{say('locked.open')}</button>
      </Fields>
    </main>
  )
}
