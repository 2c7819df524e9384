#pragma once

namespace CLI {
class App;
}

namespace drover {

/// Each adds its sub-command with flags and help; parsing the command line runs it.
void add_bench_command(CLI::App& app);
/// `drover bench ops`; returns it.
CLI::App* add_bench_ops_command(CLI::App& bench);
/// `drover bench gmm`; returns it.
CLI::App* add_bench_gmm_command(CLI::App& bench);
void add_tokenize_command(CLI::App& app);
void add_generate_command(CLI::App& app);
void add_eval_command(CLI::App& app);
void add_convert_command(CLI::App& app);
/// Of the Hugging Face Hub: downloads, the user's token, the cache.
void add_fetch_command(CLI::App& app);
void add_login_command(CLI::App& app);
void add_cache_command(CLI::App& app);
/// Parses its words with the table of arguments (args/), not with CLI11.
void add_run_clm_command(CLI::App& app);
/// The same with the table of run_llama_nxd.py's arguments.
void add_run_llama_nxd_command(CLI::App& app);
/// The same with the table of the arguments of TRL's sft.
void add_sft_command(CLI::App& app);
/// `drover launch`, and the internal commands it uses to start itself.
void add_launch_command(CLI::App& app);
void add_precompile_command(CLI::App& app);

}  // namespace drover
