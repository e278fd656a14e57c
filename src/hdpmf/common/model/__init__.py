"""Public knowledge of both sides; nothing private is in it.

What devices fit their vectors to, and the files of public models. It knows
neither side.
"""
