// What goes between launchers, and what comes from elsewhere.

#include "app/launch_message.h"

#include <gtest/gtest.h>

#include <random>

#include "app/launch_agent.h"
#include "app/launch_network.h"
#include "core/error.h"

namespace drover {
namespace {

using Words = std::vector<std::string>;

const std::vector<LaunchMessage> examples{
    {LaunchSubject::hello, {launch_protocol, any_node, 4, 8}, {"job", "host"}},
    {LaunchSubject::welcome, {3}, {}},
    {LaunchSubject::refused, {}, {"another job"}},
    {LaunchSubject::run, {1}, {"orted", "", std::string("\0x", 2)}},
    {LaunchSubject::output, {1}, {std::string(100'000, 'x')}},
    {LaunchSubject::ended, {1, 137}, {""}},
    {LaunchSubject::stop, {15}, {}},
    {LaunchSubject::finish, {-1}, {"why"}},
};

TEST(LaunchMessages, ComeOutAsTheyWentIn) {
    std::string bytes;
    for (const LaunchMessage& message : examples) bytes += encode_launch_message(message);
    for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, bytes.size()}) {
        LaunchMessageReader reader(largest_launch_message);
        std::vector<LaunchMessage> read;
        for (std::size_t place = 0; place < bytes.size(); place += piece) {
            reader.add(std::string_view(bytes).substr(place, piece));
            while (auto message = reader.next()) read.push_back(*message);
        }
        EXPECT_EQ(read, examples);
    }
}

TEST(LaunchMessages, BoundsAreKept) {
    LaunchMessageReader reader(largest_launch_hello);
    reader.add(encode_launch_message(examples[4]).substr(0, 4));
    EXPECT_THROW(reader.next(), Error);
    LaunchMessage long_one{LaunchSubject::run, {1}, Words(5000, "x")};
    EXPECT_THROW(encode_launch_message(long_one), Error);
    long_one.texts = {std::string(largest_launch_message, 'x')};
    EXPECT_THROW(encode_launch_message(long_one), Error);
}

/// Reads until nothing more comes; whether all of it was messages.
bool reads(std::string_view bytes) {
    LaunchMessageReader reader(largest_launch_message);
    reader.add(bytes);
    try {
        while (const auto message = reader.next()) {
            // What is read has the shape of its subject: this would fail otherwise.
            encode_launch_message(*message);
        }
    } catch (const Error&) {
        return false;
    }
    return true;
}

TEST(LaunchMessages, GarbageIsRefused) {
    EXPECT_FALSE(reads("GET / HTTP/1.1\r\n\r\n"));
    EXPECT_FALSE(reads(std::string(64, '\0')));
    EXPECT_FALSE(reads(std::string(64, '\xff')));
    EXPECT_FALSE(reads(std::string("\0\0\0\1\x63", 5)));          // unknown subject
    EXPECT_FALSE(reads(std::string("\0\0\0\3\2\0\0", 7)));        // half a number
    EXPECT_FALSE(reads(std::string("\0\0\0\6\7\0\0\0\1x", 10)));  // half a length behind a whole message
    EXPECT_FALSE(reads(std::string("\0\0\0\5\3\xff\xff\xff\xff", 9)));  // a text of 4 GiB
    EXPECT_TRUE(reads(std::string("\0\0\0\5\7\0\0\0\1", 9)));

    std::mt19937 random(1);
    int whole = 0;
    for (int round = 0; round < 20'000; ++round) {
        std::string bytes = encode_launch_message(examples[random() % 4]);
        for (unsigned changes = random() % 4; changes > 0; --changes)
            bytes[random() % bytes.size()] = static_cast<char>(random());
        whole += reads(bytes.substr(0, bytes.size() - random() % 3));
    }
    EXPECT_GT(whole, 1000);
    EXPECT_LT(whole, 19'000);
}

TEST(LaunchDaemonWords, AreThoseThatAShellWouldSee) {
    EXPECT_EQ(
        daemon_words(R"( orted -mca ess "env" -mca uri "1.0;tcp://10.0.0.1:5" -x 'a $b' \"c\ d)"),
        (Words{"orted", "-mca", "ess", "env", "-mca", "uri", "1.0;tcp://10.0.0.1:5", "-x", "a $b", "\"c d"}));
    // As mpirun writes it where Open MPI has a folder of its own.
    EXPECT_EQ(
        daemon_words("( test ! -r ./.profile || . ./.profile; PATH=/opt/mpi/bin:$PATH ; export PATH ; "
                     "LD_LIBRARY_PATH=/opt/mpi/lib:${LD_LIBRARY_PATH:-} ; /opt/mpi/bin/prted --leave )"),
        (Words{"prted", "--leave"}));
}

TEST(LaunchDaemonWords, NothingElseIsStarted) {
    for (const char* line :
         {"rm -rf x", "", "orted; rm x", "orted && rm x", "orted $(rm x)", "orted `rm x`", "orted \"$HOME\"",
          "orted > file", "orted | sh", "PATH=x orted", "sh -c orted", "orted 'open", "myorted"})
        EXPECT_THROW(daemon_words(line), Error) << line;
}

TEST(LaunchNetwork, KnowsItsOwnAddresses) {
    EXPECT_EQ(network_of_own_address("127.0.0.1"), "127.0.0.0/8");
    EXPECT_EQ(network_of_own_address("192.0.2.77"), std::nullopt);
    EXPECT_TRUE(is_in_network("10.1.2.3", "10.1.0.0/16"));
    EXPECT_FALSE(is_in_network("10.2.2.3", "10.1.0.0/16"));
    EXPECT_TRUE(is_in_network("10.2.2.3", "0.0.0.0/0"));
    EXPECT_THROW(ipv4_address_of("no such host"), Error);
}

}  // namespace
}  // namespace drover
