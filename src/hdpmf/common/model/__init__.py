"""Public knowledge of both sides; nothing private is in it.

Population priors, what devices fit their vectors to, and the files of public models. It knows
neither side.
"""
