#pragma once

#include <cstdint>

/// The interface of drover_arrow.so. It is the only code that is linked with Arrow C++; the program loads it
/// when a parquet or Arrow file is first opened. It uses plain C types only, so that another compiler may
/// have built it. Functions that can fail put a sentence without its full stop into `message` (of
/// drover_arrow_message_size bytes) and return a null pointer or −1.
extern "C" {

enum { drover_arrow_version = 3, drover_arrow_message_size = 1024 };

struct DroverArrowFile;
struct DroverArrowWriter;

/// Receives one row; `size` is −1 for null.
typedef void (*DroverArrowTextSink)(void* context, const char* text, std::int64_t size);

/// One row of token ids. Pointers are null if the file has no such column; `labels` and `mask` also have
/// `count` elements. Valid until the next call.
struct DroverArrowTokens {
    std::int64_t count;
    const std::int64_t* ids;
    const std::int64_t* labels;
    const std::int64_t* mask;
};

struct DroverArrowModule {
    /// Opens a parquet file, or an Arrow IPC file or stream.
    DroverArrowFile* (*open)(const char* path, std::int32_t is_parquet, char* message);
    void (*close)(DroverArrowFile* file);
    std::int64_t (*row_count)(const DroverArrowFile* file);
    std::int32_t (*column_count)(const DroverArrowFile* file);
    const char* (*column_name)(const DroverArrowFile* file, std::int32_t column);

    /// The next read_text begins at this row of this column, which must hold strings.
    std::int32_t (*seek)(DroverArrowFile* file, std::int32_t column, std::int64_t row, char* message);
    /// Passes up to `count` rows to `sink` and returns how many; fewer only at the end.
    std::int64_t (*read_text)(DroverArrowFile* file, std::int64_t count, DroverArrowTextSink sink,
                              void* context, char* message);
    /// The next read_objects begins at this row, and gives these columns.
    std::int32_t (*seek_columns)(DroverArrowFile* file, const std::int32_t* columns, std::int32_t count,
                                 std::int64_t row, char* message);
    /// Passes up to `count` rows to `sink`, each as the text of a JSON object, and returns how many; fewer
    /// only at the end.
    std::int64_t (*read_objects)(DroverArrowFile* file, std::int64_t count, DroverArrowTextSink sink,
                                 void* context, char* message);
    /// Reads input_ids, labels and attention_mask (lists of integers) of one row of an Arrow file.
    std::int32_t (*read_tokens)(DroverArrowFile* file, std::int64_t row, DroverArrowTokens* tokens,
                                char* message);

    /// Begins an Arrow stream file with the columns input_ids, attention_mask and labels; `metadata` is the
    /// JSON text that the datasets library looks for in the schema.
    DroverArrowWriter* (*create)(const char* path, const char* metadata, char* message);
    /// Adds a row: the ids, a mask of ones, and the ids again as labels.
    std::int32_t (*add_tokens)(DroverArrowWriter* writer, const std::int32_t* ids, std::int64_t count,
                               char* message);
    /// Completes the file and frees the writer, also when it fails.
    std::int32_t (*finish)(DroverArrowWriter* writer, char* message);
};

/// The two symbols that are looked up. The first returns drover_arrow_version.
int drover_arrow_module_version(void);
const DroverArrowModule* drover_arrow_module(void);
}
