/** Titles that nobody has made: of the made-up world that tests, screenshots and the trial have. */

export interface Made {
  readonly title: string
  readonly year: number
  readonly genres: readonly string[]
  /** What its audience has in common, besides genres. */
  readonly mood: number
}

const WORDS: Readonly<Record<string, readonly [adjectives: string, nouns: string]>> = {
  'Drama': ['Quiet Borrowed Unfinished Winter Ordinary Distant Paper Northern', 'Harbour Orchard Letters House Daughter Season Kitchen Bridge'],
  'Comedy': ['Slightly Wrong Second Cheerful Impossible Overbooked Polite Spare', 'Wedding Landlord Parrot Holiday Cousin Elevator Umbrella Neighbours'],
  'Crime': ['Cold Nine Crooked Silent Last Borrowed Midnight Honest', 'Keys Ledger Alibi Inspector Debt Witness Cigarette Street'],
  'Sci-Fi': ['Hollow Second Glass Orbital Pale Electric Far Ninth', 'Moon Colony Signal Tide Machine Garden Transit Horizon'],
  'Romance': ['Slow Two Late Summer Almost Tender Returning Southern', 'Ferry Letters Waltz Platform Garden Strangers Evening Map'],
  'Thriller': ['Narrow Dead Blind Seventh False Burning Deep Closed', 'Passage Channel Window Courier Exit Current Signal Hour'],
  'Adventure': ['Lost Iron High Wild Broken Salt Golden Far', 'River Caravan Summit Compass Island Kingdom Expedition Wind'],
  'Horror': ['Hungry Wet Pale Forgotten Crawling Seventh Buried Red', 'Cellar Choir House Lake Guest Doll Orchard Mirror'],
  'Fantasy': ['Lantern Silver Sleeping Thorn Glass Wandering Hidden Amber', 'Eaters King Forest Bridge Witch Dragon Hour Tower'],
  'Western': ['Low Long Dry Seven Lonely Copper Broken Last', 'Sun Canyon Rider Fence Creek Rifles Mesa Train'],
  'Animation': ['Little Brave Upside Paper Jumping Purple Tiny Clever', 'Fox Cloud Balloon Robot Whale Pocket Bear Snail'],
  'Documentary': ['Inside Counting Open Slow Public Measured Common Last', 'Rivers Bees Library Harvest Ocean Bread Night Machines'],
}

const FRAMES: readonly ((adjective: string, noun: string, other: string) => string)[] = [
  (adjective, noun) => `The ${adjective} ${noun}`,
  (adjective, noun) => `${adjective} ${noun}`,
  (_, noun, other) => `${noun} of the ${other}`,
  (adjective, noun, other) => `${other}, ${adjective} ${noun}`,
  (_, noun, other) => `${noun} and ${other}`,
]

/** So many different titles, the same each time. */
export function madeTitles(count: number): readonly Made[] {
  const genres = Object.keys(WORDS)
  const names = new Set<string>()
  const found: Made[] = []
  for (let at = 0; found.length < count; at++) {
    const genre = genres[(at * 7 + Math.floor(at / 12)) % genres.length]
    const [adjectives, nouns] = WORDS[genre].map((words) => words.split(' '))
    const pick = (of: readonly string[], by: number): string => of[(at * by + Math.floor(at / (of.length * by))) % of.length]
    const [adjective, noun] = [pick(adjectives, 5), pick(nouns, 3)]
    const other = nouns[(nouns.indexOf(noun) + 1 + (at % 5)) % nouns.length]
    let title = FRAMES[(at * 3 + Math.floor(at / 31)) % FRAMES.length](adjective, noun, other)
    for (let part = 2; names.has(title); part++) title = `${title.replace(/ \d+$/, '')} ${part}`
    names.add(title)
    const second = genres[(at * 5 + 3) % genres.length]
    found.push({
      title, year: 2024 - ((at * 13) % 78), mood: (at * 29) % 5,
      genres: at % 3 === 0 && second !== genre ? [genre, second] : [genre],
    })
  }
  return found
}
