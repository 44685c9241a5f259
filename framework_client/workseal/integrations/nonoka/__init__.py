"""Run and resume paused sessions of the nonoka framework on verified receipts only.

nonoka itself is not imported here: a runner and its agents are given.
"""

from workseal.integrations.nonoka.bridge import NonokaRunner, VerifiedResume

__all__ = ["NonokaRunner", "VerifiedResume"]
