/** What pages are made of: rows, tiles, stars, gauges, pictures of buttons. */

import type { ComponentChildren, VNode } from 'preact'
import { useState } from 'preact/hooks'

import type { Act, Level, LevelName, Server, Title, Trouble } from '../messages.ts'
import type { Key, Speech, Values } from '../words/say.ts'
import { Cover } from './cover.tsx'

/** What every part needs: what speaks, and what takes an act. */
export interface With {
  readonly speech: Speech
  readonly act: (act: Act) => void
}

const PICTURES = {
  list: 'M4 6h16M4 12h16M4 18h10',
  rate: 'M12 3.5l2.6 5.4 5.9.8-4.3 4.1 1 5.9-5.2-2.8-5.2 2.8 1-5.9L3.5 9.7l5.9-.8z',
  saved: 'M6 4h12v16l-6-4.5L6 20z',
  privacy: 'M12 3l7.5 3v5.5c0 4.6-3 7.9-7.5 9.5-4.5-1.6-7.5-4.9-7.5-9.5V6z',
  hide: 'M6 6l12 12M18 6L6 18',
  back: 'M14 5l-7 7 7 7',
} as const

export const Picture = ({ of, full = false }: { readonly of: keyof typeof PICTURES; readonly full?: boolean }): VNode => (
  <svg class={full ? 'picture full' : 'picture'} viewBox="0 0 24 24" aria-hidden="true" focusable="false">
    <path d={PICTURES[of]} />
  </svg>
)

export function Stars({ title, stars, speech, act, known }: With & {
  readonly title: Title
  /** The recommender has stars; else a title is known, or not. */
  readonly stars: boolean
  readonly known?: boolean
}): VNode {
  const { say } = speech
  const rate = (value: number): void =>
    act({ do: 'rate', id: title.id, stars: title.stars === value ? null : value })
  if (!stars) {
    return (
      <button type="button" class="know" aria-pressed={title.stars !== null} onClick={() => rate(title.stars ?? 5)}>
        <span class="unseen">{title.title}: </span>{say('title.know')}
      </button>
    )
  }
  return (
    <div class="stars" role="radiogroup" aria-label={say('title.rate', { title: title.title })} data-known={known}>
      {[1, 2, 3, 4, 5].map((value) => (
        <label key={value} class={value <= (title.stars ?? 0) ? 'on' : ''}>
          <input type="radio" name={`stars ${title.id}`} value={value} checked={title.stars === value}
            aria-label={say('title.star', { n: value })} onClick={() => rate(value)} />
          <Picture of="rate" full />
        </label>
      ))}
    </div>
  )
}

/** Why a title is in the list. */
export function reasonOf({ reason }: Title, speech: Speech): string {
  const { say } = speech
  const both = (texts: readonly string[]): string =>
    texts.length < 2 ? texts[0] ?? '' : say('and', { a: texts[0], b: texts[1] })
  switch (reason?.kind) {
    case 'own':
      return say(reason.highly ? 'reason.liked' : 'reason.rated', { titles: both(reason.items) })
    case 'taste':
      return say('reason.taste', {
        features: reason.features.map((feature) => {
          if (feature.what === 'genre') return feature.name
          if (feature.what === 'sequel') return say('reason.sequel')
          const { from, to } = feature
          const years = { from: String(from), to: String(to) }
          return from === null ? say('reason.until', years) : to === null ? say('reason.from', years)
            : say('reason.between', years)
        }).join(', '),
      })
    case 'popularity': return say('reason.popularity')
    case 'stars': return say('reason.stars', { stars: `${speech.number(reason.stars)} ★` })
    default: return ''
  }
}

export const about = ({ year, genres }: Title): string =>
  [year === null ? '' : String(year), genres.slice(0, 2).join(', ')].filter((each) => each !== '').join(' · ')

/** What stands where a button was takes its place for the keyboard, too. */
const instead = (button: HTMLButtonElement | null): void => {
  if (document.activeElement === document.body) button?.focus()
}

