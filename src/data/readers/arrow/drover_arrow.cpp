#include <arrow/api.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <string>

#include "data/readers/arrow/module_files.h"
#include "data/readers/arrow_module.h"

namespace drover::arrow_module {
namespace {

void put_message(char* message, const std::string& text) {
    const std::size_t size = std::min<std::size_t>(text.size(), drover_arrow_message_size - 1);
    std::copy_n(text.begin(), size, message);
    message[size] = '\0';
    // Arrow's messages may have several lines; the first one says what happened.
    for (std::size_t i = 0; i < size; ++i)
        if (message[i] == '\n') message[i] = '\0';
}

/// Runs `work`; returns −1 and a message for anything it throws.
template <class Work>
std::int64_t guarded(char* message, Work&& work) {
    try {
        return work();
    } catch (const std::exception& failure) {
        put_message(message, failure.what());
    } catch (...) {
        put_message(message, "unknown failure");
    }
    return -1;
}

DroverArrowFile* open_file(const char* path, std::int32_t is_parquet, char* message) {
    DroverArrowFile* file = nullptr;
    guarded(message, [&] {
        file = (is_parquet != 0 ? open_parquet(path) : open_ipc(path)).release();
        return 0;
    });
    return file;
}

void close_file(DroverArrowFile* file) {
    delete file;
}

std::int64_t row_count(const DroverArrowFile* file) {
    return file->row_count();
}

std::int32_t column_count(const DroverArrowFile* file) {
    return static_cast<std::int32_t>(file->columns().size());
}

const char* column_name(const DroverArrowFile* file, std::int32_t column) {
    return file->columns()[static_cast<std::size_t>(column)].c_str();
}

std::int32_t seek(DroverArrowFile* file, std::int32_t column, std::int64_t row, char* message) {
    return static_cast<std::int32_t>(guarded(message, [&] {
        file->seek(column, row);
        return 0;
    }));
}

std::int64_t read_text(DroverArrowFile* file, std::int64_t count, DroverArrowTextSink sink, void* context,
                       char* message) {
    return guarded(message, [&] { return file->read_text(count, sink, context); });
}

std::int32_t seek_columns(DroverArrowFile* file, const std::int32_t* columns, std::int32_t count,
                          std::int64_t row, char* message) {
    return static_cast<std::int32_t>(guarded(message, [&] {
        file->seek_columns({columns, columns + count}, row);
        return 0;
    }));
}

std::int64_t read_objects(DroverArrowFile* file, std::int64_t count, DroverArrowTextSink sink, void* context,
                          char* message) {
    return guarded(message, [&] { return file->read_objects(count, sink, context); });
}

std::int32_t read_tokens(DroverArrowFile* file, std::int64_t row, DroverArrowTokens* tokens, char* message) {
    return static_cast<std::int32_t>(guarded(message, [&] {
        file->read_tokens(row, *tokens);
        return 0;
    }));
}

DroverArrowWriter* create(const char* path, const char* metadata, char* message) {
    DroverArrowWriter* writer = nullptr;
    guarded(message, [&] {
        writer = create_token_writer(path, metadata).release();
        return 0;
    });
    return writer;
}

std::int32_t add_tokens(DroverArrowWriter* writer, const std::int32_t* ids, std::int64_t count,
                        char* message) {
    return static_cast<std::int32_t>(guarded(message, [&] {
        writer->add(ids, count);
        return 0;
    }));
}

std::int32_t finish(DroverArrowWriter* writer, char* message) {
    const std::unique_ptr<DroverArrowWriter> owned(writer);
    return static_cast<std::int32_t>(guarded(message, [&] {
        owned->finish();
        return 0;
    }));
}

constexpr DroverArrowModule module_table{
    .open = open_file,
    .close = close_file,
    .row_count = row_count,
    .column_count = column_count,
    .column_name = column_name,
    .seek = seek,
    .read_text = read_text,
    .seek_columns = seek_columns,
    .read_objects = read_objects,
    .read_tokens = read_tokens,
    .create = create,
    .add_tokens = add_tokens,
    .finish = finish,
};

}  // namespace
}  // namespace drover::arrow_module

extern "C" __attribute__((visibility("default"))) int drover_arrow_module_version(void) {
    return drover_arrow_version;
}

extern "C" __attribute__((visibility("default"))) const DroverArrowModule* drover_arrow_module(void) {
    return &drover::arrow_module::module_table;
}
