/**
 * The shell: it makes the worker, which has the ratings, and hands out ports. It reads nothing that
 * crosses them. Everything here is about what may leave: see docs/adr/0033-a-wall-in-the-browser.md.
 */

export {}

/** Set by the build: a file of the extension, or, for a page, the worker's whole code. */
declare const WORKER: { readonly file: string } | { readonly code: string }

const NAME = /^[\w-]{1,40}\.(json|hdpmf)$/
const kind = 'file' in WORKER ? 'extension' : 'page'
const { version, digest } = document.documentElement.dataset
const cells = document.querySelectorAll('iframe')
const background = !document.querySelector('#ui')
let link = taken()

/** Take the invitation link that this page was opened with, out of the history. */
function taken(): string {
  const found = location.hash.slice(1)
  if (found !== '') history.replaceState(null, '', location.pathname)
  return found
}

/** Forbid this page what it had to have: frames go nowhere else, and its worker loads no code. */
function shut(): void {
  const meta = document.createElement('meta')
  meta.httpEquiv = 'Content-Security-Policy'
  meta.content = `script-src 'none'; frame-src 'none'; worker-src ${kind === 'page' ? 'blob:' : "'self'"}`
  document.head.append(meta)
}

function started(): Worker {
  const url = 'file' in WORKER ? WORKER.file : URL.createObjectURL(new Blob([WORKER.code], { type: 'text/javascript' }))
  const make = { createScriptURL: (asked: string) => (asked === url ? url : '') }
  const safe = window.trustedTypes?.createPolicy('core', make).createScriptURL(url) ?? url
  shut()
  const worker = new Worker(safe as string)
  const [ui, carrier, shell] = [new MessageChannel(), new MessageChannel(), new MessageChannel()]
  shell.port1.onmessage = ({ data }) => asked(data, shell.port1)
  addEventListener('hashchange', () => shell.port1.postMessage({ link: taken() }))
  for (const cell of cells) {
    const { port2 } = cell.id === 'ui' ? ui : carrier
    cell.contentWindow?.postMessage({ core: port2 }, '*', [port2])
  }
  const ports = { ui: ui.port1, carrier: carrier.port1, shell: shell.port2 }
  const host = { origin: location.origin, kind, version, digest }
  worker.postMessage({ ...ports, link, host }, Object.values(ports))
  return worker
}

/** Do what the worker asks of the shell; it must follow something that the person tapped. */
function asked(data: Record<string, unknown>, shell: MessagePort): void {
  if (background && 'rest' in data) return close()
  if (!navigator.userActivation.isActive) return
  if (data.choose === true) choose(shell)
  const { name, bytes } = (data.save ?? {}) as { name?: unknown; bytes?: unknown }
  if (typeof name !== 'string' || !NAME.test(name) || !(bytes instanceof Uint8Array)) return
  const file = URL.createObjectURL(new Blob([bytes as BlobPart]))
  Object.assign(document.createElement('a'), { href: file, download: name }).click()
  setTimeout(() => URL.revokeObjectURL(file), 60_000)
}

function choose(shell: MessagePort): void {
  const input = Object.assign(document.createElement('input'), { type: 'file' })
  input.onchange = async () => {
    const file = new Uint8Array(await input.files![0].arrayBuffer())
    shell.postMessage({ file }, [file.buffer])
  }
  input.click()
}

/** Run until another page takes over; one that nobody looks at never takes over. */
async function run(): Promise<void> {
  let worker: Worker | undefined
  const options = background ? { ifAvailable: true } : { steal: true }
  await navigator.locks.request('core', options, (lock) => {
    if (lock === null) return close()
    worker = started()
    return new Promise<void>(() => {}) // held for as long as this page lives
  }).catch(() => {
    worker?.terminate()
    if (background) return close()
    cells.forEach((cell) => cell.remove())
    document.body.dataset.elsewhere = ''
  })
}

// Nobody draws over what a person is asked; a header could say so, but not every host sends one.
if (top === self) addEventListener('load', run)
