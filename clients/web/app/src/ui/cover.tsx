/** Covers that are drawn from a title, its year and its genres. No picture is fetched. */

import type { ComponentChildren, VNode } from 'preact'

import type { Title } from '../messages.ts'

/** Numbers from 0 to 1 that follow from a text. */
class Draws {
  private seed = 2166136261

  constructor(text: string) {
    for (const letter of text) this.seed = Math.imul(this.seed ^ (letter.codePointAt(0) ?? 0), 16777619)
  }

  next(): number {
    this.seed = Math.imul(this.seed ^ (this.seed >>> 15), 2246822507) + 0x6d2b79f5
    return ((this.seed ^ (this.seed >>> 13)) >>> 0) / 2 ** 32
  }

  from(low: number, high: number): number {
    return low + this.next() * (high - low)
  }

  one<T>(of: readonly T[]): T {
    return of[Math.floor(this.next() * of.length)]
  }
}

const times = <T,>(count: number, make: (at: number) => T): T[] => Array.from({ length: count }, (_, at) => make(at))

/** A drawing in a field of 100 by 100, in the two colours that are not the ground. */
type Motif = (draws: Draws) => ComponentChildren

const rings: Motif = (draws) => {
  const [x, y] = [draws.from(25, 75), draws.from(35, 65)]
  return <>
    {times(6, (at) => <circle cx={x} cy={y} r={12 + at * 12} class="line" />)}
    <circle cx={x} cy={y} r="9" class="two" />
    <circle cx={x + draws.from(-34, 34)} cy={y + draws.from(18, 32)} r="5" class="one" />
  </>
}

const blinds: Motif = (draws) => {
  const turn = draws.one([-32, -18, 18, 32])
  return <g transform={`rotate(${turn} 50 50)`}>
    {times(9, (at) => <rect x="-30" y={-22 + at * 17} width="160" height={4 + (at * 7) % 9} class={at % 4 === 1 ? 'two' : 'one'} />)}
  </g>
}

const dots: Motif = (draws) =>
  times(30, (at) => <circle cx={8 + (at % 5) * 21} cy={6 + Math.floor(at / 5) * 18} r={draws.from(2, 9.5)}
    class={draws.next() < 0.35 ? 'two' : 'one'} />)

const pair: Motif = (draws) => {
  const shift = draws.from(11, 19)
  const y = draws.from(42, 56)
  return <>
    <circle cx={50 - shift} cy={y} r="32" class="one" />
    <circle cx={50 + shift} cy={y} r="32" class="two mix" />
  </>
}

const rays: Motif = (draws) => {
  const [x, y] = [draws.from(20, 80), draws.from(20, 80)]
  return times(13, (at) => {
    const [from, to] = [(at * 2 * Math.PI) / 13, ((at + 0.45) * 2 * Math.PI) / 13]
    const corner = (angle: number): string => `${x + 150 * Math.cos(angle)},${y + 150 * Math.sin(angle)}`
    return <polygon points={`${x},${y} ${corner(from)} ${corner(to)}`} class={at % 5 === 0 ? 'two' : 'one'} />
  })
}

const teeth: Motif = (draws) => {
  const saw = (base: number, sign: number): string => {
    const points = times(9, (at) => `${at * 12.5},${base + sign * (at % 2 === 0 ? 0 : draws.from(20, 42))}`)
    return `0,${base - sign * 60} ${points.join(' ')} 100,${base - sign * 60}`
  }
  return <>
    <circle cx={draws.from(30, 70)} cy="52" r="13" class="two" />
    <polygon points={saw(18, 1)} class="one" />
    <polygon points={saw(84, -1)} class="one" />
  </>
}

const peaks: Motif = (draws) => <>
  <circle cx={draws.from(20, 80)} cy={draws.from(20, 34)} r="13" class="two" />
  {times(3, (at) => {
    const [x, top] = [draws.from(5, 95), 34 + at * 17]
    return <polygon points={`${x - 62},101 ${x},${top} ${x + 62},101`} class={`one step${at}`} />
  })}
</>

const mesas: Motif = (draws) => <>
  <circle cx={draws.from(28, 72)} cy="46" r="25" class="two" />
  {times(3, (at) => {
    const y = 60 + at * 14
    const cut = draws.from(15, 60)
    return <path d={`M0 ${y} H${cut} l6 9 H${cut + 26} l6 -9 H100 V101 H0 Z`} class={`one step${at}`} />
  })}
</>

const waves: Motif = (draws) => {
  const height = draws.from(6, 13)
  return times(8, (at) => {
    const y = 8 + at * 12.5
    return <path d={`M-10 ${y} q 15 ${-height} 30 0 t 30 0 t 30 0 t 30 0 t 30 0`} class={at % 3 === 1 ? 'line strong' : 'line'} />
  })
}

