#include "io/torch_pickle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "core/json.h"
#include "core/json_text.h"
#include "fuzz/run_corpus.h"
#include "fuzz/torch_pickle_input.h"
#include "io/hf_optimizer_state.h"
#include "io/pickle_names.h"
#include "support/errors.h"
#include "support/golden.h"

namespace drover {
namespace {

using Kind = PickleValue::Kind;
using namespace std::string_view_literals;

TEST(Corpus, TorchPicklesOpenOrGiveAnError) {
    test::run_corpus("torch_pickle", test::accepts_torch_pickle);
}

std::vector<double> elements(const PickleTensor& tensor, const Tensor& packed) {
    EXPECT_TRUE(tensor.packed());
    test::OwnedTensor aligned(packed.dtype(), packed.shape());
    std::memcpy(aligned.tensor().raw(), packed.raw(), packed.bytes());
    return test::values(aligned);
}

/// Compares a value with the Python script's description of it.
void expect_value(const PickleValue& value, const Json& expected, const std::string& where) {
    SCOPED_TRACE(where);
    if (expected.is_object() && expected.contains("dtype")) {
        ASSERT_EQ(value.kind(), Kind::tensor);
        const PickleTensor& tensor = value.tensor();
        EXPECT_EQ(tensor.shape, expected.at("shape").get<std::vector<std::int64_t>>());
        EXPECT_EQ(tensor.packed(), expected.at("contiguous").get<bool>());
        if (!expected.at("contiguous").get<bool>()) {
            test::expect_error([&] { value.packed_tensor(); }, {"not packed or not supported"});
            return;
        }
        EXPECT_EQ(name_of(value.packed_tensor().dtype()), expected.at("dtype").get<std::string>());
        EXPECT_EQ(elements(tensor, value.packed_tensor()), expected.at("values").get<std::vector<double>>());
    } else if (expected.is_object() && expected.contains("bytes")) {
        std::string bytes;
        for (const Json& byte : expected.at("bytes")) bytes.push_back(static_cast<char>(byte.get<int>()));
        EXPECT_EQ(value.bytes(), bytes);
    } else if (expected.is_object()) {
        const Json& items = expected.at("items");
        ASSERT_EQ(value.kind(), Kind::dict);
        ASSERT_EQ(value.size(), items.size());
        for (std::size_t i = 0; i < items.size(); ++i) {
            expect_value(value.key(i), items[i][0], where + " key");
            expect_value(value.value(i), items[i][1], where + "[" + items[i][0].dump() + "]");
        }
    } else if (expected.is_array()) {
        ASSERT_TRUE(value.kind() == Kind::list || value.kind() == Kind::tuple);
        ASSERT_EQ(value.size(), expected.size());
        for (std::size_t i = 0; i < expected.size(); ++i)
            expect_value(value.at(i), expected[i], where + "[" + std::to_string(i) + "]");
    } else if (expected.is_null()) {
        EXPECT_EQ(value.kind(), Kind::none);
    } else if (expected.is_boolean()) {
        EXPECT_EQ(value.boolean(), expected.get<bool>());
    } else if (expected.is_number_integer()) {
        EXPECT_EQ(value.integer(), expected.get<std::int64_t>());
    } else if (expected.is_number_float()) {
        EXPECT_EQ(value.number(), expected.get<double>());
    } else if (expected == "inf") {
        EXPECT_TRUE(std::isinf(value.number()));
    } else {
        EXPECT_EQ(value.text(), expected.get<std::string>());
    }
}

TEST(TorchPickle, ReadsWhatTorchSaves) {
    const Json expected = read_json_file(test::golden_path("pickle/values.json"));
    for (const char* name : {"pickle/values_protocol2.pt", "pickle/values_protocol4.pt"}) {
        const TorchFile file(test::golden_path(name));
        file.verify();
        EXPECT_EQ(file.root().size(), expected.size());
        for (const auto& [key, value] : expected.items()) expect_value(file.root()[key], value, key);
    }
}

TEST(TorchPickle, TensorsOfOneStorageShareIt) {
    const TorchFile file(test::golden_path("pickle/values_protocol2.pt"));
    EXPECT_EQ(file.root()["part"].tensor().storage, file.root()["float32"].tensor().storage);
    EXPECT_EQ(file.root()["scalar"].number(), 4.5);
}

TEST(TorchPickle, RefusesEveryOtherNameByName) {
    const auto cause = [](const std::string& name) {
        const std::string bytes = read_text_file(test::golden_path("../fuzz/corpus/torch_pickle/" + name));
        return test::cause_of([&] { TorchPickle pickle(bytes, "file.pt"); });
    };
    EXPECT_EQ(
        cause("bad-system"),
        "file.pt names \"posix.system\", which is not one of the few things that are read from such a file.");
    EXPECT_EQ(cause("bad-system4"), cause("bad-system"));
    EXPECT_NE(cause("bad-eval").find("\"__builtin__.eval\""), std::string::npos) << cause("bad-eval");
    EXPECT_NE(cause("bad-getattr").find("\"__builtin__.getattr\""), std::string::npos);
    // Arbitrary Python classes are not read, and this is reported.
    EXPECT_NE(test::cause_of([] {
                  TorchFile file(test::golden_path("trainer_checkpoint/training_args.bin"));
              }).find("names \"transformers."),
              std::string::npos);
}

/// A pickle that names `module`.`name`, in the form of protocol 2 or 4.
std::string program_naming(const std::string& module, const std::string& name, int protocol) {
    const auto text = [](const std::string& word) {
        return std::string("\x8c") + static_cast<char>(word.size()) + word;
    };
    return protocol == 2 ? "\x80\x02"
                           "c" +
                               module + "\n" + name + "\n."
                         : "\x80\x04" + text(module) + text(name) + "\x93.";
}

TEST(TorchPickle, TheListIsAllThatMayBeNamed) {
    const std::pair<const char*, const char*> refused[] = {{"os", "system"},
                                                           {"posix", "system"},
                                                           {"subprocess", "Popen"},
                                                           {"builtins", "eval"},
                                                           {"builtins", "exec"},
                                                           {"builtins", "getattr"},
                                                           {"builtins", "set"},
                                                           {"builtins", "bytearray"},
                                                           {"__builtin__", "apply"},
                                                           {"pickle", "loads"},
                                                           {"functools", "partial"},
                                                           {"operator", "attrgetter"},
                                                           {"importlib", "import_module"},
                                                           {"collections", "OrderedDictionary"},
                                                           {"collections", "defaultdict"},
                                                           {"collections", "Ordered"},
                                                           {"torch", "load"},
                                                           {"torch", "FloatStorag"},
                                                           {"torch", "QInt8Storage"},
                                                           {"torch.hub", "load"},
                                                           {"torch._utils", "_rebuild_tensor"},
                                                           {"torch._utils", "_rebuild_tensor_v3"},
                                                           {"torch.storage", "_load_from_bytes"},
                                                           {"torch.nn.modules.linear", "Linear"},
                                                           {"numpy", "load"},
                                                           {"numpy.core.multiarray", "fromfile"},
                                                           {"_codecs", "decode"},
                                                           {"codecs", "encode"},
                                                           {"", ""},
                                                           {"", "collections.OrderedDict"}};
    for (const auto& [module, name] : refused)
        for (const int protocol : {2, 4}) {
            const std::string bytes =
                test::stored_archive({{"a/data.pkl", program_naming(module, name, protocol)}});
            const std::string cause = test::cause_of([&] { TorchPickle pickle(bytes, "file.pt"); });
            EXPECT_NE(cause.find("names \"" + std::string(module) + "." + name + "\""), std::string::npos)
                << cause;
        }
    for (const PickleName& known : pickle_names) {
        const auto dot = known.full_name.rfind('.');
        const std::string module(known.full_name.substr(0, dot)), name(known.full_name.substr(dot + 1));
        for (const int protocol : {2, 4})
            EXPECT_TRUE(test::accepts_pickle_program(program_naming(module, name, protocol)))
                << known.full_name;
    }
}

/// Verbatim: anyone who allows one more name must add it here too, with what is made of it.
TEST(TorchPickle, TheListIsThis) {
    using enum PickleName::Meaning;
    const std::vector<std::pair<std::string_view, PickleName::Meaning>> expected = {
        {"collections.OrderedDict", ordered_dict},
        {"torch._utils._rebuild_tensor_v2", tensor},
        {"torch._utils._rebuild_parameter", parameter},
        {"torch._tensor._rebuild_from_type_v2", tensor_with_attributes},
        {"torch.Tensor", closed},
        {"torch.Size", size},
        {"torch.device", device},
        {"_codecs.encode", encode},
        {"torch.FloatStorage", storage},
        {"torch.DoubleStorage", storage},
        {"torch.HalfStorage", storage},
        {"torch.BFloat16Storage", storage},
        {"torch.LongStorage", storage},
        {"torch.IntStorage", storage},
        {"torch.ShortStorage", storage},
        {"torch.CharStorage", storage},
        {"torch.ByteStorage", storage},
        {"torch.BoolStorage", storage},
        {"torch.float32", dtype},
        {"torch.float64", dtype},
        {"torch.float16", dtype},
        {"torch.bfloat16", dtype},
        {"torch.int64", dtype},
        {"torch.int32", dtype},
        {"torch.int16", dtype},
        {"torch.int8", dtype},
        {"torch.uint8", dtype},
        {"torch.bool", dtype},
        {"torch_xla.utils.serialization.TensorReference", reference},
        {"torch.distributed.checkpoint.metadata.Metadata", record},
        {"torch.distributed.checkpoint.metadata.TensorStorageMetadata", record},
        {"torch.distributed.checkpoint.metadata.BytesStorageMetadata", record},
        {"torch.distributed.checkpoint.metadata.TensorProperties", record},
        {"torch.distributed.checkpoint.metadata.ChunkStorageMetadata", record},
        {"torch.distributed.checkpoint.metadata.MetadataIndex", record},
        {"torch.distributed.checkpoint.metadata.StorageMeta", record},
        {"torch.distributed.checkpoint.filesystem._StorageInfo", record},
        {"torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING", closed},
        {"torch.serialization._get_layout", closed},
        {"pathlib.PosixPath", closed},
        {"pathlib._local.PosixPath", closed},
        {"pathlib.PurePosixPath", closed},
        {"deepspeed.runtime.fp16.loss_scaler.LossScaler", record},
        {"deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler", record},
        {"deepspeed.utils.tensor_fragment.fragment_address", record},
        {"deepspeed.runtime.zero.config.ZeroStageEnum", closed},
        {"__builtin__.set", closed},
        {"numpy.core.multiarray._reconstruct", closed},
        {"numpy._core.multiarray._reconstruct", closed},
        {"numpy.core.multiarray.scalar", closed},
        {"numpy._core.multiarray.scalar", closed},
        {"numpy.ndarray", closed},
        {"numpy.dtype", closed}};
    ASSERT_EQ(pickle_names.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(pickle_names[i].full_name, expected[i].first);
        EXPECT_EQ(pickle_names[i].meaning, expected[i].second) << expected[i].first;
    }
}

TEST(TorchPickle, OnlyTextIsEncodedAndOnlyAsLatin1) {
    const auto text = [](const std::string& word) {
        return std::string("\x8c") + static_cast<char>(word.size()) + word;
    };
    const auto encoded = [&](const std::string& arguments) {
        return test::accepts_pickle_program("\x80\x04" + text("_codecs") + text("encode") + "\x93(" +
                                            arguments + "tR.");
    };
    EXPECT_TRUE(encoded(text("word") + text("latin1")));
    EXPECT_TRUE(encoded(text("word")));
    EXPECT_FALSE(encoded(text("word") + text("utf-8")));
    EXPECT_FALSE(encoded(text("word") + text("latin1") + text("strict")));
    EXPECT_FALSE(encoded(""));
    EXPECT_FALSE(encoded("K\1"));
}

TEST(TorchPickle, ChecksumsOfStoragesAreVerified) {
    std::string bytes = read_text_file(test::golden_path("pickle/values_protocol2.pt"));
    const float six = 6;
    std::string pattern(sizeof six, '\0');
    std::memcpy(pattern.data(), &six, sizeof six);
    const auto place = bytes.find(pattern);
    ASSERT_NE(place, std::string::npos);
    bytes[place] ^= 1;
    const TorchPickle pickle(bytes, "file.pt");  // opening reads no storage
    EXPECT_NE(test::cause_of([&] { pickle.verify(); }).find("the checksum of its entry"), std::string::npos);
}

TEST(TorchPickle, EveryTruncationIsAnError) {
    const std::string bytes = read_text_file(test::golden_path("../fuzz/corpus/torch_pickle/valid-dict"));
    for (std::size_t size = 0; size < bytes.size(); ++size)
        EXPECT_FALSE(test::accepts_torch_pickle(std::string_view(bytes).substr(0, size))) << size;
}

TEST(TorchPickle, AFlippedBitIsAnErrorOrDoesNotMatter) {
    const std::string bytes = read_text_file(test::golden_path("../fuzz/corpus/torch_pickle/valid-dict"));
    int refused = 0;
    for (std::size_t bit = 0; bit < 8 * bytes.size(); bit += 3) {
        std::string changed = bytes;
        changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
        if (!test::accepts_torch_pickle(changed)) ++refused;
    }
    EXPECT_GT(refused, 500);
}

TEST(TorchPickle, AnyInstructionInAnyPlaceIsAnErrorOrDoesNotMatter) {
    // {"a": 5, "b": [(1,), 1.0]}
    const std::string program(
        "\x80\x02}q\x00(X\x01\x00\x00\x00"
        "aK\x05X\x01\x00\x00\x00"
        "b]q\x01(K\x01\x85G?\xf0\x00\x00\x00\x00\x00\x00"
        "eu."sv);
    EXPECT_TRUE(test::accepts_pickle_program(program));
    for (std::size_t place = 0; place < program.size(); ++place)
        for (int byte = 0; byte < 256; ++byte) {
            std::string changed = program;
            changed[place] = static_cast<char>(byte);
            test::accepts_pickle_program(changed);
        }
}

TEST(HfRandomState, OpensWithoutNumpy) {
    const TorchFile file(test::golden_path("trainer_checkpoint/llama_adamw/checkpoint-4/rng_state.pth"));
    file.verify();
    EXPECT_EQ(file.root()["cpu"].tensor().shape, (std::vector<std::int64_t>{5056}));
    EXPECT_EQ(file.root()["python"].at(0).integer(), 3);
    EXPECT_EQ(file.root()["numpy"].at(0).text(), "MT19937");
    EXPECT_EQ(file.root()["numpy"].at(1).kind(), Kind::object);
}

class HfCheckpoint : public ::testing::TestWithParam<const char*> {};

TEST_P(HfCheckpoint, HasWhatTheOptimizerHad) {
    const std::string name = std::string("trainer_checkpoint/") + GetParam();
    const Json expected = read_json_file(test::golden_path(name + "/whole_run.json"));
    const HfOptimizerState state(test::golden_path(name + "/checkpoint-4/optimizer.pt"));
    ASSERT_EQ(state.parameters().size(), expected.at("parameters").size());
    for (const auto& [index_text, entry] : expected.at("optimizer").at("state").items()) {
        const auto index = static_cast<std::size_t>(std::stoul(index_text));
        const HfOptimizerState::Parameter& parameter = state.parameters().at(index);
        EXPECT_EQ(parameter.step, 4);
        for (const auto& [key, value] : entry.items()) {
            if (key == "step" || value.is_null()) continue;
            if (!value.is_object() || value.at("shape").empty()) {
                EXPECT_TRUE(parameter.numbers.contains(key)) << key;
                continue;
            }
            std::int64_t count = 1;
            for (const Json& size : value.at("shape")) count *= size.get<std::int64_t>();
            const Tensor tensor = state.tensor(index, key, count);
            test::OwnedTensor aligned(tensor.dtype(), tensor.shape());
            std::memcpy(aligned.tensor().raw(), tensor.raw(), tensor.bytes());
            double sum = 0;
            for (const double element : test::values(aligned)) sum += element;
            const double wanted = value.at("sum").get<double>();
            EXPECT_NEAR(sum, wanted, 1e-9 * std::abs(wanted) + 1e-12) << index << " " << key;
        }
    }
    const Json& groups = expected.at("optimizer").at("param_groups");
    ASSERT_EQ(state.groups().size(), groups.size());
    for (std::size_t i = 0; i < groups.size(); ++i) {
        EXPECT_EQ(state.groups()[i].learning_rate, groups[i].at("lr").get<double>());
        EXPECT_EQ(state.groups()[i].initial_learning_rate, groups[i].at("initial_lr").get<double>());
        EXPECT_EQ(state.groups()[i].weight_decay, groups[i].at("weight_decay").get<double>());
        EXPECT_EQ(state.groups()[i].parameters, groups[i].at("params").size());
    }
    const auto schedule = HfSchedulerState::read(test::golden_path(name + "/checkpoint-4/scheduler.pt"));
    const Json& expected_schedule = expected.at("scheduler");
    EXPECT_EQ(schedule.last_epoch, expected_schedule.at("last_epoch").get<std::int64_t>());
    EXPECT_EQ(schedule.base_learning_rates, expected_schedule.at("base_lrs").get<std::vector<double>>());
    EXPECT_EQ(schedule.last_learning_rates, expected_schedule.at("_last_lr").get<std::vector<double>>());
    EXPECT_NE(test::cause_of([&] { state.tensor(0, "exp_avg_cube", 1); }).find("no exp_avg_cube"),
              std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Runs, HfCheckpoint,
                         ::testing::Values("llama_adamw", "llama_adafactor", "mixtral_adamw"),
                         [](const auto& run) { return std::string(run.param); });

}  // namespace
}  // namespace drover
