#include "run/mixture_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/number_text.h"
#include "data/sampling/mixture.h"
#include "run/settings/data_settings.h"

namespace drover {

std::string mixture_table(const DataSettings& settings, const std::vector<std::int64_t>& rows,
                          std::int64_t examples) {
    const std::vector<double> weights = settings.dataset_weights.empty()
                                            ? std::vector<double>(rows.begin(), rows.end())
                                            : settings.dataset_weights;
    const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
    const std::vector<std::int64_t> counts = MixtureDealing(weights).counts(examples);
    std::size_t width = 7;
    for (const NamedDataset& dataset : settings.datasets) width = std::max(width, dataset.name.size());
    const auto line = [&](std::string_view name, std::string_view size, std::string_view weight,
                          std::string_view share, std::string_view count, std::string_view passes) {
        std::string text = fmt::format("\n  {:<{}}", name, width);
        if (!rows.empty()) text += fmt::format("{:>16}", size);
        if (!settings.dataset_weights.empty()) text += fmt::format("{:>12}", weight);
        text += fmt::format("{:>10}{:>16}", share, count);
        return rows.empty() ? text : text + fmt::format("{:>10}", passes);
    };
    std::string text = settings.dataset_weights.empty() ? "Every epoch passes each of the datasets once:"
                                                        : "The datasets are mixed by weight:";
    text += line("dataset", "rows", "weight", "share", "examples", "passes");
    for (std::size_t i = 0; i < settings.datasets.size(); ++i)
        text +=
            line(settings.datasets[i].name, rows.empty() ? "" : with_thousands(rows[i]),
                 fmt::format("{}", weights[i]), fmt::format("{:.2f} %", 100 * weights[i] / all),
                 with_thousands(counts[i]),
                 rows.empty()
                     ? ""
                     : fmt::format("{:.2f}", static_cast<double>(counts[i]) / static_cast<double>(rows[i])));
    return text;
}

}  // namespace drover
