/** A store of one file for each person, written whole; one process at a time may use it. */

import { open, readFile, rename, rm } from 'node:fs/promises'
import { deserialize, serialize } from 'node:v8'

/** @import { Held, State, Store } from '@hdpmf/core' */

/** @implements {Store} */
export class FileStore {
  /** @param {string} path */
  constructor(path) {
    this.path = path
  }

  /** @returns {Promise<Held | null>} */
  async load() {
    const data = await readFile(this.path).catch((error) => {
      if (error.code === 'ENOENT') return null
      throw error
    })
    return data && deserialize(data)
  }

  /** @param {State} state @param {number} expected */
  async commit(state, expected) {
    if (((await this.load())?.version ?? 0) !== expected) return false
    const file = await open(`${this.path}.new`, 'w', 0o600)
    await file.writeFile(serialize({ state, version: expected + 1 }))
    await file.sync() // a report is made only of what is on disk
    await file.close()
    await rename(`${this.path}.new`, this.path)
    return true
  }

  async erase() {
    await rm(this.path, { force: true })
  }
}
