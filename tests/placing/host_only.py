"""Tests that `tests.placing.on_gpu` cannot run on a GPU, or not to their end, and why."""

from __future__ import annotations

COUNTS = "counts kernels, bytes or tasks as the processor has them"
"""They run, and the values are compared; only what the test itself asserts may fail."""

WARNINGS = "is about floating-point errors: a GPU reports none"
CHANGES = (
    "a function changes its chunk in place, and gets a copy where the chunk is in device memory"
)
MEMORY = "is about host memory: buffers, views of NumPy's, how much is in use"
PROCESSOR = "is about machine code, compilation or tiles of the processor"
CUPY = "CuPy computes it, not a kernel, in its own order or not at all"

LEFT_OUT: dict[str, str] = {
    "graph/test_floating_point_errors.py": WARNINGS,
    "graph/test_lasting.py::test_errors_that_are_no_longer_ignored_are_told": WARNINGS,
    "graph/test_lasting.py::test_a_plan_of_ignored_errors_is_for_one_run": WARNINGS,
    "graph/test_cut_first.py::test_a_piece_that_is_changed_is_the_piece_of_dask": CHANGES,
    "graph/test_user_functions.py::test_calls_are_not_moved_around_one_that_changes": CHANGES,
    "graph/test_user_functions.py::test_a_change_of_a_view_is_seen_by_who_reads": CHANGES,
    "graph/test_untouched.py::test_floating_point_errors_are_warned_of": WARNINGS,
    "graph/test_peak_memory.py": MEMORY,
    "record/test_windows.py::test_windows_share_the_memory_of_a_kernel_s_result": MEMORY,
    "graph/test_tiled.py": PROCESSOR,
    "graph/test_tiers.py": PROCESSOR,
    "plan/test_precision.py": PROCESSOR,
    "plan/test_tiles.py": PROCESSOR,
    "record/test_scans.py": CUPY,
    "record/test_segments.py::test_what_is_no_segmented_reduction_is_numpy_s": CUPY,
    "record/test_segments.py::test_reduceat_raises_what_numpy_raises": CUPY,
}
"""Files and tests, by the beginning of their names, that are not run."""

COUNTED: tuple[str, ...] = (
    "graph/test_absorbing.py::test_means_of_groups_are_read_where_they_are",
    "graph/test_fusion_counts.py",
    "graph/test_merging.py",
    "graph/test_partials.py::test_chunks_with_other_arrays_share_a_program",
    "record/test_segments.py::test_labels_along_contiguous_elements",
    "record/test_windows.py::test_a_reduction_of_windows_is_one_kernel",
)
"""Those of which only the counts are the processor's."""
