//! What trunkline relies on of an API server and its controllers, as one list of cases: the runner of `tests/main.rs`
//! passes them with the embedded cluster, that of `tests/cluster` with a real control plane.

pub(crate) mod claims;
pub(crate) mod constraints;
pub(crate) mod daemonsets;
pub(crate) mod deletion;
pub(crate) mod discovery;
pub(crate) mod lists;
pub(crate) mod objects;
pub(crate) mod patches;
pub(crate) mod plane;
pub(crate) mod watches;

/// Hands every case to a macro that registers it; one that is missing here is dead code to the compiler.
macro_rules! cases {
    ($register:ident) => {
        $register! {
            claims {
                defaults_are_filled_in_and_unknown_fields_dropped
                a_spec_that_breaks_the_schema_is_invalid_with_every_field
                lengths_counts_and_patterns_are_invalid_by_name
                status_and_spec_are_written_apart_and_only_the_spec_moves_the_generation
                an_annotation_moves_no_generation_and_names_its_writer
                without_its_definition_a_custom_resource_is_not_served
            }
            constraints {
                a_version_has_no_letters_that_an_image_cannot_have
                a_service_that_cannot_be_tried_is_refused_with_the_field
                rules_are_not_checked_on_what_breaks_the_schema
                an_older_leader_cannot_write_a_status
            }
            daemonsets {
                agents_look_as_on_a_real_cluster
                a_template_change_under_on_delete_touches_no_pod
                a_deleted_pod_comes_back_on_the_new_template
                a_template_put_back_byte_equal_takes_its_old_revision_and_its_pods_with_it
                a_strategy_given_back_too_early_takes_the_whole_cluster
                a_strategy_given_back_when_all_are_updated_touches_nobody
                without_history_the_old_revision_goes_with_its_last_pod
                an_agent_that_crash_loops_says_so_in_its_container
                a_patch_is_observed_only_once_the_controller_has_seen_it
            }
            deletion {
                a_deletion_with_another_uid_or_version_is_a_conflict_and_deletes_nothing
                an_object_with_a_finalizer_stays_until_it_is_taken_off
                dependents_go_after_their_owner_or_are_orphaned
                a_dependent_of_two_owners_stays_with_the_last_one
                a_dependent_of_nobody_is_collected
                a_pod_goes_with_its_grace_and_what_it_owns_after_it
                a_pod_that_is_on_no_node_goes_at_once
            }
            discovery {
                the_client_library_discovers_our_kinds
                a_table_has_the_printer_columns_of_the_definition
                open_api_tells_that_writes_are_validated_and_which_fields_our_kinds_have
                an_answer_that_the_client_cannot_read_is_not_sent
            }
            lists {
                selectors_narrow_a_list_in_order_of_name
                pages_are_of_one_state_whatever_is_written_between
                a_list_is_as_it_was_at_an_exact_version_and_none_of_the_future
            }
            objects {
                a_created_object_has_uid_version_and_time
                a_name_can_be_taken_once_and_must_be_one
                a_generated_name_is_completed_differently_each_time
                what_is_not_there_is_named
                an_old_version_is_a_conflict_and_changes_nothing
                a_write_that_changes_nothing_keeps_the_version
                an_update_without_a_version_is_taken_for_a_config_map_and_not_for_a_custom_resource
                a_dry_run_answers_as_the_write_would_and_stores_nothing
                a_body_that_is_no_object_of_the_kind_is_refused
                a_name_is_taken_until_the_object_is_gone
                a_lease_changes_hands_only_at_the_version_that_was_seen
                events_are_found_by_what_they_are_about
                a_daemon_set_that_cannot_run_is_invalid_with_every_cause
                a_config_map_beyond_a_mebibyte_is_invalid_and_larger_bodies_are_not_stored_or_read
            }
            patches {
                a_json_patch_applies_when_its_tests_hold
                a_merge_patch_with_an_old_version_is_a_conflict
                a_strategic_patch_annotates_a_node_and_not_a_custom_resource
                a_patch_that_cannot_be_read_or_has_no_object_is_refused
            }
            watches {
                a_watch_tells_every_change_after_its_version_once_and_in_order
                a_watch_without_a_version_starts_with_what_is_there
                an_object_comes_and_goes_with_the_selector_of_a_watch
                bookmarks_move_the_version_of_a_quiet_watch
                a_watch_ends_by_itself_after_its_time
                a_watch_from_a_compacted_version_is_told_so
                a_new_watch_goes_on_where_the_last_one_was_left
                the_client_library_follows_across_cuts_and_compaction
            }
        }
    };
}
pub(crate) use cases;
