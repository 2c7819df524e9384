#include "convert/conversion_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>

#include "convert/conversion_lock.h"
#include "convert/q8_0.h"
#include "core/content_hash.h"
#include "core/convert.h"
#include "core/json.h"
#include "core/json_text.h"
#include "core/partial_file.h"
#include "core/text_file.h"
#include "io/checkpoint_manifest.h"
#include "io/safetensors_header.h"
#include "io/staged_folder.h"
#include "io/stored_zip.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view staged_name = "convert";
constexpr std::string_view journal_name = "convert.journal";
constexpr std::size_t most_open_files = 256;
constexpr int most_views = 64;  ///< of the source, before its memory is given back

/// A block that reaches outside its tensor would read other memory.
void check_blocks(const ConversionPlan& plan, const TensorSource& source) {
    for (const PlannedFile& file : plan.files)
        for (const PlannedTensor& tensor : file.tensors)
            for (const Block& block : tensor.blocks) {
                if (block.item == Block::zeros) continue;
                const TensorSource::Item& item = source.items().at(block.item);
                require(block.row_begin >= 0 && block.column_begin >= 0 &&
                            (block.row_count == 0 ||
                             block.row_begin + (block.row_count - 1) * block.row_step < item.rows()) &&
                            block.column_begin + block.column_count <= item.columns(),
                        "a block of a conversion is outside its source");
            }
}

std::string digest_of(const ConversionPlan& plan, const TensorSource& source) {
    ContentHash hash;
    const auto add = [&](const auto&... values) { (hash.add(fmt::format("{}", values)), ...); };
    for (const fs::path& path : source.files())
        add(path.string(), fs::file_size(path), fs::last_write_time(path).time_since_epoch().count());
    for (const PlannedFile& file : plan.files) {
        add(file.path, file.size, file.header, file.tensors.size());
        for (const PlannedTensor& tensor : file.tensors) {
            add(tensor.name, name_of(tensor.dtype), safetensors_detail::shape_text(tensor.shape),
                tensor.is_q8_0, tensor.blocks.size());
            for (const Block& block : tensor.blocks)
                add(block.item, block.row_begin, block.row_count, block.column_begin, block.column_count,
                    block.row_step, block.transposed, block.to_row, block.to_column);
        }
    }
    for (const auto& [name, text] : plan.texts) add(name, text);
    add(plan.checkpoint, plan.run_state);
    return hash.hex();
}

/// What is on the disk: all files before `file`, and the first tensors of that, with their checksums.
struct Journal {
    std::string plan;
    std::size_t file = 0;
    std::vector<std::uint32_t> checksums;
    bool is_complete = false;  ///< only the files' moves to their places are left

    std::string text() const {
        return Json{{"plan", plan}, {"file", file}, {"checksums", checksums}, {"complete", is_complete}}
                   .dump() +
               "\n";
    }
    /// Starts from nothing when there is no journal of this plan.
    static Journal read(const fs::path& path, const std::string& plan) {
        try {
            const Json json = read_json_file(path);
            if (json.at("plan").get<std::string>() == plan)
                return {.plan = plan,
                        .file = json.at("file").get<std::size_t>(),
                        .checksums = json.at("checksums").get<std::vector<std::uint32_t>>(),
                        .is_complete = json.at("complete").get<bool>()};
        } catch (const Error&) {
        } catch (const nlohmann::json::exception&) {
        }
        return {.plan = plan};
    }
};

class Writer {
  public:
    Writer(const ConversionPlan& plan, const TensorSource& source, const fs::path& folder,
           const ConversionProgress& progress, const ConversionLimits& limits)
        : plan_(plan),
          source_(source),
          folder_(folder),
          progress_(progress),
          limits_(limits),
          total_(plan.bytes()),
          verified_(source.items().size()),
          staged_(folder / staged_name),
          journal_(Journal::read(folder / journal_name, digest_of(plan, source))) {}

    void run() {
        check_blocks(plan_, source_);
        // It was interrupted after its last rename.
        if (journal_.is_complete && is_checkpoint() && fs::exists(folder_ / plan_.checkpoint) &&
            !fs::exists(staged_.staging()))
            return end();
        if (!has_begun()) start();
        if (!journal_.is_complete) write_files();
        publish();
    }

  private:
    bool is_checkpoint() const { return !plan_.checkpoint.empty(); }

    /// Whether the journal is of this conversion, and what it says is there.
    bool has_begun() const {
        if (journal_.is_complete) return fs::is_directory(staged_.staging());
        if (journal_.file >= plan_.files.size() || (journal_.file == 0 && journal_.checksums.empty()) ||
            journal_.checksums.size() > plan_.files[journal_.file].tensors.size())
            return false;
        const std::size_t there = journal_.file + (journal_.checksums.empty() ? 0 : 1);
        for (std::size_t i = 0; i < there; ++i) {
            std::error_code missing;
            const std::uint64_t size = fs::file_size(staged_.staging() / plan_.files[i].path, missing);
            if (missing || size != plan_.files[i].size) return false;
        }
        return true;
    }

