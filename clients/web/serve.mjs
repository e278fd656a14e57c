/** Serve a folder on loopback, as any static host would: `node serve.mjs [FOLDER [PORT]]`. */

import { createReadStream, existsSync } from 'node:fs'
import { createServer } from 'node:http'
import { basename, extname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const TYPES = {
  '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.png': 'image/png',
  '.webmanifest': 'application/manifest+json',
}

/**
 * Serve a flat folder; no header speaks of policies, so that pages have only those in them.
 * @param {string} folder
 * @param {number} port
 * @param {(path: string) => void} heard is told what is asked for
 * @returns {Promise<{address: string, close(): void}>}
 */
export function serve(folder, port = 0, heard = () => {}) {
  const server = createServer((request, response) => {
    heard(request.url ?? '/')
    const name = basename(new URL(request.url ?? '/', 'http://localhost').pathname) || 'index.html'
    const file = join(folder, name)
    if (name === '..' || !existsSync(file)) return response.writeHead(404).end()
    response.setHeader('content-type', TYPES[extname(name)] ?? 'application/octet-stream')
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
