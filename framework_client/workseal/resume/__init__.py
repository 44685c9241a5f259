"""From pending calls and receipts to verified results."""

from workseal.resume.inputs import NotRun, RawResult, ResultInput, ResumeTerms, SignedResult
from workseal.resume.resume import ResumedCalls, resume_external_tools
from workseal.resume.run import run_pending

__all__ = [
    "NotRun",
    "RawResult",
    "ResultInput",
    "ResumeTerms",
    "ResumedCalls",
    "SignedResult",
    "resume_external_tools",
    "run_pending",
]