const night: Motif = (draws) => {
  const x = draws.from(38, 62)
  return <>
    <circle cx={x} cy="36" r="23" class="two" />
    <circle cx={x + 10} cy="30" r="20" class="ground" />
    {times(9, () => <circle cx={draws.from(4, 96)} cy={draws.from(3, 62)} r={draws.from(0.7, 1.9)} class="one" />)}
    <path d={`M0 84 q 25 ${-draws.from(12, 26)} 50 0 t 50 0 V101 H0 Z`} class="one" />
  </>
}

const chevrons: Motif = (draws) => {
  const up = draws.next() < 0.5 ? 1 : -1
  return times(6, (at) => {
    const y = at * 21 - 8
    return <polygon points={`0,${y} 50,${y + up * 19} 100,${y} 100,${y + 10} 50,${y + up * 19 + 10} 0,${y + 10}`}
      class={at === 2 ? 'two' : 'one'} />
  })
}

const blocks: Motif = (draws) => <>
  <rect x={draws.from(4, 22)} y={draws.from(4, 24)} width="44" height="44" class="one" />
  <circle cx={draws.from(58, 74)} cy={draws.from(30, 44)} r="24" class="two mix" />
  <polygon points={`${draws.from(4, 24)},96 ${draws.from(38, 56)},52 ${draws.from(72, 96)},96`} class="one step1" />
</>

const bars: Motif = (draws) =>
  times(9, (at) => {
    const high = draws.from(18, 88)
    return <rect x={5 + at * 10.3} y={96 - high} width="6.4" height={high} class={at % 4 === 2 ? 'two' : 'one'} />
  })

const arcs: Motif = (draws) =>
  times(6, (at) => {
    const [x, y] = [(at % 2) * 50, Math.floor(at / 2) * 33.4]
    const turn = draws.one([0, 90, 180, 270])
    return <g transform={`translate(${x} ${y}) rotate(${turn} 25 16.7)`}>
      <path d="M0 0 H50 A50 33.4 0 0 1 0 33.4 Z" class={draws.next() < 0.3 ? 'two' : 'one'} />
    </g>
  })

/** What says most of a title comes first: half of all are dramas or comedies. */
const MOTIFS: readonly (readonly [RegExp, number, Motif])[] = [
  [/anim|child|famil|kinder/i, 11, blocks],
  [/docu|essay|science$|sach/i, 12, bars],
  [/west/i, 7, mesas],
  [/horror|ghost|gothic/i, 5, teeth],
  [/sci|space|future|zukunft/i, 0, rings],
  [/noir|crime|krimi/i, 1, blinds],
  [/fantas|fairy|märchen/i, 9, night],
  [/war|histor|krieg/i, 10, chevrons],
  [/music|poet|lyrik/i, 8, waves],
  [/thrill|myster|spy/i, 4, rays],
  [/adventure|action|travel|abenteuer/i, 6, peaks],
  [/roman|love|liebe/i, 3, pair],
  [/comed|humou?r|komödie/i, 2, dots],
  [/./, 13, arcs],
]

export const initials = (title: string): string => {
  const words = title.replace(/^(the|a|an|der|die|das|ein|eine|le|la|les)\s+/i, '').split(/\s+/)
  return words.slice(0, 2).map((word) => [...word][0] ?? '').join('').toUpperCase()
}

/** The cover of a title; `small` ones bear its initials. Decoration: what it says stands beside it. */
export function Cover({ title, year, genres, small = false }: Pick<Title, 'title' | 'year' | 'genres'> & {
  readonly small?: boolean
}): VNode {
  const found = MOTIFS.find(([named]) => genres.some((genre) => named.test(genre)))
  const [, family, motif] = found ?? MOTIFS[MOTIFS.length - 1]
  const draws = new Draws(`${title} ${year ?? ''}`)
  const shade = Math.floor(draws.next() * 3)
  const under = draws.next() < 0.72
  const size = title.length < 12 ? 'big' : title.length < 26 ? 'mid' : 'low'
  return (
    <div class={`cover f${family} s${shade} ${size} ${under ? 'under' : 'over'} ${small ? 'small' : ''}`} aria-hidden="true">
      <svg viewBox="0 0 100 100" preserveAspectRatio="xMidYMid slice" focusable="false">{motif(draws)}</svg>
      <div class="plate">
        <b>{small ? initials(title) : title}</b>
        {!small && year !== null && <i>{year}</i>}
      </div>
    </div>
  )
}
