"""The catalogue of all analyses, by name."""

from service.analysis import (
    annotations,
    call_stacks,
    collectives,
    comm_overlap,
    compare,
    counters,
    critical_path,
    dataloader,
    gpu_summary,
    idle_breakdown,
    kernel_breakdown,
    kernel_sequences,
    launch_stats,
    memory,
    memory_bandwidth,
    modules,
    operators,
    overview,
    queue_length,
    recommendations,
    step_figures,
    steps,
    temporal_breakdown,
)
from service.analysis.question import Question

QUESTIONS: dict[str, Question] = {
    module.QUESTION.name: module.QUESTION
    for module in (
        temporal_breakdown,
        idle_breakdown,
        comm_overlap,
        kernel_breakdown,
        kernel_sequences,
        launch_stats,
        queue_length,
        memory_bandwidth,
        operators,
        steps,
        gpu_summary,
        counters,
        annotations,
        modules,
        call_stacks,
        memory,
        collectives,
        dataloader,
        recommendations,
        compare,
        step_figures,
        critical_path,
        overview,
    )
}
