#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "core/json.h"
#include "support/golden.h"

extern char** environ;

namespace drover::test {

/// hub_server.py as a process, for as long as this lives.
class HubServer {
  public:
    explicit HubServer(std::filesystem::path folder, std::vector<std::string> options = {})
        : folder_(std::move(folder)) {
        std::filesystem::create_directories(folder_);
        int to_server[2], from_server[2];
        if (pipe2(to_server, O_CLOEXEC) != 0 || pipe2(from_server, O_CLOEXEC) != 0) return;
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, to_server[0], STDIN_FILENO);
        posix_spawn_file_actions_adddup2(&actions, from_server[1], STDOUT_FILENO);
        std::vector<std::string> words{"python3", std::string(DROVER_SOURCE_DIR) + "/tests/hub/hub_server.py",
                                       folder_.string()};
        words.insert(words.end(), options.begin(), options.end());
        std::vector<char*> arguments;
        for (std::string& word : words) arguments.push_back(word.data());
        arguments.push_back(nullptr);
        if (posix_spawnp(&process_, "python3", &actions, nullptr, arguments.data(), environ) != 0)
            process_ = -1;
        posix_spawn_file_actions_destroy(&actions);
        close(to_server[0]);
        close(from_server[1]);
        alive_ = to_server[1];
        std::string line;
        for (char c = 0; process_ > 0 && read(from_server[0], &c, 1) == 1 && c != '\n';) line.push_back(c);
        close(from_server[0]);
        if (line.starts_with("port ")) port_ = std::stoi(line.substr(5));
    }
    ~HubServer() {
        close(alive_);  // its end
        if (process_ > 0) {
            kill(process_, SIGTERM);
            waitpid(process_, nullptr, 0);
        }
    }
    HubServer(const HubServer&) = delete;
    HubServer& operator=(const HubServer&) = delete;

    /// False where there is no python3.
    bool runs() const { return port_ > 0; }
    std::string address() const { return fmt::format("http://127.0.0.1:{}", port_); }

    /// Makes a file of a repository: "models/org/name/main/config.json".
    void add(const std::string& path, const std::string& content) const {
        std::filesystem::create_directories((folder_ / path).parent_path());
        std::ofstream(folder_ / path, std::ios::binary) << content;
    }
    /// See hub_server.py.
    void set_faults(const std::vector<Json>& faults) const {
        std::ofstream(folder_ / "faults.json") << Json(faults).dump();
    }
    std::string content(const std::string& path) const {
        std::ifstream in(folder_ / path, std::ios::binary);
        return std::string(std::istreambuf_iterator<char>(in), {});
    }
    /// The requests so far whose paths contain this.
    std::vector<Json> requests(const std::string& part = "") const {
        std::vector<Json> found;
        std::istringstream lines(content("requests.log"));
        for (std::string line; std::getline(lines, line);)
            if (Json entry = Json::parse(line);
                entry["path"].get<std::string>().find(part) != std::string::npos)
                found.push_back(std::move(entry));
        return found;
    }

  private:
    std::filesystem::path folder_;
    pid_t process_ = -1;
    int alive_ = -1;
    int port_ = 0;
};

/// Sets variables of the environment for a time.
class Variables {
  public:
    explicit Variables(const std::map<std::string, std::string>& values) {
        for (const auto& [name, value] : values) {
            const char* before = std::getenv(name.c_str());
            before_.emplace_back(name, before == nullptr ? std::optional<std::string>() : before);
            setenv(name.c_str(), value.c_str(), 1);
        }
    }
    Variables(const std::string& name, const std::string& value)
        : Variables(std::map<std::string, std::string>{{name, value}}) {}
    ~Variables() {
        for (const auto& [name, value] : before_)
            value ? setenv(name.c_str(), value->c_str(), 1) : unsetenv(name.c_str());
    }
    Variables(const Variables&) = delete;
    Variables& operator=(const Variables&) = delete;

  private:
    std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

/// What the environment says about the Hub in a test: this server, and a home of its own.
inline std::map<std::string, std::string> hub_variables(const HubServer& server,
                                                        const std::filesystem::path& home) {
    return {{"HF_ENDPOINT", server.address()},
            {"HF_HOME", home.string()},
            {"HF_HUB_DISABLE_PROGRESS_BARS", "1"},
            {"HF_HUB_CACHE", ""},
            {"HUGGINGFACE_HUB_CACHE", ""},
            {"TRANSFORMERS_CACHE", ""},
            {"HF_DATASETS_CACHE", ""},
            {"HF_TOKEN", ""},
            {"HUGGING_FACE_HUB_TOKEN", ""},
            {"HF_TOKEN_PATH", ""},
            {"HF_HUB_OFFLINE", ""},
            {"TRANSFORMERS_OFFLINE", ""},
            {"HF_DATASETS_OFFLINE", ""},
            {"no_proxy", "127.0.0.1"}};
}

/// Bytes that no compression or repetition hides an error in.
inline std::string noise(std::size_t count, unsigned seed = 1) {
    std::string bytes(count, '\0');
    for (char& byte : bytes) {
        seed = seed * 1664525u + 1013904223u;
        byte = static_cast<char>(seed >> 24);
    }
    return bytes;
}

}  // namespace drover::test
