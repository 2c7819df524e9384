#include "data/conversation/sft_options.h"

#include <fmt/format.h>

#include "core/error.h"

namespace drover {

std::string_view document_packing_name(DocumentPacking packing) {
    switch (packing) {
        case DocumentPacking::none:
            return "none";
        case DocumentPacking::bfd:
            return "bfd";
        case DocumentPacking::bfd_split:
            return "bfd_split";
        case DocumentPacking::wrapped:
            return "wrapped";
    }
    bug("an unknown packing of documents");
}

DocumentPacking document_packing_from_name(std::string_view name, std::string_view where) {
    if (name == "bfd-requeue") return DocumentPacking::bfd_split;
    for (const DocumentPacking packing :
         {DocumentPacking::none, DocumentPacking::bfd, DocumentPacking::bfd_split, DocumentPacking::wrapped})
        if (name == document_packing_name(packing)) return packing;
    throw UsageError(fmt::format("{} is \"{}\".", where, name), "Use bfd, bfd_split or wrapped.");
}

}  // namespace drover
