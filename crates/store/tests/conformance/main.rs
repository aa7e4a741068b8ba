//! What a store must do, checked alike on SQLite and PostgreSQL: one test a behaviour and store.
//!
//! PostgreSQL's tests need `TOLLGATE_TEST_POSTGRES`, the URL of a server on which they may create databases.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "tests, which measure with the machine's clocks"
)]

mod alerts;
mod attempts;
mod batches;
mod calendars;
mod chains;
mod claimed;
mod corrupt;
mod done;
mod emit;
mod ended;
mod failures;
mod faults;
#[path = "../../../core/tests/handle_scenarios/fuzz.rs"]
mod fuzz;
mod handle;
#[path = "../../../core/tests/handle_world/mod.rs"]
#[expect(dead_code, reason = "what only other tests need")]
mod handle_world;
mod history;
mod inbox;
mod items;
mod keys;
mod layout;
mod listing;
mod minutes;
mod moved_rows;
mod moves;
mod neighbours;
mod open;
mod outbox;
mod place;
mod plan;
mod plans;
mod prune;
#[path = "../../../core/tests/handle_simulation/random.rs"]
mod random;
mod replay;
mod requests;
mod results;
mod revisions;
mod samples;
mod seal;
mod shard;
mod trees;
mod unstarted;

/// Makes a test of each behaviour for each store.
macro_rules! conformance {
    ($($module:ident: $($name:ident)+;)+) => {
        mod sqlite {
            $(mod $module { $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    let place = crate::place::Place::sqlite();
                    crate::$module::$name(&place).await;
                    place.remove().await;
                }
            )+ })+
        }
        mod postgres {
            $(mod $module { $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    let place = crate::place::Place::postgres().await;
                    crate::$module::$name(&place).await;
                    place.remove().await;
                }
            )+ })+
        }
    };
}

