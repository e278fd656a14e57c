"""Ids in paths, problems in answers, and the checksum of a batch."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.aggregation.two_servers.dap.messages import (
    COLLECTION_JOBS_PATH,
    JOB_PATH,
    MEDIA_TYPES,
    PROBLEM_URN,
    REPORTS_PATH,
    Problem,
    UploadRequest,
    combine_checksums,
    id_from_text,
    id_to_text,
    job_id,
    media_type,
    problem_from_details,
)
from hdpmf.errors import DapError

# The draft's own example of a path.
TASK = "8BY0RzZMzxvA46_8ymhzycOB9krN-QIGYvg_RsByGec"


def test_ids_stand_in_paths_as_in_the_draft():
    task = id_from_text(TASK, 32)
    assert f"https://example.com{REPORTS_PATH.format(task_id=id_to_text(task))}" == (
        f"https://example.com/tasks/{TASK}/reports"
    )
    made = (COLLECTION_JOBS_PATH + JOB_PATH).format(task_id=TASK, job_id=id_to_text(bytes(16)))
    assert made == f"/tasks/{TASK}/collection_jobs/AAAAAAAAAAAAAAAAAAAAAA"


@given(st.binary(min_size=32, max_size=32) | st.binary(min_size=16, max_size=16))
def test_ids_come_back(data: bytes):
    assert id_from_text(id_to_text(data), len(data)) == data


@given(st.text("-_AZaz09=+/é\0", min_size=42, max_size=44))
def test_an_id_has_one_text(text: str):
    try:
        data = id_from_text(text, 32)
    except DapError:
        return
    assert id_to_text(data) == text


@pytest.mark.parametrize(
    "text", ["", TASK + "=", TASK[:-1], TASK[:-1] + "d", TASK.replace("_", "/"), "é" * 43]
)
def test_other_texts_are_refused(text: str):
    with pytest.raises(DapError):
        id_from_text(text, 32)


def test_a_problem_comes_back():
    for problem in set(Problem) - {Problem.UNAUTHORIZED_REQUEST}:
        assert problem_from_details({"type": f"{PROBLEM_URN}{problem}"}).kind == problem


@pytest.mark.parametrize(
    "details", [None, [], {}, {"type": 7}, {"type": "about:blank"}, {"type": ["x"]}, "text"]
)
def test_any_answer_is_a_problem(details: object):
    assert problem_from_details(details).kind == Problem.INVALID_MESSAGE


def test_what_others_wrote_is_not_repeated():
    assert "forged" not in str(problem_from_details({"type": "forged", "detail": "forged"}))


def test_a_checksum_is_of_a_set():
    digests = [hashlib.sha256(bytes([n]) * 16).digest() for n in range(3)]
    whole = combine_checksums(digests)
    assert combine_checksums([]) == bytes(32)
    assert combine_checksums(digests[:1]) == digests[0]
    assert whole == combine_checksums(reversed(digests))
    assert combine_checksums([digests[0], combine_checksums(digests[1:])]) == whole
    assert whole != combine_checksums(digests[:2])


@pytest.mark.parametrize(
    ("header", "kind"),
    [
        ("application/ppm-dap;message=upload-req", "application/ppm-dap;message=upload-req"),
        ('Application/PPM-DAP ; q=1; Message="Upload-Req"', MEDIA_TYPES[UploadRequest]),
        ("application/ppm-dap", "application/ppm-dap"),
        ("text/html; charset=utf-8; message=upload-req", "text/html"),
        ("", ""),
    ],
)
def test_a_media_type_is_told_by_its_message(header: str, kind: str):
    assert media_type(header) == kind


def test_the_same_request_is_the_same_job():
    assert job_id(b"a") == job_id(b"a") != job_id(b"b")
    assert len(job_id(b"a")) == 16


def test_media_types_are_all_different():
    assert len(set(MEDIA_TYPES.values())) == len(MEDIA_TYPES) == 9