/** A title of a list: cover, what it is, why it is here, and stars. */
export function Row({ title, stars, speech, act, deep = false }: With & {
  readonly title: Title
  readonly stars: boolean
  /** Another heading stands above it, besides the page's. */
  readonly deep?: boolean
}): VNode {
  const Heading = deep ? 'h3' : 'h2'
  const { say } = speech
  const named = { title: title.title }
  if (title.hidden) {
    return (
      <li class="row gone">
        <span>{title.title}</span>
        <button type="button" class="quiet" ref={instead} onClick={() => act({ do: 'hide', id: title.id, on: false })}>
          {say('title.show')}
        </button>
      </li>
    )
  }
  return (
    <li class="row">
      <Cover {...title} small />
      <div class="what">
        <Heading>{title.title}</Heading>
        <p class="about">
          {title.fresh && <mark>{say('list.badge')}</mark>}
          {about(title)}
          {title.expected !== null && <span class="expected" title={say('title.expected', { stars: title.expected })}>
            {' · '}{say('title.expected', { stars: title.expected })}
          </span>}
        </p>
        <p class="reason">{reasonOf(title, speech)}</p>
        <div class="use">
          <Stars title={title} stars={stars} speech={speech} act={act} />
          <div class="marks">
            <button type="button" class="mark" aria-pressed={title.saved} aria-label={say('title.save', named)}
              onClick={() => act({ do: 'save', id: title.id, on: !title.saved })}><Picture of="saved" full={title.saved} /></button>
            <button type="button" class="mark" aria-label={say('title.hide', named)}
              onClick={() => act({ do: 'hide', id: title.id, on: true })}><Picture of="hide" /></button>
          </div>
        </div>
      </div>
    </li>
  )
}

/** A bar from nothing to all; what was there before is darker. */
export function Gauge({ label, value, text, before = value, from = 0 }: {
  readonly label: string
  readonly value: number
  readonly text: string
  readonly before?: number
  /** Where it begins: a coin is right half of the time. */
  readonly from?: number
}): VNode {
  const width = (part: number): string => `${Math.min(Math.max((part - from) / (1 - from), 0), 1) * 100}%`
  return (
    <div class="gauge">
      <span>{label}</span><b>{text}</b>
      <div class="bar" aria-hidden="true"><i style={{ width: width(value) }} /><em style={{ width: width(before) }} /></div>
    </div>
  )
}

export function Levels({ levels, level, speech, choose }: Pick<With, 'speech'> & {
  readonly levels: readonly Level[]
  readonly level: LevelName
  readonly choose: (level: LevelName) => void
}): VNode {
  const { say } = speech
  const { name: chosen, risk } = levels.find(({ name }) => name === level) ?? levels[0]
  return (
    <>
      <small>{say('level.what')}</small>
      <div class="levels" role="radiogroup" aria-label={say('invited.level')}>
        {levels.map(({ name, risk: { other } }) => (
          <label key={name} class={name === level ? 'level chosen' : 'level'}>
            <span class="name">
              <input type="radio" name="level" value={name} checked={name === level} onChange={() => choose(name)} />
              {say(`level.${name}`)}
            </span>
            <b>{speech.right(other)}</b>
            <small>{say('level.of')}</small>
          </label>
        ))}
      </div>
      <p class="promise" role="status">
        {say('level.sentence', { right: speech.right(risk.other), adjective: speech.adjective(risk.other) })}{' '}
        {say(`level.gain.${chosen}`)} {say('level.noise')}
      </p>
    </>
  )
}

export const Servers = ({ servers, speech: { say } }: { readonly servers: readonly Server[]; readonly speech: Speech }): VNode => (
  <>
    {servers.map(({ organisation, domain, known }) => (
      <li key={domain}>
        <b>{organisation} {!known && <span aria-hidden="true">⚠</span>}</b>
        <small><span class="domain">{domain}</span> · {say('invited.sums')}</small>
      </li>
    ))}
  </>
)

/** Why something does not go on. */
export function Why({ trouble, speech }: { readonly trouble: Trouble | null; readonly speech: Speech }): VNode | null {
  if (trouble === null) return null
  const values = trouble.what === 'clock' ? { n: Math.abs(trouble.minutes) } : { why: trouble.why }
  return <p class="warning" role="status">{speech.say(`trouble.${trouble.what}`, values)}</p>
}

/** Fields that Enter sends as well. The cell's sandbox has no forms. */
export const Fields = ({ send, children }: { readonly send: () => void; readonly children: ComponentChildren }): VNode => (
  <div class="form" role="group" onKeyDown={(event) => {
    if (event.key === 'Enter' && event.target instanceof HTMLInputElement) send()
  }}>{children}</div>
)

/** A button that asks once more before it does what cannot be undone. */
export function Sure({ label, sure, done }: {
  readonly label: string
  readonly sure: string
  readonly done: () => void
}): VNode {
  const [asked, ask] = useState(false)
  return (
    <button type="button" class={asked ? 'plain sure' : 'plain'} onBlur={() => ask(false)}
      onClick={() => { if (asked) done(); ask(!asked) }}>{asked ? sure : label}</button>
  )
}

export const Text = ({ speech, of, values }: { readonly speech: Speech; readonly of: Key; readonly values?: Values }): VNode =>
  <p>{speech.say(of, values)}</p>

export const Section = ({ title, children }: { readonly title: string; readonly children: ComponentChildren }): VNode =>
  <section><h2>{title}</h2>{children}</section>