conformance! {
    open: identity_is_made_once_and_stays several_may_open_at_once_or_are_told newer_schema_is_refused
        newer_schema_that_this_version_can_live_with_is_taken
        modified_identity_is_named the_secret_may_be_stored_in_another_form sixty_four_shards_have_no_owner
        every_table_is_strict pages_are_small_and_others_are_taken ping_answers closed_store_is_unreachable;
    plan: schedule_is_read_as_written items_go_with_their_generation taken_name_conflicts stale_etag_conflicts_and_names_both
        missing_schedule_is_not_found missing_policy_is_not_found policy_in_use_cannot_go
        policy_goes policy_is_replaced all_or_nothing children_are_replaced_in_order registry_counts_children
        delete_and_create_again_in_one_transaction several_by_id_leave_out_the_missing list_pages_in_id_order
        list_filters_hold_together policies_are_listed_and_filtered namespaces_are_listed audit_is_newest_first_by_page
        pruning_is_noted_once deleting_keeps_runs ten_thousand_schedules concurrent_writers_keep_the_registry
        corrupt_schedule_is_named text_survives;
    outbox: notices_wait_in_their_order_until_they_are_delivered a_corrupt_notice_is_passed_over
        policies_are_told_as_schedules_are;
    batches: batches_round_trip plain_commit_writes_runs_and_ends plain_commit_is_fenced commit_of_runs_alone_is_fenced
        plain_commit_of_a_run_that_is_not_there_writes_nothing
        plain_commits_of_many_shards_at_once_stand_or_fall_alone
        new_rows_of_many_shards_at_once_stand_or_fall_alone plain_commit_of_many_rows_writes_each_column
        events_are_listed_from_batches_and_rows an_event_that_moves_is_always_listed
        a_list_reads_no_further_than_it_must corrupt_batches_are_named_and_count;
    corrupt: corrupt_batch_is_what_is_nowhere_else corrupt_batch_is_repaired_by_its_next_change
        batch_without_a_key_holds_its_run_back undecodable_rows_count;
    replay: what_a_machine_commits_is_what_is_loaded;
    emit: announced_window_gets_its_tasks_later announcement_does_not_go_back first_windows_leave_no_gap
        frontier_starts_empty_and_moves window_opens_once window_without_tasks_is_complete tasks_are_claimed_once
        lease_of_a_task_runs_out tasks_are_given_back checkpoint_is_kept_while_the_lease_is
        window_is_complete_with_its_last_task
        concurrent_completion_completes_the_window window_behind_an_open_one_does_not_count
        scan_reads_exactly_the_slots scan_goes_on_after_a_checkpoint scan_reads_several_tasks scan_brings_the_schedule
        scan_leaves_a_corrupt_schedule_out registry_lists_eligible_intervals_and_shots emit_is_idempotent
        launches_with_runs_are_found skips_are_recorded_once_and_forgotten missed_triggers_are_counted_by_schedule;
    requests: a_request_is_answered_once a_request_goes_on_from_where_it_was
        what_cannot_be_handed_over_leaves_no_request of_many_at_once_one_answers_a_request old_requests_go;
    results: results_are_written_with_their_ends_and_once results_go_with_their_runs
        results_are_replaced_where_nobody_was_faster;
    attempts: attempts_are_kept_as_many_as_may_be attempts_go_when_they_are_old;
    revisions: what_was_decided_on_another_revision_changes_nothing a_late_revision_does_not_revive_what_was_deleted
        a_change_that_fails_leaves_no_revision one_stale_revision_of_several_writes_none
        of_many_at_once_one_follows_what_all_have_read old_revisions_go;
    done: schedules_that_may_be_done_are_found_page_by_page runs_that_are_left_are_counted;
    claimed: who_has_lost_a_task_hands_nothing_over what_has_a_run_in_another_shard_is_left_out;
    seal: stored_rows_come_in_pages_and_in_order items_of_schedules_are_replaced_with_the_rest
        secrets_are_replaced_where_nobody_was_faster
        schedules_are_counted_as_far_as_asked events_that_have_not_started_are_counted;
    layout: shards_are_added_and_all_learn_of_it the_number_is_changed_once
        shards_are_added_in_the_middle_of_other_writes new_shards_are_paused_as_the_others_are
        what_lives_in_each_shard_is_counted the_last_look_waits_for_who_adds_shards;
    moves: a_tree_moves_with_all_that_stands_under_it what_has_moved_may_come_back what_is_on_its_way_keeps_its_policy
        only_the_owner_moves_what_is_there what_comes_late_is_handed_on_once schedules_go_alone_where_they_are_alone
        what_was_read_before_a_move_is_not_written what_a_shard_knows_of_a_schedule_stays
        submissions_are_found_where_their_runs_are what_would_take_long_goes_in_parts_or_stays
        a_run_that_is_there_already_holds_back_its_own_only a_handover_gives_to_a_few_shards
        where_things_have_gone_is_forgotten_with_the_history;
    moved_rows: every_row_of_a_run_moves what_is_to_follow_an_end_stays;
    shard: takeover_race_has_one_winner takeover_of_a_row_that_moved_fails give_up_fences_the_former_owner
        wrong_lease_is_fenced lease_from_oneself_fences_the_one_before
        failed_commit_writes_nothing commits_of_many_shards_at_once_stand_or_fall_alone members_come_and_go;
    handle: runs_round_trip run_changes_round_trip existing_run_stays withdrawn_run_may_come_again
        a_run_may_be_new_and_change_in_one_commit change_does_not_bring_a_withdrawn_run_back
        tokens_round_trip tokens_go_by_whole_key
        schedules_and_policies_round_trip pause_round_trips specs_come_with_runs_and_not_with_schedules
        emitted_runs_come_by_launch shards_with_news_are_those_with_something_to_read
        unreadable_runs_are_set_aside_and_found_again corrupt_run_is_left_out
        corrupt_emitted_run_is_left_out corrupt_policy_is_left_out corrupt_rows_are_named_and_count
        shards_do_not_see_each_other dropped_commit_is_whole;
    trees: a_parent_stays_as_long_as_it_is_one a_rehearsal_tells_of_each_and_writes_nothing
        another_parent_waits_for_every_token;
    unstarted: unstarted_round_trip a_sorted_run_is_unreadable_without_its_column
        a_run_whose_unstarted_events_cannot_be_read_does_not_go_on batches_may_lie_between_each_others_events;
    items: items_are_read_page_by_page of_two_who_add_one_does what_belongs_to_no_run_goes
        texts_are_replaced_where_nobody_was_faster;
    listing: runs_that_wait_for_items_are_found_fairly a_list_that_is_fetched_anew_takes_the_place_of_what_was_left
        who_has_lost_a_shard_writes_nothing_of_its_lists a_list_that_is_given_up_ends_its_run_and_is_recorded;
    chains: what_follows_is_there_and_stays chains_are_walked_upwards an_end_waits_until_it_has_been_followed
        what_follows_is_launched_once the_end_of_a_chain_is_told_once;
    inbox: inbox_is_idempotent inbox_done_deletes_exactly forwards_are_posted_before
        forwards_survive_a_fenced_commit unreadable_messages_are_passed_over
        what_is_posted_under_a_lease_is_there_for_the_next_owner nothing_is_posted_where_a_run_has_left
        corrupt_message_is_left_out all_messages_round_trip;
    failures: failed_runs_are_listed_latest_end_first closed_runs_are_left_out_until_they_end_again
        rows_that_failed_are_found_by_outcome;
    ended: events_that_succeed_share_rows each_event_is_found_among_overlapping_batches people_see_a_line_an_event
        a_corrupt_batch_is_named;
    history: history_round_trips_in_order history_starts_with_the_covering_range history_filters_by_outcome
        dead_events_are_found_and_leave history_insert_is_idempotent tokens_are_paged runs_are_listed_from_either_end
        runs_are_filtered runs_are_found_by_the_beginning_of_their_ids runs_of_a_policy_are_found runs_that_ended_badly_are_found
        runs_that_ended_come_latest_end_first the_latest_runs_of_a_schedule_are_found skipped_are_paged;
    keys: keys_are_read_as_written a_name_has_so_many_live_keys a_revoked_key_stays_revoked a_corrupt_key_is_no_key
        keys_are_kept_beside_an_open_store;
    alerts: an_alert_is_read_as_written_and_goes alerts_are_listed_and_filtered what_is_remembered_is_written_by_one
        what_cannot_be_read_of_an_alert_begins_anew expired_events_are_failures
        an_alert_is_replaced_where_nobody_was_faster schedules_with_labels_are_found
        finished_runs_come_in_the_order_of_their_ends;
    calendars: a_calendar_is_read_as_written_listed_and_goes
        a_schedule_is_written_with_the_dates_of_its_calendars_or_not_at_all
        dates_change_with_all_schedules_or_not_at_all a_link_counts_for_the_generation_that_it_names
        whoever_is_first_schedules_have_the_dates_of_their_calendar a_change_of_many_schedules_is_one_transaction;
    minutes: what_is_written_again_counts_once owners_of_one_minute_are_added_up what_a_policy_holds_counts_once_where_it_moves
        minutes_are_found_by_whose_they_are
        minutes_become_hours_and_nothing_is_lost several_sweeps_at_once_count_once old_minutes_go
        what_fell_due_is_known_by_shard;
    neighbours: look_ups_keep_no_role_waiting;
    prune: ended_keys_go old_history_goes history_of_many_events_goes_with_its_run old_runs_go_when_finished
        old_skips_and_audit_go
        windows_keep_the_frontier
        specs_go_when_nothing_needs_them pruning_goes_on_beyond_a_batch days_to_come_have_room;
}
