/** Who waits outside: a server on loopback that counts whatever reaches it, by whatever way. */

import { execFileSync } from 'node:child_process'
import { createSocket } from 'node:dgram'
import { mkdtempSync, readFileSync } from 'node:fs'
import { createServer as createSecure } from 'node:https'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { type AddressInfo, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { PORTS } from './ways.ts'

const TYPES: Record<string, string> = {
  js: 'text/javascript', css: 'text/css', html: 'text/html', png: 'image/png', svg: 'image/svg+xml',
  json: 'application/json', txt: 'text/plain', vtt: 'text/vtt', xsl: 'text/xsl',
}

function certificate(): { key: Buffer; cert: Buffer } {
  const folder = mkdtempSync(join(tmpdir(), 'adversary-'))
  const [key, cert] = [join(folder, 'key.pem'), join(folder, 'cert.pem')]
  execFileSync('openssl', [
    'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2',
    '-subj', '/CN=127.0.0.1', '-addext', 'subjectAltName=IP:127.0.0.1', '-keyout', key, '-out', cert,
  ], { stdio: 'pipe' })
  return { key: readFileSync(key), cert: readFileSync(cert) }
}

export class Adversary {
  /** What arrived, by context. */
  readonly hits = new Map<string, Set<string>>()
  /** Reports that were sent to it, when each was. */
  readonly reports: { readonly at: number; readonly body: Buffer }[] = []
  base = ''
  private readonly dones = new Map<string, URLSearchParams>()
  private readonly closing: (() => void)[] = []

  static async waiting(): Promise<Adversary> {
    const made = new Adversary()
    const server = createSecure(certificate(), (request, response) => made.answer(request, response))
    server.on('upgrade', (request, socket) => {
      made.count(request.url ?? '')
      socket.destroy()
    })
    server.keepAliveTimeout = 1000
    await new Promise<void>((go) => server.listen(0, '127.0.0.1', go))
    made.base = `https://127.0.0.1:${(server.address() as AddressInfo).port}`
    made.closing.push(() => { server.close(); server.closeAllConnections() })
    return made
  }

  close(): void {
    this.closing.forEach((each) => each())
  }

  of(context: string): string[] {
    return [...(this.hits.get(context) ?? [])].sort()
  }

  private hit(context: string, name: string): void {
    this.hits.set(context, (this.hits.get(context) ?? new Set()).add(name))
  }

  /** Count a request, whoever it was sent to, by its path. */
  count(path: string): void {
    const found = /\/hit\/([^/]+)\/([^/?]+)/.exec(path)
    if (found !== null) this.hit(decodeURIComponent(found[1]), decodeURIComponent(found[2]))
  }

  answer(request: IncomingMessage, response: ServerResponse): void {
    const { pathname, searchParams } = new URL(request.url ?? '/', this.base)
    this.count(pathname)
    if (request.method === 'POST' && pathname.endsWith('/reports')) {
      const parts: Buffer[] = []
      request.on('data', (part) => parts.push(part))
      request.on('end', () => this.reports.push({ at: Date.now(), body: Buffer.concat(parts) }))
    }
    if (pathname.startsWith('/done/')) this.dones.set(decodeURIComponent(pathname.slice(6)), searchParams)
    response.writeHead(200, {
      'content-type': TYPES[pathname.split('.').at(-1)!] ?? 'application/octet-stream',
      'access-control-allow-origin': '*', 'access-control-allow-headers': 'authorization, *', 'access-control-allow-methods': '*',
    }).end()
  }

  /** Wait until all have tried their ways; return what they said, or null if they were not heard. */
  async done(key: string, patience: number): Promise<URLSearchParams | null> {
    for (const end = Date.now() + patience; Date.now() < end; await new Promise((go) => setTimeout(go, 20))) {
      const said = this.dones.get(key)
      if (said !== undefined) return said
    }
    return null
  }

  /** Return ports that count for one context; something that connects has taken the way. */
  async ports(context: string): Promise<Record<string, number>> {
    const made = Object.entries(PORTS).map(async ([name, kind]) => {
      const count = () => this.hit(context, name)
      if (kind === 'udp') {
        const socket = createSocket('udp4', count)
        await new Promise<void>((go) => socket.bind(0, '127.0.0.1', go))
        this.closing.push(() => socket.close())
        return [name, socket.address().port] as const
      }
      const server = createServer((socket) => {
        count()
        socket.on('error', () => {}).destroy()
      })
      await new Promise<void>((go) => server.listen(0, '127.0.0.1', go))
      this.closing.push(() => server.close())
      return [name, (server.address() as AddressInfo).port] as const
    })
    return Object.fromEntries(await Promise.all(made))
  }
}
