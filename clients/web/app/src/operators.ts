/**
 * Operators of sum servers that the authors of this release know of, by domain.
 *
 * A recommender names its two servers itself, so that nothing which is read from there proves who
 * runs them. What is not in this list is shown with a warning. An entry is added by a change that
 * somebody reviews, with a public page in which the organisation says that the domain is its own:
 *
 *     { domain: 'sums.example.org', organisation: 'Example Foundation', page: 'https://example.org/sums' }
 */
export interface Operator {
  readonly domain: string
  readonly organisation: string
  readonly page: string
}

export const OPERATORS: readonly Operator[] = []

/** Return whether this organisation is known to run servers at this domain. */
export const isKnown = (
  organisation: string, domain: string, operators: readonly Operator[] = OPERATORS,
): boolean =>
  operators.some((each) => each.domain === domain && each.organisation === organisation)
