"""An audit: every symptom of neighbouring tools that the probe promises to avoid has tests that name its number."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
VIEW, FAULTS = "probing/test_model_view.py", "probing/test_model_faults.py"
ALIGNMENT, LDA, UNITS = "probing/test_alignment.py", "topics/test_lda.py", "text/test_text_units.py"
SINKS, COHERENCE, TOPICS = "probing/test_sinks.py", "topics/test_coherence.py", "cli/test_cli_topics.py"
FAMILIES = "probing/test_family_symptoms.py"
RESULT, LOADING, CLI = "probing/test_probe_symptoms.py", "probing/test_loading.py", "cli/test_cli_probe.py"

SYMPTOMS: dict[int, list[tuple[str, str]]] = {
    1: [
        (VIEW, "test_symptoms_1_and_4_the_kernel_makes_no_difference_and_is_recorded"),
        (VIEW, "test_symptoms_1_and_7_the_model_is_left_as_it_was_found"),
        (RESULT, "test_symptom_1_the_kernel_a_model_was_loaded_with_changes_no_number"),
        (FAMILIES, "test_symptom_1_the_kernel_makes_no_difference_to_any_family"),
    ],
    2: [
        (FAULTS, "test_symptoms_2_3_and_7_wrong_weights_name_layer_and_model"),
        (FAMILIES, "test_symptom_2_a_lost_causal_mask_is_noticed_in_every_causal_family"),
    ],
    3: [
        (FAULTS, "test_symptoms_2_3_and_7_wrong_weights_name_layer_and_model"),
        (FAMILIES, "test_symptom_3_wrong_shapes_and_sums_name_layer_and_model_in_every_family"),
    ],
    4: [(RESULT, "test_symptom_4_a_result_names_kernel_precision_versions_and_weights")],
    5: [(FAMILIES, "test_symptom_5_the_attention_of_a_layer_is_gone_before_the_next")],
    6: [(FAMILIES, "test_symptom_6_layers_and_heads_that_are_not_wanted_cost_no_work")],
    7: [
        (FAULTS, "test_symptoms_2_3_and_7_wrong_weights_name_layer_and_model"),
        (VIEW, "test_symptoms_1_and_7_the_model_is_left_as_it_was_found"),
    ],
    8: [(VIEW, "test_symptom_8_neither_batch_nor_padding_side_matters")],
    9: [(SINKS, "test_symptom_9_a_sink_is_seen_in_its_head_and_excluded")],
    10: [
        (ALIGNMENT, "test_symptom_10_specials_and_punctuation_are_never_words"),
        (VIEW, "test_symptom_10_encoder_decoder_and_cross_attention_are_kept_apart"),
    ],
    11: [(FAULTS, "test_symptom_11_outputs_of_generate_are_not_a_model")],
    12: [
        (VIEW, "test_symptom_12_albert_has_a_row_for_every_call_of_its_one_module"),
        (RESULT, "test_symptom_12_albert_has_rows_for_every_call_of_its_one_layer_module"),
    ],
    13: [
        (FAMILIES, "test_symptom_13_query_heads_are_counted_and_their_group_is_shown"),
        ("probing/test_conformance.py", "test_a_family_conforms"),
    ],
    14: [(ALIGNMENT, "test_symptom_14_leading_spaces_in_the_offsets_of_byte_level_tokens")],
    15: [
        (ALIGNMENT, "test_symptom_15_accents_and_emoji_in_front_do_not_move_the_words"),
        (ALIGNMENT, "test_symptom_15_a_token_that_spells_something_else_is_dropped_and_counted"),
    ],
    16: [(ALIGNMENT, "test_symptom_16_of_two_rows_for_a_word_the_spaced_one_is_taken_and_named")],
    17: [(ALIGNMENT, "test_symptom_17_words_go_through_the_tokenizers_normaliser_and_keep_their_own_name")],
    18: [(FAMILIES, "test_symptom_18_words_of_pieces_are_counted_and_merged_in_every_family")],
    19: [(LDA, "test_symptom_19_every_known_word_is_served_by_the_topic_word_matrix")],
    20: [
        (LDA, "test_symptom_20_phi_is_float64_finite_and_distinct_at_120_topics"),
        (LDA, "test_symptom_20_nan_and_duplicate_topics_are_errors"),
    ],
    21: [
        (COHERENCE, "test_symptom_21_what_is_undefined_is_counted_and_explained"),
        (TOPICS, "test_symptom_21_coherence_is_shown_for_each_topic_with_its_nan_count_and_reason"),
    ],
    22: [(LDA, "test_symptom_22_one_seed_gives_identical_topics_and_says_where")],
    23: [
        (LDA, "test_symptom_23_what_can_be_read_once_is_refused_with_advice"),
        ("text/test_text.py", "test_symptom_23_a_generator_is_refused_with_advice"),
    ],
    24: [
        (UNITS, "test_symptom_24_ids_survive_dropped_documents"),
        (RESULT, "test_symptom_24_the_document_table_keeps_the_ids_of_what_was_read"),
    ],
    25: [
        ("topics/test_topics_file.py", "test_symptom_25_pickled_content_is_never_read"),
        (RESULT, "test_symptom_25_the_saved_folder_has_no_pickle_and_says_its_schema"),
    ],
    26: [
        ("text/test_words.py", "test_symptom_26_text_without_spaces_is_warned_about"),
        (RESULT, "test_symptom_26_a_word_splitter_makes_chinese_measurable"),
        (RESULT, "test_symptom_26_the_result_warns_of_words_that_spaces_do_not_separate"),
    ],
    27: [
        (LOADING, "test_symptom_27_a_folder_is_loaded_without_network"),
        (LOADING, "test_symptom_27_hf_hub_offline_is_respected_and_an_unknown_name_is_a_clear_error"),
        (CLI, "test_symptom_27_a_folder_never_touches_the_network"),
        (CLI, "test_symptom_27_a_hub_name_found_in_the_cache_gives_the_numbers_of_the_folder"),
    ],
    28: [
        ("monitoring/test_monitor.py", "test_symptom_28_training_is_the_same_with_and_without"),
        ("monitoring/test_monitor.py", "test_symptoms_28_and_30_everything_is_put_back"),
        ("monitoring/test_distributed.py", "test_symptom_28_rank_0_measures_and_nobody_waits"),
    ],
    29: [
        (
            "probing/test_probe_interfaces.py",
            "test_symptom_29_a_notebook_shows_a_table_and_a_picture_without_a_script",
        )
    ],
    30: [
        ("monitoring/test_monitor.py", "test_symptoms_28_and_30_everything_is_put_back"),
        ("monitoring/test_monitor.py", "test_symptom_30_a_measurement_keeps_no_graph_and_one_layer_at_a_time"),
    ],
}


def functions(path: Path) -> dict[str, ast.FunctionDef]:
    """The test functions of a module by name."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test")}


