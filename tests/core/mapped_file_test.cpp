#include "core/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

namespace drover {
namespace {

struct End {
    int status = 0;
    std::string said;
};

/// Does `work` in a separate process.
End end_of(const std::function<void()>& work) {
    int said[2];
    EXPECT_EQ(pipe(said), 0);
    const pid_t child = fork();
    if (child == 0) {
        dup2(said[1], STDERR_FILENO);
        name_shortened_files();
        work();
        _exit(7);
    }
    close(said[1]);
    End end;
    char buffer[512];
    for (ssize_t count = 0; (count = read(said[0], buffer, sizeof buffer)) > 0;)
        end.said.append(buffer, static_cast<std::size_t>(count));
    close(said[0]);
    waitpid(child, &end.status, 0);
    return end;
}

class ShortenedFiles : public ::testing::Test {
  protected:
    ShortenedFiles() {
        char name[] = "/tmp/drover-shortened-XXXXXX";
        close(mkstemp(name));
        path_ = name;
        std::ofstream(path_) << std::string(100'000, 'x');
    }
    ~ShortenedFiles() override { std::filesystem::remove(path_); }

    std::filesystem::path path_;
};

TEST_F(ShortenedFiles, AreNamedAndEndTheProgram) {
    const auto read_shortened = [&] {
        const MappedFile other("/proc/self/exe"), file(path_);
        std::filesystem::resize_file(path_, 100);
        volatile char last = file.bytes().back();
        static_cast<void>(last);
    };
    for (const bool on_a_thread : {false, true}) {
        std::ofstream(path_) << std::string(100'000, 'x');
        const End end = end_of([&] {
            if (on_a_thread)
                std::thread(read_shortened).join();
            else
                read_shortened();
        });
        ASSERT_TRUE(WIFEXITED(end.status)) << end.status;
        EXPECT_EQ(WEXITSTATUS(end.status), 1);
        EXPECT_TRUE(end.said.starts_with("drover: " + path_.string() + " became shorter while it was read"))
            << end.said;
        EXPECT_EQ(std::count(end.said.begin(), end.said.end(), '\n'), 1);
    }
}

TEST_F(ShortenedFiles, OtherBusErrorsEndTheProgramAsBefore) {
    const End end = end_of([] { raise(SIGBUS); });
    ASSERT_TRUE(WIFSIGNALED(end.status)) << end.status;
    EXPECT_EQ(WTERMSIG(end.status), SIGBUS);
    EXPECT_EQ(end.said, "");
}

}  // namespace
}  // namespace drover
