/** Makes of `dist`, which the compiler has filled, the package that is published: `npm run package`. */

import { copyFileSync, readFileSync, writeFileSync } from 'node:fs'

const card = JSON.parse(readFileSync('package.json', 'utf8'))
const built = (source) => ({
  types: source.replace(/\.ts$/, '.d.ts'),
  default: source.replace(/\.ts$/, '.js'),
})
const exported = typeof card.exports === 'string' ? { '.': card.exports } : card.exports
card.exports = Object.fromEntries(Object.entries(exported).map(([name, source]) => [name, built(source)]))
delete card.scripts
writeFileSync('dist/package.json', `${JSON.stringify(card, null, 2)}\n`)
copyFileSync('README.md', 'dist/README.md')
copyFileSync('../../../LICENSE', 'dist/LICENSE')