    void start() {
        journal_ = {.plan = journal_.plan};
        for (const std::string& name : top_names())
            if (fs::exists(folder_ / name))
                throw Error(fmt::format("{} already exists.", (folder_ / name).string()),
                            "Choose another --output_dir, or remove it.");
        staged_.create();
    }

    std::set<std::string> top_names() const {
        if (is_checkpoint()) return {plan_.checkpoint};
        std::set<std::string> names;
        for (const PlannedFile& file : plan_.files) names.insert(fs::path(file.path).begin()->string());
        for (const auto& [name, text] : plan_.texts) names.insert(fs::path(name).begin()->string());
        return names;
    }

    void write_files() {
        for (std::size_t i = 0; i < journal_.file; ++i)
            for (const PlannedTensor& tensor : plan_.files[i].tensors) written_ += tensor.bytes();
        while (journal_.file < plan_.files.size()) {
            write_file(plan_.files[journal_.file]);
            ++journal_.file;
            journal_.checksums.clear();
            if (++open_files_ >= most_open_files || unflushed_ >= limits_.flush_bytes) flush();
        }
        for (const auto& [name, text] : plan_.texts) {
            fs::create_directories((staged_.staging() / name).parent_path());
            write_file_atomically(staged_.staging() / name, text);
        }
        if (is_checkpoint()) write_manifest();
        journal_.is_complete = true;
        flush();
    }

    void write_manifest() {
        staged_.flush();
        fs::remove(staged_.staging() / CheckpointManifest::file_name);  // of an earlier attempt
        using namespace std::chrono;
        const CheckpointManifest manifest{
            .state = Json::parse(plan_.run_state),
            .saved_at = duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count(),
            .files = staged_.seal()};
        write_file_atomically(staged_.staging() / CheckpointManifest::file_name, manifest.text());
    }

    void write_file(const PlannedFile& file) {
        for (std::size_t i = 0; i < journal_.checksums.size(); ++i) written_ += file.tensors[i].bytes();
        if (journal_.checksums.empty()) {
            fs::create_directories((staged_.staging() / file.path).parent_path());
            staged_.create_file(file.path, file.size);
        }
        for (std::size_t i = journal_.checksums.size(); i < file.tensors.size(); ++i) {
            journal_.checksums.push_back(write_tensor(file, i));
            if (unflushed_ >= limits_.flush_bytes) flush();
        }
        if (!file.archive) return write(file, 0, file.header);
        for (const TorchArchive::Part& part : file.archive->other_parts(journal_.checksums))
            write(file, part.offset, part.bytes);
    }

    void write(const PlannedFile& file, std::uint64_t offset, std::string_view bytes) {
        staged_.write(file.path, {.offset = offset, .row_bytes = bytes.size()},
                      reinterpret_cast<const std::byte*>(bytes.data()));
    }

    /// Returns the checksum of its elements.
    std::uint32_t write_tensor(const PlannedFile& file, std::size_t index) {
        const PlannedTensor& tensor = file.tensors[index];
        const TensorSource::Item item = tensor.as_item();
        const std::uint64_t row_bytes = static_cast<std::uint64_t>(item.columns()) * size_of(tensor.dtype);
        const auto rows = static_cast<std::int64_t>(
            std::max<std::uint64_t>(1, limits_.buffer_bytes / std::max<std::uint64_t>(1, row_bytes)));
        std::uint32_t checksum = zip_checksum({});
        std::uint64_t offset = file.offsets[index];
        for (std::int64_t begin = 0; begin < item.rows() && row_bytes > 0; begin += rows) {
            const std::int64_t count = std::min(rows, item.rows() - begin);
            buffer_.resize(static_cast<std::size_t>(count) * row_bytes);
            for (const Block& block : tensor.blocks) copy(tensor, block, begin, count);
            forget(buffer_.size());
            const std::vector<std::byte>& elements = tensor.is_q8_0 ? quantized() : buffer_;
            const std::string_view bytes(reinterpret_cast<const char*>(elements.data()), elements.size());
            if (file.archive) checksum = zip_checksum(bytes, checksum);
            write(file, offset, bytes);
            offset += bytes.size();
            written_ += bytes.size();
            unflushed_ += bytes.size();
            if (progress_) progress_(written_, total_);
        }
        return checksum;
    }

    /// The floats of the buffer in Q8_0.
    const std::vector<std::byte>& quantized() {
        const std::uint64_t count = buffer_.size() / sizeof(float);
        quantized_.resize(bytes_of(GgmlType::q8_0, count));
        quantize_q8_0(reinterpret_cast<const float*>(buffer_.data()), static_cast<std::int64_t>(count),
                      quantized_.data());
        return quantized_;
    }

