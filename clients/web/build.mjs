/**
 * Build the app: one installable page, and an extension for each browser, into dist.
 *
 * Nothing here depends on the time, the machine or the order of files: two builds are equal to the byte.
 */

import { createHash } from 'node:crypto'
import { copyFileSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

import { build } from 'vite'

import { POLICIES } from './policies.mjs'

const HERE = import.meta.dirname
const { version, productName } = JSON.parse(readFileSync(join(HERE, 'app/package.json'), 'utf8'))
const PERMISSIONS = ['alarms', 'offscreen']

/** Where the code of each context begins; escape tests begin elsewhere, and change nothing else. */
export const ENTRIES = {
  worker: join(HERE, 'app/src/worker.ts'),
  ui: join(HERE, 'app/src/ui/main.tsx'),
  carrier: join(HERE, 'carrier/main.ts'),
}

/** Bundle one entry into one script that loads no other; return its code and its style. */
async function bundled(entry, define = {}) {
  const [{ output }] = /** @type {any} */ (await build({
    root: HERE, configFile: false, envFile: false, mode: 'production', logLevel: 'warn', publicDir: false,
    define: { 'process.env.NODE_ENV': '"production"', ...define }, // whatever the environment says
    esbuild: { jsx: 'automatic', jsxDev: false, jsxImportSource: 'preact', legalComments: 'none', charset: 'utf8' },
    build: {
      write: false, target: 'es2022', minify: 'esbuild', modulePreload: false, assetsInlineLimit: 0,
      lib: { entry, formats: ['iife'], name: 'it', fileName: 'it', cssFileName: 'it' },
    },
  }))
  const texts = Object.fromEntries(output.map((each) => [each.fileName.split('.').at(-1), each.code ?? each.source]))
  return { code: texts.js, style: texts.css ?? '' }
}

const policy = (rules) => Object.entries(rules).map(([name, value]) => `${name} ${value}`.trim()).join('; ')

const ELSEWHERE = 'This is open in another tab. Reload to go on here. · '
  + '<span lang="de">Das ist in einem anderen Tab offen. Neu laden, um hier weiterzumachen.</span>'

/** Write a document: its whole policy is in it, because not every host and browser sends one. */
function documentOf(rules, scripts, { body = '', head = '', attributes = '' } = {}) {
  return `<!doctype html>
<html lang="en"${attributes}>
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy(rules)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="color-scheme" content="light dark">
<title>${productName}</title>
${head}${scripts.map((name) => `<script defer src="${name}.js"></script>\n`).join('')}</head>
<body>${body}</body>
</html>
`
}

const frame = (name) => `<iframe id="${name}" title="${productName}" sandbox="allow-scripts" src="${name}.html"></iframe>`
const style = (name) => `<link rel="stylesheet" href="${name}.css">\n`
const ICON = '<link rel="icon" href="icon-128.png">\n'
const BUILD = '0'.repeat(64) // stands for the digest until it is known

function shellOf(rules, { background = false, head = '' } = {}) {
  const attributes = ` data-version="${version}" data-digest="${BUILD}"`
  const body = background
    ? frame('carrier') : `${frame('ui')}${frame('carrier')}<p id="elsewhere">${ELSEWHERE}</p>`
  return documentOf(rules, ['shell'], { attributes, body, head: head + ICON + style('shell') })
}

function manifestOf(browser) {
  const firefox = browser === 'firefox'
  return {
    manifest_version: 3,
    name: productName,
    version,
    description: 'Films for you; what you rate stays here.',
    icons: { 128: 'icon-128.png' },
    action: { default_title: productName },
    permissions: firefox ? PERMISSIONS.filter((name) => name !== 'offscreen') : PERMISSIONS,
    background: firefox ? { page: 'background.html' } : { service_worker: 'background.js' },
    content_security_policy: {
      extension_pages: policy(POLICIES.extension),
      // Firefox takes the cells' policies from their own <meta>.
      ...(firefox ? {} : { sandbox: `sandbox allow-scripts; ${policy(POLICIES.carrier)}` }),
    },
    ...(firefox
      ? { browser_specific_settings: { gecko: { id: 'app@hdpmf', strict_min_version: '140.0' }, gecko_android: {} } }
      : { sandbox: { pages: ['ui.html', 'carrier.html'] }, minimum_chrome_version: '120' }),
  }
}

const webManifest = {
  name: productName, short_name: productName, start_url: '.', scope: '.', display: 'standalone', id: '.',
  icons: [128, 512].map((size) => ({ src: `icon-${size}.png`, sizes: `${size}x${size}`, type: 'image/png' })),
}

/**
 * What a host may send along, where it can: who may frame the page, and, in Chromium, that only the
 * carrier connects to anybody else.
 */
const headersFile = ['/', '/index.html', '/ui.html', '/carrier.html'].map((path) => [
  path, `  Content-Security-Policy: frame-ancestors 'self'`, '  X-Content-Type-Options: nosniff',
  ...(path === '/carrier.html' ? [] : ['  Connection-Allowlist: (response-origin)']), '',
].join('\n')).join('\n')

/**
 * Return the digest of a built folder: of its files' names and digests, in order.
 * @param {string} folder
 */
export function digestOf(folder) {
  const lines = readdirSync(folder).sort().map((name) => {
    const data = readFileSync(join(folder, name))
    const own = name.endsWith('.html') // which say the digest themselves
      ? data.toString().replace(/data-digest="[0-9a-f]{64}"/, `data-digest="${BUILD}"`) : data
    return `${createHash('sha256').update(own).digest('hex')}  ${name}\n`
  })
  return createHash('sha256').update(lines.join('')).digest('hex')
}

/**
 * Build everything into a folder; return each part's digest.
 * @param {string} out
 * @param {{entries?: Partial<typeof ENTRIES>, policies?: typeof POLICIES, every?: number}} options `every`: minutes between alarms
 * @returns {Promise<Record<string, string>>}
 */
export async function buildAll(out, { entries = ENTRIES, policies = POLICIES, every = 10 } = {}) {
  const given = { ...ENTRIES, ...entries }
  const worker = (await bundled(given.worker)).code
  const first = (await bundled(join(HERE, 'app/src/cell.ts'))).code
  const cell = async (entry) => {
    const { code, style } = await bundled(entry)
    return { code: first + code, style }
  }
  const [ui, carrier] = [await cell(given.ui), await cell(given.carrier)]
  const shellEntry = join(HERE, 'app/src/shell.ts')
  const shell = async (from) => (await bundled(shellEntry, { WORKER: JSON.stringify(from) })).code
  const css = readFileSync(join(HERE, 'app/src/shell.css'), 'utf8')
  const common = {
    'ui.js': ui.code, 'ui.css': ui.style, 'carrier.js': carrier.code, 'shell.css': css,
    'ui.html': documentOf(policies.ui, ['ui'], { head: style('ui') }),
    'carrier.html': documentOf(policies.carrier, ['carrier']),
  }
  const inExtension = {
    ...common, 'worker.js': worker, 'shell.js': await shell({ file: 'worker.js' }),
    'background.js': (await bundled(join(HERE, 'app/src/background.ts'), { EVERY: `${every}` })).code,
    'index.html': shellOf(policies.extension),
  }
  const asBackground = { background: true }
  const parts = {
    page: {
      ...common, 'shell.js': await shell({ code: worker }),
      'index.html': shellOf(policies.page, { head: '<link rel="manifest" href="app.webmanifest">\n' }),
      'app.webmanifest': JSON.stringify(webManifest, null, 2), _headers: headersFile,
    },
    'extension-chromium': {
      ...inExtension, 'background.html': shellOf(policies.extension, asBackground),
      'manifest.json': JSON.stringify(manifestOf('chromium'), null, 2),
    },
    'extension-firefox': {
      ...inExtension,
      'background.html': shellOf(policies.extension, {
        ...asBackground, head: '<script defer src="background.js"></script>\n',
      }),
      'manifest.json': JSON.stringify(manifestOf('firefox'), null, 2),
    },
  }
  return Object.fromEntries(Object.entries(parts).map(([part, files]) => {
    const folder = join(out, part)
    rmSync(folder, { recursive: true, force: true })
    mkdirSync(folder, { recursive: true })
    for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text)
    for (const size of [128, 512]) {
      copyFileSync(join(HERE, `app/public/icon-${size}.png`), join(folder, `icon-${size}.png`))
    }
    const digest = digestOf(folder)
    for (const name of Object.keys(files).filter((each) => each.endsWith('.html'))) {
      const text = files[name].replace(`data-digest="${BUILD}"`, `data-digest="${digest}"`)
      writeFileSync(join(folder, name), text)
    }
    return [part, digest]
  }))
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const digests = process.argv[2] === '--digest'
    ? { [process.argv[3]]: digestOf(process.argv[3]) }
    : await buildAll(join(HERE, 'dist'))
  for (const [part, digest] of Object.entries(digests)) console.log(`${digest}  ${part}`)
}
