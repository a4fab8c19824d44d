"""The request of each verb."""

from __future__ import annotations

from sincere.settings.bench_request import BenchRequest
from sincere.settings.evaluation_requests import EvaluateRequest, ReportRequest, TransferRequest
from sincere.settings.listing_requests import CompletionRequest, DatasetsRequest
from sincere.settings.record import Request
from sincere.settings.reproduce_request import ReproduceRequest
from sincere.settings.requests import CompareRequest, TrainRequest
from sincere.settings.search_request import SearchRequest
from sincere.settings.use_requests import EmbedRequest, ExportRequest, LabelsRequest, NearestRequest, PredictRequest

REQUESTS: dict[str, type[Request]] = {
    record.verb: record
    for record in (
        CompareRequest,
        TrainRequest,
        SearchRequest,
        EvaluateRequest,
        TransferRequest,
        ReproduceRequest,
        PredictRequest,
        EmbedRequest,
        NearestRequest,
        LabelsRequest,
        ExportRequest,
        ReportRequest,
        CompletionRequest,
        DatasetsRequest,
        BenchRequest,
    )
}
