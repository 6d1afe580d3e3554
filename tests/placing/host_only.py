"""Tests that `tests.placing.on_gpu` cannot run on a GPU, or not to their end, and why."""

from __future__ import annotations

COUNTS = "counts kernels, bytes or tasks as the processor has them"
"""They run, and the values are compared; only what the test itself asserts may fail."""

WARNINGS = "is about floating-point errors: a GPU reports none"
CHANGES = (
    "a function changes its chunk in place, and gets a copy where the chunk is in device memory"
)
DECIDES = "functions that decide by a chunk in device memory run as they are"
MEMORY = "is about host memory: buffers, views of NumPy's, how much is in use"
PROCESSOR = "is about machine code, compilation or tiles of the processor"
CUPY = "CuPy computes it, not a kernel, in its own order or not at all"
ERRORS = (
    "CuPy's call raises another error, or none: what runs tasks asks NumPy then, not a recorder"
)
ROUNDING = "adds float16 numbers in NumPy's order: a GPU's is another, and nearer to the exact sum"
CORES = "is about the processor's threads: one task of a GPU runs at a time here"

LEFT_OUT: dict[str, str] = {
    "graph/test_assembling.py": MEMORY,
    "graph/test_floating_point_errors.py": WARNINGS,
    "graph/test_fusion_counts.py::test_products_of_matrices_are_added_up": CUPY,
    "graph/test_inlined.py": PROCESSOR,
    "graph/test_lasting.py::test_errors_that_are_no_longer_ignored_are_told": WARNINGS,
    "graph/test_lasting.py::test_a_plan_of_ignored_errors_is_for_one_run": WARNINGS,
    "graph/test_order_of_results.py": MEMORY,
    "graph/test_branches.py::test_plans_that_were_given_up_do_not_come_back": DECIDES,
    "graph/test_cut_first.py::test_a_piece_that_is_changed_is_the_piece_of_dask": CHANGES,
    "graph/test_user_functions.py::test_calls_are_not_moved_around_one_that_changes": CHANGES,
    "graph/test_user_functions.py::test_a_change_of_a_view_is_seen_by_who_reads": CHANGES,
    "graph/test_untouched.py::test_floating_point_errors_are_warned_of": WARNINGS,
    "graph/test_peak_memory.py": MEMORY,
    "record/test_windows.py::test_windows_share_the_memory_of_a_kernel_s_result": MEMORY,
    "graph/test_apart.py::test_why_calls_without_kernels_do_not_run_on_tiles": PROCESSOR,
    "graph/test_shown.py::test_before_kernels_are_compiled": PROCESSOR,
    "graph/test_unfused.py": PROCESSOR,
    "graph/test_tiers.py": PROCESSOR,
    "models/test_torch_cores.py::TestThreads": CORES,
    "plan/test_computed_once.py::test_errors_are_noted": WARNINGS,
    "plan/test_computed_once.py::test_floating_point_errors_are_noted": WARNINGS,
    "plan/test_float16.py::test_casts_report_what_float16_cannot_hold": WARNINGS,
    "plan/test_float16.py::test_chunks_are_fused": ROUNDING,
    "plan/test_float16.py::test_errors_that_numpy_reports_are_found": WARNINGS,
    "plan/test_float16.py::test_every_float16_becomes_a_wider_number": PROCESSOR,
    "plan/test_float16.py::test_numbers_become_the_nearest_float16": PROCESSOR,
    "plan/test_float16.py::test_sums_that_overflow_are_reported": WARNINGS,
    "plan/test_float16.py::test_warnings_are_numpy_s": WARNINGS,
    "plan/test_float16.py::test_what_goes_by_its_bits_is_left_to_numpy": CUPY,
    "plan/test_plan_then_run.py::test_rows_and_columns_share_tiles": PROCESSOR,
    "plan/test_plan_then_run.py::test_the_first_chunk_takes_the_joints": PROCESSOR,
    "plan/test_precision.py": PROCESSOR,
    "plan/test_tiles.py": PROCESSOR,
    "plan/test_unjoined.py::test_parts_of_other_kinds_are_joined[shape]": CUPY,
    "plan/test_unjoined.py::test_parts_of_other_kinds_are_joined[turned]": CUPY,
    "record/test_arguments.py": ERRORS,
    "record/test_complexes.py::test_where_of_scalars": CUPY,
    "record/test_complexes.py::test_errors_that_numpy_reports_are_found": WARNINGS,
    "record/test_complexes.py::test_extremes_are_numpy_s": CUPY,
    "record/test_complexes.py::test_lost_parts_are_warned_of_as_often": WARNINGS,
    "record/test_complexes.py::test_warnings_are_numpy_s": WARNINGS,
    "record/test_gathers.py::test_what_is_empty_is_taken": ERRORS,
    "record/test_joins.py::test_any_arrays": ERRORS,
    "record/test_select.py::test_random_choices": CUPY,
    "record/test_gathers.py::test_places_in_an_array_made_flat": ERRORS,
    "record/test_nanmean.py::test_values_and_dtypes[(2, 0)": ERRORS,
    "record/test_nanmean.py::test_values_and_dtypes[(0, 3)": ERRORS,
    "record/test_rearranging.py::test_what_numpy_refuses_is_refused": ERRORS,
    "record/test_gathers.py::test_what_is_no_row_along_one_axis_is_numpy_s": CUPY,
    "record/test_scans.py": CUPY,
    "record/test_searches.py::test_values_between_any_points": WARNINGS,
    "record/test_searches.py::test_zeros_beside_points": CUPY,
    "record/test_searches.py::test_equal_bins_count_as_numpy_s": CUPY,
    "record/test_searches.py::test_histograms_of": CUPY,
    "record/test_searches.py::test_too_many_numbers_are_searched_by_numpy": CUPY,
    "record/test_searches.py::test_values_on_edges_are_in_numpy_s_bins": CUPY,
    "record/test_searches.py::test_weights_are_added_up_in_numpy_s_order": CUPY,
    "record/test_searches.py::test_what_is_no_kernel_is_numpy_s": CUPY,
    "record/test_selection.py::test_what_is_left_to_numpy": CUPY,
    "record/test_segments.py::test_what_is_no_segmented_reduction_is_numpy_s": CUPY,
    "record/test_segments.py::test_reduceat_raises_what_numpy_raises": CUPY,
}
"""Files and tests, by the beginning of their names, that are not run."""

COUNTED: tuple[str, ...] = (
    "graph/test_absorbing.py::test_means_of_groups_are_read_where_they_are",
    "graph/test_branches.py",
    "graph/test_fusion_counts.py",
    "graph/test_located.py::test_chunks_of_dask_take_their_own_points",
    "graph/test_merging.py",
    "graph/test_other_names.py",
    "graph/test_partials.py::test_chunks_with_other_arrays_share_a_program",
    "graph/test_shown.py::test_no_kernel_is_asked_for",
    "plan/test_unjoined.py",
    "record/test_moments.py",
    "record/test_segments.py::test_labels_along_contiguous_elements",
    "record/test_windows.py::test_a_row_is_computed_twice",
    "record/test_windows.py::test_counts_in_windows",
    "record/test_windows.py::test_sums_of_windows_have_nothing",
    "record/test_windows.py::test_windows_along_contiguous",
    "record/test_windows.py::test_a_reduction_of_windows_is_one_kernel[0-differences]",
    "record/test_windows.py::test_a_reduction_of_windows_is_one_kernel[1-differences]",
)
"""Those of which only the counts are the processor's."""
