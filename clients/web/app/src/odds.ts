import type { Cost, Limits } from '@hdpmf/core'
import { UNIT } from '@hdpmf/core'

import type { Odds, Risk } from './messages.ts'

// Stands in until the core's own is there.
const phi = (x: number): number => {
  const t = 1 / (1 + 0.3275911 * (Math.abs(x) / Math.SQRT2))
  const erf = 1 - ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t * Math.exp(-(x * x) / 2)
  return x >= 0 ? (1 + erf) / 2 : (1 - erf) / 2
}
const odds = (square: number): Odds => {
  if (square === 0) return { right: 0.5, sure: 0, epsilon: 0 }
  const mu = Math.sqrt(square)
  const level = Math.log(99)
  const rho = square / 2
  return {
    right: phi(mu / 2) + 1e-6, sure: phi((rho - level) / mu) + phi((-rho - level) / mu) + 1e-6,
    epsilon: rho + mu * Math.sqrt(2 * Math.log(1e5)),
  }
}
export const personOf = (cost: Cost): Risk => ({ none: odds(cost.none / UNIT), other: odds(cost.other / UNIT) })
export const worstWithin = (limits: Limits): Cost => ({ none: limits.life, other: 4 * limits.life, grain: 0 })
