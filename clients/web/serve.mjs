/** Serve a folder on loopback, as any static host would: `node serve.mjs [FOLDER [PORT]]`. */

import { createReadStream, existsSync, readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { basename, extname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const TYPES = {
  '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.png': 'image/png',
  '.webmanifest': 'application/manifest+json',
}

/** Read which headers a file `_headers` has for each path. */
const headersIn = (/** @type {string} */ folder) => Object.fromEntries(
  readFileSync(join(folder, '_headers'), 'utf8').trim().split('\n\n').map((block) => {
    const [path, ...lines] = block.split('\n')
    return [path, lines.map((line) => line.trim().split(': '))]
  }))

/**
 * Serve a flat folder, as a host that sends no header on policies, or as one that reads `_headers`.
 * @param {string} folder
 * @param {number} port
 * @param {(path: string) => void} heard is told what is asked for
 * @param {boolean} headed
 * @returns {Promise<{address: string, close(): void}>}
 */
export function serve(folder, port = 0, heard = () => {}, headed = false) {
  const headers = headed ? headersIn(folder) : {}
  const server = createServer((request, response) => {
    heard(request.url ?? '/')
    const { pathname } = new URL(request.url ?? '/', 'http://localhost')
    const name = basename(pathname) || 'index.html'
    const file = join(folder, name)
    if (name === '..' || !existsSync(file)) return response.writeHead(404).end()
    response.setHeader('content-type', TYPES[extname(name)] ?? 'application/octet-stream')
    for (const [header, value] of headers[pathname] ?? []) response.setHeader(header, value)
    createReadStream(file).pipe(response)
  })
  return new Promise((resolve) => {
    server.listen(port, '127.0.0.1', () => resolve({
      address: `http://localhost:${server.address().port}`, close: () => server.close(),
    }))
  })
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [folder = join(import.meta.dirname, 'dist/page'), port = '8000'] = process.argv.slice(2)
  console.log((await serve(folder, Number(port))).address)
}
