import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'

import { type Cost, LEVELS, type State, UNIT, personOf, worstWithin } from '@hdpmf/core'
import { describe, expect, test } from 'vitest'

import { numbers } from '../demo/world.ts'
import { levels } from '../src/views.ts'
import { ADJECTIVES, type Key, LANGUAGES, Speech, type Values, adjectiveFor } from '../src/words/say.ts'

const KEYS = Object.keys(LANGUAGES.en) as Key[]
const SPEECHES = Object.keys(LANGUAGES).map((language) => new Speech(language))

const holes = (sentence: string): string[] =>
  [...new Set([...sentence.matchAll(/\{(\w+)/g)].map(([, name]) => name))].sort()

describe('languages', () => {
  test('have the same sentences, with the same values in them', () => {
    for (const words of Object.values(LANGUAGES)) {
      expect(Object.keys(words)).toEqual(KEYS)
      for (const key of KEYS) expect(holes(words[key]), key).toEqual(holes(LANGUAGES.en[key]))
    }
  })

  test('differ in all that is no name or number, and nothing is left out', () => {
    const same = KEYS.filter((key) => LANGUAGES.de[key] === LANGUAGES.en[key])
    expect(same).toEqual(['app.name', 'pick.genre', 'gauge.percent', 'privacy.run', 'privacy.version', 'locked.passphrase'])
    for (const words of Object.values(LANGUAGES)) expect(Object.values(words)).not.toContain('')
  })

  test('have no sentence that nobody says', () => {
    const folder = join(import.meta.dirname, '../src')
    const code = readdirSync(folder, { recursive: true, encoding: 'utf8' })
      .filter((name) => /\.tsx?$/.test(name) && !/words.(en|de)\.ts$/.test(name))
      .map((name) => readFileSync(join(folder, name), 'utf8')).join('\n')
    const families = ['tab.', 'level.', 'level.gain.', 'notice.', 'trouble.']
    const said = (key: string): boolean => code.includes(`'${key}'`) || code.includes(`"${key}"`) ||
      families.some((family) => key.startsWith(family) && code.includes(`\`${family}\${`))
    expect(KEYS.filter((key) => !said(key))).toEqual([])
  })
})

/** Sentences that promise something, and what each of their numbers may not be less than. */
type Promise = (cost: Cost, speech: Speech) => readonly [sentence: string, ...truths: number[]]

const between = (from: number, to: number): { before: Cost; after: Cost } => ({
  before: { none: from, other: 2 * from, grain: 0 }, after: { none: from + to, other: 2 * (from + to), grain: 0 },
})

const PROMISES: Readonly<Partial<Record<Key, Promise>>> = {
  'level.sentence': (cost, speech) => {
    const { other } = personOf(cost)
    return [speech.say('level.sentence', { right: speech.right(other), adjective: speech.adjective(other) }), other.right * 100, 100]
  },
  'privacy.sentence': (cost, speech) => {
    const { other } = personOf(cost)
    const values = { right: speech.right(other), adjective: speech.adjective(other), sure: speech.sure(other) }
    return [speech.say('privacy.sentence', values), other.right * 100, 100, 99, other.sure * 100]
  },
  'privacy.reportLinear': (cost, speech) => {
    const { other } = personOf(cost)
    const values = { right: speech.right(other), epsilon: speech.epsilon(other) }
    return [speech.say('privacy.reportLinear', values), other.right * 100, 100, other.epsilon, 0.00001]
  },
  'privacy.reportPairs': (cost, speech) => {
    const { other } = personOf(cost)
    const values = { right: speech.right(other), epsilon: speech.epsilon(other) }
    return [speech.say('privacy.reportPairs', values), other.right * 100, 100, other.epsilon, 0.00001]
  },
  'gauge.right': (cost, speech) => {
    const { other } = personOf(cost)
    return [speech.say('gauge.right', { right: speech.right(other) }), other.right * 100, 100]
  },
  'ask.holds': (cost, speech) => {
    const { other } = personOf(cost)
    return [speech.say('ask.holds', { most: speech.right(other) }), other.right * 100, 100]
  },
  'ask.give': (cost, speech) => {
    const both = between(cost.none / 3, cost.none)
    const [before, after] = [personOf(both.before).other, personOf(both.after).other]
    const sentence = speech.say('ask.give', { before: speech.right(before), after: speech.right(after) })
    return [sentence, after.right * 100, 100, before.right * 100, 50]
  },
}

/** A value that the word stands behind: no less than it is shown to be. */
const BOUNDS = /\{(right|sure|epsilon|after|most)\}/

/** Numbers in a sentence, in the writing of its language. */
const numbersIn = (sentence: string): number[] =>
  [...sentence.matchAll(/\d+(?:[.,]\d+)?/g)].map(([found]) => Number(found.replace(',', '.')))

describe('promises', () => {
  test('every sentence that bounds something is tried below', () => {
    expect(KEYS.filter((key) => BOUNDS.test(LANGUAGES.en[key])).sort()).toEqual(Object.keys(PROMISES).sort())
  })

  test('every number in them is as large as what is true, in each language', () => {
    const next = numbers(7)
    for (let tries = 0; tries < 200; tries++) {
      const none = Math.ceil(10 ** (4 + 6.4 * next()))
      const cost = { none, other: Math.ceil(none * (1 + 3 * next())), grain: Math.floor(next() ** 4 * 10 ** 9) }
      for (const speech of SPEECHES) {
        for (const [key, make] of Object.entries(PROMISES)) {
          const [sentence, ...truths] = make(cost, speech)
          const found = numbersIn(sentence)
          expect(found.length, sentence).toBe(truths.length)
          truths.forEach((truth, at) => {
            expect(found[at], `${key}: ${sentence}`).toBeGreaterThanOrEqual(truth * (1 - 1e-12))
          })
          // And not much larger: a bound of nothing says nothing.
          expect(found[0] - truths[0], sentence).toBeLessThanOrEqual(1)
        }
      }
    }
  })

  test('budgets are rounded up as well', () => {
    const next = numbers(3)
    for (let tries = 0; tries < 400; tries++) {
      const part = next() ** 3
      for (const speech of SPEECHES) expect(numbersIn(speech.percent(part))[0]).toBeGreaterThanOrEqual(part * 100)
    }
    expect(SPEECHES.map((speech) => speech.percent(0))).toEqual(['0\u00a0%', '0\u00a0%'])
  })

  test('adjectives are true of the largest number that they are said of', () => {
    // What each word allows, as people would read it: the least favourable reading.
    const meanings: Partial<Record<Key, number>> = {
      'odds.coin': 52, 'odds.little': 60, 'odds.clearly': 75, 'odds.often': 85, 'odds.mostly': 95, 'odds.always': 100,
    }
    let last = 50
    for (let thousandths = 500; thousandths <= 1000; thousandths++) {
      const word = adjectiveFor(thousandths / 1000)
      const most = meanings[word] as number
      expect(thousandths / 10, word).toBeLessThanOrEqual(most)
      expect(most, 'a larger number never has a milder word').toBeGreaterThanOrEqual(last)
      last = most
    }
    expect(ADJECTIVES.map(([, most]) => most)).toEqual(Object.values(meanings))
    expect(adjectiveFor(0.96)).toBe('odds.always')
  })

  test('what a level says holds for every history within it', () => {
    const next = numbers(11)
    for (const limits of Object.values(LEVELS)) {
      const [said] = SPEECHES.map((speech) => Number(speech.right(personOf(worstWithin(limits)).other)))
      for (let tries = 0; tries < 100; tries++) {
        let [left, other, grain] = [limits.life, 0, 0]
        while (left > limits.life / 50) {
          const none = Math.ceil(left * (0.2 + 0.8 * next()))
          left -= none
          other += Math.floor(none * (2 + 2 * next()))
          // Of 20,000 items and values: entries / deviation^4, where none = bound / deviation^2.
          grain += Math.floor(40_001 * (none / UNIT / 2 ** 20) ** 2 * 10 ** 15)
        }
        const cost = { none: limits.life - left, other, grain }
        expect(said).toBeGreaterThanOrEqual(personOf(cost).other.right * 100)
      }
    }
  })

  test('a level that is chosen late counts what was spent before', () => {
    const cost = { none: 2e9, other: 8e9, grain: 10 }
    const line = { at: 1, cost } as State['ledger'][number]
    for (const { risk } of levels({ ledger: [line] })) expect(risk.other.right).toBeGreaterThanOrEqual(personOf(cost).other.right)
  })

  test('the noise protects, never the crowd', () => {
    const crowd = /crowd|anonym|number of people|many people|among others|Menge|anonym|Zahl der Leute|Viele|unter vielen/i
    const denied = /not the number of people|nicht die Zahl der Leute/
    const choosing = new Set<Key>(['reason.popularity', 'list.knownText'])
    for (const words of Object.values(LANGUAGES)) {
      for (const key of KEYS.filter((each) => crowd.test(words[each]) && !choosing.has(each))) {
        expect(words[key], key).toMatch(denied)
        expect(words[key], key).toMatch(/noise|Rauschen/)
      }
      expect(KEYS.filter((key) => denied.test(words[key])).sort()).toEqual(['ask.noise', 'level.noise'])
    }
  })

  test('nothing is said to be impossible, safe or perfect', () => {
    const boast = /\b(impossible|guarantee|perfect|100 % safe|safe|secure|unmöglich|garantiert|perfekt|sicher)\b/i
    for (const words of Object.values(LANGUAGES)) {
      const found = KEYS.filter((key) => boast.test(words[key]))
      expect(found.filter((key) => key !== 'privacy.sentence')).toEqual([])
    }
  })
})

test('values and plurals stand where they belong', () => {
  const [en, de] = SPEECHES
  const said = (speech: Speech, key: Key, values: Values): string => speech.say(key, values)
  expect(said(en, 'list.left', { n: 1 })).toMatch(/^1 report with/)
  expect(said(de, 'list.left', { n: 2 })).toMatch(/^2 Berichte .* gingen/)
  expect(de.number(4.25)).toBe('4,3')
  expect(new Speech('fr-FR').language).toBe('en')
  expect(new Speech('de-AT').language).toBe('de')
})
