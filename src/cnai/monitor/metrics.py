"""The metrics that Prometheus gets, by name, with their help.

Labels are few: the run, the rank, the state; the rest belongs into the run folder.
"""

from __future__ import annotations

METRICS: dict[str, str] = {
    "cnai_train_loss": "Loss of the last step in nats.",
    "cnai_train_validation_loss": "Loss of the last measurement on validation sequences, in nats.",
    "cnai_train_noise_scale_sequences": "Gradient noise scale: batch at which noise equals signal.",
    "cnai_train_gradient_norm": "L2 norm of the whole gradient before clipping.",
    "cnai_train_learning_rate": "Learning rate of the last step.",
    "cnai_train_update_ratio": "Norm of the last measured update over that of the weights.",
    "cnai_train_step": "Last step done.",
    "cnai_train_target_steps": "Steps that the run is to do.",
    "cnai_train_steps_total": "Steps done, repeated ones included.",
    "cnai_train_tokens_total": "Tokens of the steps done, repeated ones included.",
    "cnai_train_tokens_per_second": "Tokens a second, median of the last 20 steps.",
    "cnai_train_step_duration_seconds": "Time of a step.",
    "cnai_train_data_wait_seconds_total": "Time spent waiting for data, by rank.",
    "cnai_train_compute_seconds_total": "Time spent computing, without any wait, by rank.",
    "cnai_train_peer_wait_seconds_total": "Time spent waiting for other ranks, by rank.",
    "cnai_train_rows": "Sequences of the last step, by rank.",
    "cnai_train_moves_total": "Moves of work between ranks, by what moved: rows or layers.",
    "cnai_train_last_step_timestamp_seconds": "Time of the last sign of life, by rank.",
    "cnai_train_attempts_total": "Times that the ranks were started.",
    "cnai_train_run_state": "1 for the state in which the run is, 0 for the others.",
    "cnai_train_findings": "Findings of the detectors among the newest 200, by detector.",
    "cnai_train_spent_seconds": "Time of the run by what it was spent on; the parts add up.",
    "cnai_train_goodput_ratio": "Time spent on useful steps over all time of the run.",
    "cnai_checkpoint_last_step": "Step of the last whole checkpoint.",
    "cnai_checkpoint_last_success_timestamp_seconds": "Time of the last whole checkpoint.",
    "cnai_rank_lost_total": "Ranks lost, over all attempts.",
    "cnai_serve_requests_total": "Requests that ended, by outcome.",
    "cnai_serve_prompt_tokens_total": "Tokens of prompts.",
    "cnai_serve_generated_tokens_total": "Tokens generated.",
    "cnai_serve_queue_depth": "Requests that wait.",
    "cnai_serve_queue_limit": "Requests that may wait.",
    "cnai_serve_active": "Requests that generate.",
    "cnai_serve_active_limit": "Requests that may generate at once.",
    "cnai_serve_latency_seconds": "Time from arrival to the end of a whole answer.",
    "cnai_serve_first_token_seconds": "Time from arrival to the first token.",
    "cnai_serve_queue_seconds": "Time from arrival to the start of work.",
}
