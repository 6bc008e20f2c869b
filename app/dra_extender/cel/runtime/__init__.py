"""The values that expressions compute with, and what an evaluation may spend.

Each module holds one kind of value (integers, quantities, versions, times, addresses, URLs) or one measure (`cost`, `budget`,
`compile_limits`).
"""
