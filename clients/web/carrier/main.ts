/** The carrier cell: hears its port, and fetches. */

import { Carrier } from './carrier.ts'

addEventListener('message', ({ data, source }) => {
  if (source === parent) new Carrier((...asked) => fetch(...asked)).serve(data.core)
}, { once: true })
