#pragma once

namespace drover {

class Command;

/// Each adds its sub-command with flags and help; parsing the command line runs it.
void add_bench_command(const Command& app);
/// `drover bench ops`; returns it.
Command add_bench_ops_command(const Command& bench);
/// `drover bench gmm`; returns it.
Command add_bench_gmm_command(const Command& bench);
void add_tokenize_command(const Command& app);
void add_generate_command(const Command& app);
void add_eval_command(const Command& app);
void add_convert_command(const Command& app);
/// Of the Hugging Face Hub: downloads, the user's token, the cache.
void add_fetch_command(const Command& app);
void add_login_command(const Command& app);
void add_cache_command(const Command& app);
/// What this machine can do.
void add_doctor_command(const Command& app);
/// Parses its words with the table of arguments (args/), not with CLI11.
void add_run_clm_command(const Command& app);
/// The same with the table of run_llama_nxd.py's arguments.
void add_run_llama_nxd_command(const Command& app);
/// The same with the table of the arguments of TRL's sft.
void add_sft_command(const Command& app);
/// `drover launch`, and the internal commands it uses to start itself.
void add_launch_command(const Command& app);
void add_precompile_command(const Command& app);
/// `drover help [COMMAND [TOPIC]]`.
void add_help_command(const Command& app);
/// `drover completion SHELL`, and the internal command that its scripts call.
void add_completion_command(const Command& app);
/// `drover man [COMMAND]`.
void add_man_command(const Command& app);

}  // namespace drover
