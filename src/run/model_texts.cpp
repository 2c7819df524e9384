#include "run/model_texts.h"

#include "core/python_text.h"
#include "model/saved_config.h"

namespace drover {

void write_model_texts(const std::filesystem::path& folder, const ModelConfig& config, DType saved_dtype,
                       const Json& generation, const Tokenizer& tokenizer, const Json& recorded_settings) {
    write_file_atomically(folder / "config.json", config.saved_text(saved_dtype));
    write_file_atomically(folder / "generation_config.json", generation_config_text(generation));
    save_tokenizer(tokenizer, folder);
    Json settings = recorded_settings;
    settings.erase("steal_lock");  // meant for one run only; reusing the file must not steal again
    write_file_atomically(folder / "training_args.json", python_json(settings, 2) + "\n");
}

}  // namespace drover
