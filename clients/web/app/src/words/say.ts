/** Sentences with their numbers. What is promised is rounded up here, and nowhere else. */

import { type Risk, percentOf, shareOf } from '@hdpmf/core'

import { de } from './de.ts'
import { type Words, en } from './en.ts'

export type Key = keyof Words
export type Values = Readonly<Record<string, string | number>>

export const LANGUAGES: Readonly<Record<string, Words>> = { en, de }

/** What speaks one language. */
export class Speech {
  readonly language: string
  private readonly words: Words

  constructor(language: string) {
    const [first] = language.toLowerCase().split('-')
    this.language = first in LANGUAGES ? first : 'en'
    this.words = LANGUAGES[this.language]
  }

  /** Say something: `{name}` is a value, `{n|one|many}` a word that follows a number. */
  readonly say = (key: Key, values: Values = {}): string =>
    this.words[key].replace(/\{(\w+)(?:\|([^|}]*)\|([^}]*))?\}/g, (_, name, one, many) => {
      const value = values[name]
      if (one !== undefined) return value === 1 ? one : many
      return typeof value === 'number' ? this.number(value) : String(value)
    })

  number(value: number, digits = 1): string {
    return value.toLocaleString(this.language, { maximumFractionDigits: digits, useGrouping: false })
  }

  /** How often of 100 a guess is right, at most. */
  right({ right }: Risk): string {
    return this.number(percentOf(right))
  }

  sure({ sure }: Risk): string {
    return this.number(shareOf(sure))
  }

  epsilon({ epsilon }: Risk): string {
    return this.number(Math.ceil(epsilon * 10) / 10)
  }

  /** In words; what they mean is in `ADJECTIVES`. */
  adjective({ right }: Risk): string {
    return this.say(adjectiveFor(right))
  }

  percent(part: number): string {
    return this.say('gauge.percent', { n: ofHundred(part) })
  }

  /** A moment in local time. */
  moment(at: number): string {
    return new Intl.DateTimeFormat(this.language, { dateStyle: 'medium', timeStyle: 'short' })
      .format(at * 1000)
  }

  /** The same, as short as in a list. */
  shortly(at: number): string {
    return new Intl.DateTimeFormat(this.language, { month: 'short', day: 'numeric', hour: 'numeric', minute: '2-digit' })
      .format(at * 1000)
  }

  /** A day, as people say it: the weekday where that is one of the last six. */
  day(at: number, now: number): string {
    const recent = now - at < 6 * 86_400
    return new Intl.DateTimeFormat(this.language, recent ? { weekday: 'long' } : { dateStyle: 'long' })
      .format(at * 1000)
  }
}

/** A part of one in hundredths, rounded up. */
export const ofHundred = (part: number): number => Math.ceil(part * 100)

/** How often of 100 a guess may be right, at most, for these words to be true of it. */
export const ADJECTIVES: readonly (readonly [Key, number])[] = [
  ['odds.coin', 52], ['odds.little', 60], ['odds.clearly', 75], ['odds.often', 85],
  ['odds.mostly', 95], ['odds.always', 100],
]

export const adjectiveFor = (right: number): Key =>
  (ADJECTIVES.find(([, most]) => percentOf(right) <= most) ?? ADJECTIVES[ADJECTIVES.length - 1])[0]