    /// Copies what a block has of rows [begin, begin + count) into the buffer.
    void copy(const PlannedTensor& tensor, const Block& block, std::int64_t begin, std::int64_t count) {
        const std::int64_t first = std::max(begin, block.to_row);
        const std::int64_t rows = std::min(begin + count, block.to_row + block.rows_written()) - first;
        if (rows <= 0) return;
        const std::int64_t skipped = first - block.to_row, columns = block.columns_written();
        const std::int64_t stride = tensor.as_item().columns();
        const auto copy_from_source = [&](std::byte* destination, std::int64_t destination_stride) {
            if (++views_ > most_views) forget(limits_.buffer_bytes);
            if (!verified_[block.item]) source_.verify(block.item);
            verified_[block.item] = true;
            const bool is_apart = block.row_step > 1;
            const StridedTensor whole = source_.view(block.item),
                                from = is_apart ? whole.rows_apart(block.row_begin, block.row_step) : whole;
            const std::int64_t row_begin = is_apart ? 0 : block.row_begin;
            if (block.transposed)
                copy_block_transposed(from, row_begin, block.row_count, block.column_begin + skipped, rows,
                                      destination, destination_stride);
            else
                copy_block(from, row_begin + skipped, rows, block.column_begin, block.column_count,
                           destination, destination_stride);
        };
        const auto place = [&](std::int64_t row) {
            return buffer_.data() +
                   static_cast<std::size_t>((first - begin + row) * stride + block.to_column) *
                       size_of(tensor.dtype);
        };
        if (block.item == Block::zeros) {
            for (std::int64_t row = 0; row < rows; ++row)
                std::memset(place(row), 0, static_cast<std::size_t>(columns) * size_of(tensor.dtype));
            return;
        }
        const DType source_dtype = source_.items()[block.item].dtype;
        if (source_dtype == tensor.dtype) return copy_from_source(place(0), stride);
        unconverted_.resize(static_cast<std::size_t>(rows * columns) * size_of(source_dtype));
        copy_from_source(unconverted_.data(), columns);
        for (std::int64_t row = 0; row < rows; ++row)
            convert_elements(
                unconverted_.data() + static_cast<std::size_t>(row * columns) * size_of(source_dtype),
                source_dtype, place(row), tensor.dtype, columns);
    }

    /// Gives the source's memory back when enough was read.
    void forget(std::uint64_t bytes) {
        unforgotten_ += bytes;
        if (unforgotten_ < limits_.buffer_bytes / 4 && views_ <= most_views) return;
        source_.forget();
        unforgotten_ = 0;
        views_ = 0;
    }

    void flush() {
        staged_.flush();
        write_file_atomically(folder_ / journal_name, journal_.text());
        unflushed_ = 0;
        open_files_ = 0;
    }

    /// What says how the weights are to be read comes last.
    void publish() {
        sync_folder(staged_.staging());
        if (is_checkpoint()) {
            fs::rename(staged_.staging(), folder_ / plan_.checkpoint);
            return end();
        }
        std::vector<std::string> names;
        for (const fs::directory_entry& entry : fs::directory_iterator(staged_.staging()))
            names.push_back(entry.path().filename().string());
        const auto comes_last = [](const std::string& name) {
            return std::ranges::count(
                std::initializer_list<std::string_view>{single_weights_file, weights_index_file,
                                                        single_pickle_file, pickle_index_file},
                name);
        };
        std::ranges::stable_sort(names, {}, comes_last);
        for (const std::string& name : names) fs::rename(staged_.staging() / name, folder_ / name);
        end();
    }

    void end() {
        sync_folder(folder_);
        fs::remove(folder_ / journal_name);
        staged_.discard();
    }

    const ConversionPlan& plan_;
    const TensorSource& source_;
    const fs::path& folder_;
    const ConversionProgress& progress_;
    const ConversionLimits& limits_;
    std::uint64_t total_;
    std::vector<bool> verified_;  ///< by item
    StagedFolder staged_;
    Journal journal_;
    std::vector<std::byte> buffer_, unconverted_, quantized_;
    std::uint64_t written_ = 0, unflushed_ = 0, unforgotten_ = 0;
    int views_ = 0;
    std::size_t open_files_ = 0;
};

}  // namespace

void write_conversion(const ConversionPlan& plan, const TensorSource& source, const fs::path& folder,
                      const ConversionProgress& progress, const ConversionLimits& limits) {
    std::error_code failure;
    fs::create_directories(folder, failure);
    if (failure)
        throw Error(fmt::format("Cannot make the folder {}: {}.", folder.string(), failure.message()),
                    "Check --output_dir.");
    const ConversionLock lock(folder);
    Writer(plan, source, folder, progress, limits).run();
}

}  // namespace drover
