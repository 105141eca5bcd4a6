"""TOML and dictionaries -> classes of options: typed, frozen, validated; variants, sweeps, `--set`, schedules, extensions.

What a configuration consists of is not decided here: every room brings the options of its own subject.
"""
