"""The exact laws of noise, for log-likelihood ratios."""

from __future__ import annotations

import math

import numpy as np

_FFT_SCALES = 15.0  # e^-15 is far above the transform's rounding errors


def log_discrete_laplace(k: np.ndarray, scale: float) -> np.ndarray:
    """Log probability of ``k`` under P(k) proportional to exp(-abs(k) / scale)."""
    return np.asarray(math.log(math.tanh(0.5 / scale)) - np.abs(k) / scale)


def log_share(k: np.ndarray, scale: float, n_shares: int) -> np.ndarray:
    """Log probability of ``k`` as one of ``n_shares`` shares that add up to discrete Laplace noise.

    The share is the difference of two negative binomials with r = 1/n_shares and q = exp(-1/scale), so its
    characteristic function is ((1-q)^2 / (1 - 2 q cos t + q^2))^r, which a fast Fourier transform inverts. Where
    probabilities sink below what that resolves, the tail's leading term takes over (right to a few percent there).
    """
    from scipy.fft import irfft
    from scipy.special import gammaln

    if n_shares == 1:
        return log_discrete_laplace(k, scale)
    r, q, far = 1.0 / n_shares, math.exp(-1.0 / scale), math.ceil(_FFT_SCALES * scale) + 1
    size = 1 << (2 * far + 64).bit_length()
    t = 2.0 * math.pi * np.arange(size // 2 + 1) / size
    # 1 - 2 q cos t + q^2 = (1-q)^2 + 4 q sin^2(t/2): no cancellation at t = 0.
    near = irfft(np.power(1.0 + 4.0 * q * (np.sin(0.5 * t) / -math.expm1(-1.0 / scale)) ** 2, -r), size)
    distance = np.abs(np.asarray(k, np.float64))
    log_p = np.log(np.maximum(near[np.minimum(distance, far).astype(np.int64)], np.finfo(float).tiny))
    beyond = np.maximum(distance, 1.0)
    rising = gammaln(beyond + r) - gammaln(r) - gammaln(beyond + 1.0)
    tail = r * math.log(math.tanh(0.5 / scale)) - beyond / scale + rising  # (1-q)^2r / (1-q^2)^r = tanh(1/2s)^r
    return np.asarray(np.where(distance < far, log_p, tail))


def log_wide_share(distance: np.ndarray, scale: float, n_shares: int) -> np.ndarray:
    """The same for a scale of many units, up to a constant; ``distance`` and ``scale`` are in the same unit.

    Between the units the law is that of a share of Laplace noise, with density ``x^nu K_nu(x)`` for ``x = distance /
    scale``, ``nu = 1/n - 1/2`` and Bessel's K. For one share that is ``exp(-x)``.
    """
    from scipy.special import kve

    nu = 1.0 / n_shares - 0.5
    x = np.maximum(np.asarray(distance, np.float64) / scale, 1e-12)  # the density of a small share has a pole at 0
    return np.asarray(nu * np.log(x) + np.log(kve(nu, x)) - x)