def names(number: int, test: ast.FunctionDef) -> bool:
    """Whether a test's name or docstring gives the symptom's number."""
    found = re.match(r"test_symptoms?_([\d_and]+)_", test.name)
    numbers = re.findall(r"\d+", found.group(1)) if found else []
    numbers += re.findall(r"\(symptom (\d+)\)", ast.get_docstring(test) or "")
    return str(number) in numbers


@pytest.mark.parametrize("number", SYMPTOMS)
def test_every_symptom_has_its_tests(number: int) -> None:
    for module, name in SYMPTOMS[number]:
        test = functions(TESTS / module).get(name)
        assert test is not None, f"{module} has no {name}"
        assert names(number, test), f"{name} does not name symptom {number}"
        skips = [ast.unparse(mark) for mark in test.decorator_list if re.search("skip|xfail|long", ast.unparse(mark))]
        assert skips == [], f"{name} does not always run"


def test_the_audit_covers_what_it_should() -> None:
    assert sorted(SYMPTOMS) == [*range(1, 31)]


def test_the_number_is_read_as_a_number() -> None:
    (test,) = ast.parse("def test_symptoms_2_and_17_x(): '''Also (symptom 4).'''").body
    assert isinstance(test, ast.FunctionDef)
    assert [number for number in range(1, 28) if names(number, test)] == [2, 4, 17]
