// Messages between launchers, and input from elsewhere.

#include "launch/message.h"

#include <gtest/gtest.h>

#include <random>

#include "core/error.h"
#include "launch/agent.h"
#include "launch/daemon_words.h"
#include "launch/network.h"
#include "launch/shown.h"
#include "support/errors.h"

namespace drover {
namespace {

using Words = std::vector<std::string>;

const std::vector<LaunchMessage> examples{
    {LaunchSubject::hello, {launch_protocol, any_node, 4, 8}, {"challenge", "host", "proof"}},
    {LaunchSubject::welcome, {3}, {}},
    {LaunchSubject::refused, {}, {"another job"}},
    {LaunchSubject::run, {1}, {"orted", "", std::string("\0x", 2)}},
    {LaunchSubject::output, {1}, {std::string(100'000, 'x')}},
    {LaunchSubject::ended, {1, 137}, {""}},
    {LaunchSubject::stop, {15}, {}},
    {LaunchSubject::finish, {-1}, {"why"}},
    {LaunchSubject::challenge, {launch_protocol}, {std::string(32, '\xff')}},
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
    test::expect_error([&] { reader.next(); }, {"it would have "});
    LaunchMessage long_one{LaunchSubject::run, {1}, Words(5000, "x")};
    test::expect_error([&] { encode_launch_message(long_one); }, {"5000 words"});
    long_one.texts = {std::string(largest_launch_message, 'x')};
    test::expect_error([&] { encode_launch_message(long_one); }, {" bytes and 1 words"});
}

const LaunchKey key("a secret", "job");
/// The error for a message without the right seal.
constexpr std::string_view unsealed = "was not sent with the job's secret";

LaunchMessageReader sealed_reader(const LaunchSeal& seal, const std::string& bytes) {
    LaunchMessageReader reader(largest_launch_message);
    reader.expect(seal);
    reader.add(bytes);
    return reader;
}

TEST(LaunchSeals, MessagesComeInOrderFromWhoHasTheKey) {
    LaunchSeals seals = key.seals("challenge", "answer");
    const LaunchSeals fresh = seals;
    std::string bytes;
    for (const LaunchMessage& message : examples) bytes += encode_launch_message(message, &seals.node);
    LaunchMessageReader reader = sealed_reader(fresh.node, bytes);
    std::vector<LaunchMessage> read;
    while (auto message = reader.next()) read.push_back(*message);
    EXPECT_EQ(read, examples);

    const std::string first = bytes.substr(0, bytes.find("proof") + 5 + LaunchSeal::mark_bytes);
    const std::string second = bytes.substr(first.size());
    EXPECT_EQ(sealed_reader(fresh.node, first).next(), examples[0]);
    // Dropped, repeated, sent back, from another connection, from another job.
    test::expect_error([&] { sealed_reader(fresh.node, second).next(); }, {unsealed});
    LaunchMessageReader repeated = sealed_reader(fresh.node, first + first);
    EXPECT_TRUE(repeated.next());
    test::expect_error([&] { repeated.next(); }, {unsealed});
    test::expect_error([&] { sealed_reader(fresh.node_0, first).next(); }, {unsealed});
    test::expect_error([&] { sealed_reader(key.seals("challenge", "other").node, first).next(); },
                       {unsealed});
    test::expect_error([&] { sealed_reader(key.seals("other", "answer").node, first).next(); }, {unsealed});
    test::expect_error(
        [&] { sealed_reader(LaunchKey("secret", "job").seals("challenge", "answer").node, first).next(); },
        {unsealed});
    test::expect_error(
        [&] { sealed_reader(LaunchKey("a secret", "b").seals("challenge", "answer").node, first).next(); },
        {unsealed});
    for (std::size_t place = 4; place < first.size(); ++place) {
        std::string changed = first;
        changed[place] = static_cast<char>(changed[place] ^ 1);
        SCOPED_TRACE(place);
        test::expect_error([&] { sealed_reader(fresh.node, changed).next(); }, {unsealed});
    }
}

TEST(LaunchSeals, ARefusalNeedsNoneUntilTheOtherSideIsKnown) {
    LaunchSeals seals = key.seals("challenge", "answer");
    const LaunchSeal fresh = seals.node_0;
    const std::string refusal = encode_launch_message(examples[2]);
    EXPECT_EQ(sealed_reader(fresh, refusal).next(), examples[2]);
    test::expect_error([&] { sealed_reader(fresh, encode_launch_message(examples[1])).next(); }, {unsealed});
    LaunchMessageReader reader =
        sealed_reader(fresh, encode_launch_message(examples[1], &seals.node_0) + refusal);
    EXPECT_EQ(reader.next(), examples[1]);
    test::expect_error([&] { reader.next(); }, {unsealed});
}

TEST(LaunchKeys, AProofIsOfOneChallengeAndOneHello) {
    LaunchMessage hello = examples[0];
    const std::string proof = key.proof("challenge", hello);
    hello.texts[2] = "another proof";
    EXPECT_EQ(key.proof("challenge", hello), proof);
    EXPECT_NE(key.proof("other", hello), proof);
    EXPECT_NE(LaunchKey("a secret", "other").proof("challenge", hello), proof);
    for (std::size_t number = 0; number < 4; ++number) {
        LaunchMessage other = hello;
        ++other.numbers[number];
        EXPECT_NE(key.proof("challenge", other), proof) << number;
    }
    hello.texts[1] = "other";
    EXPECT_NE(key.proof("challenge", hello), proof);
    EXPECT_NE(new_launch_challenge(), new_launch_challenge());
}

/// Reads until the end; returns whether all of it was messages.
bool reads(std::string_view bytes) {
    LaunchMessageReader reader(largest_launch_message);
    reader.add(bytes);
    try {
        while (const auto message = reader.next()) {
            // A message that was read has the shape of its subject; otherwise this would fail.
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
    EXPECT_FALSE(reads(std::string("\0\0\0\6\7\0\0\0\1x", 10)));  // half a length after a complete message
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
    // As mpirun writes it if Open MPI has its own folder.
    EXPECT_EQ(
        daemon_words("( test ! -r ./.profile || . ./.profile; PATH=/opt/mpi/bin:$PATH ; export PATH ; "
                     "LD_LIBRARY_PATH=/opt/mpi/lib:${LD_LIBRARY_PATH:-} ; /opt/mpi/bin/prted --leave )"),
        (Words{"prted", "--leave"}));
}

TEST(LaunchDaemonWords, NothingElseIsStarted) {
    for (const char* line :
         {"rm -rf x", "", "orted; rm x", "orted && rm x", "orted $(rm x)", "orted `rm x`", "orted \"$HOME\"",
          "orted > file", "orted | sh", "PATH=x orted", "sh -c orted", "orted 'open", "myorted"})
        test::expect_error([&] { daemon_words(line); }, {line, "Only Open MPI's daemon"});
}

const DaemonRules plain_rules{.drover = "/opt/drover"};

void expect_taken(const Words& words, const DaemonRules& rules = plain_rules) {
    EXPECT_NO_THROW(check_daemon_words(words, rules)) << words.at(words.size() / 2);
}

/// `what` is the refused word, or the parameter and its value.
void expect_refused(const Words& words, std::string_view what, const DaemonRules& rules = plain_rules,
                    const CodePlace& where = CodePlace::here()) {
    test::expect_error([&] { check_daemon_words(words, rules); }, {what}, where);
}

TEST(LaunchDaemonRules, TakeWhatMpirunSends) {
    // From Open MPI 4.1 and 5.0.
    expect_taken({"orted",
                  "-mca",
                  "orte_leave_session_attached",
                  "1",
                  "-mca",
                  "ess",
                  "env",
                  "-mca",
                  "ess_base_jobid",
                  "1108213760",
                  "-mca",
                  "ess_base_vpid",
                  "1",
                  "-mca",
                  "ess_base_num_procs",
                  "2",
                  "-mca",
                  "orte_node_regex",
                  "vm,[2:10].1.2.3@0(2)",
                  "-mca",
                  "orte_hnp_uri",
                  "1108213760.0;tcp://127.0.0.1:45801",
                  "--mca",
                  "plm_rsh_no_tree_spawn",
                  "1",
                  "--mca",
                  "ras",
                  "^slurm,gridengine,tm,lsf",
                  "--mca",
                  "oob_tcp_if_include",
                  "10.0.0.0/8",
                  "--mca",
                  "btl_tcp_if_include",
                  "10.0.0.0/8",
                  "-mca",
                  "plm",
                  "rsh",
                  "-mca",
                  "plm_rsh_agent",
                  "/opt/drover launch-agent",
                  "-mca",
                  "rmaps_base_mapping_policy",
                  "slot",
                  "-mca",
                  "hwloc_base_binding_policy",
                  "none",
                  "-mca",
                  "pmix",
                  "^s1,s2,cray,isolated"});
    expect_taken({"prted",
                  "--leave-session-attached",
                  "--allow-run-as-root",
                  "--prtemca",
                  "ess",
                  "env",
                  "--prtemca",
                  "ess_base_nspace",
                  "prterun-a-1@0",
                  "--prtemca",
                  "prte_hnp_uri",
                  "x",
                  "--prtemca",
                  "PREFIXES",
                  "errmgr,ess,filem",
                  "--prtemca",
                  "pmix_session_server",
                  "1",
                  "--prtemca",
                  "plm_ssh_agent",
                  "/opt/drover launch-agent"});
    expect_taken({"orted"});
}

TEST(LaunchDaemonRules, TakeWhatMpirunMakesOfItsFlags) {
    // --rank-by, --display-map, --display-topo, --display-allocation and so on, as Open MPI 4.1 sends them.
    for (const char* name :
         {"rmaps_base_ranking_policy", "rmaps_base_display_map", "rmaps_base_display_topo_with_map",
          "orte_display_alloc", "rmaps_base_no_oversubscribe", "hwloc_base_use_hwthreads_as_cpus",
          "hwloc_base_cpu_set", "hwloc_base_cpu_list", "rmaps_ppr_n_pernode"})
        expect_taken({"orted", "-mca", name, "1"});
    // --output-filename writes files, so the node's own user must have given it too.
    const Words words{"orted", "-mca", "orte_output_filename", "out"};
    expect_refused(words, "orte_output_filename = \"out\"");
    expect_taken(words, {.mpirun_arguments = {"--output-filename", "out"}});
    expect_refused(words, "orte_output_filename = \"out\"",
                   {.mpirun_arguments = {"--output-filename", "other"}});
    expect_refused(words, "orte_output_filename = \"out\"", {.mpirun_arguments = {"--output-filename"}});
}

TEST(LaunchDaemonRules, RefuseWhatComesFromNode0Alone) {
    expect_refused({}, "\"\" is not Open MPI's daemon");
    expect_refused({"touch"}, "\"touch\" is not Open MPI's daemon");
    expect_refused({"/usr/bin/orted"}, "\"/usr/bin/orted\" is not Open MPI's daemon");
    expect_refused({"orted", "x"}, "\"x\"");
    expect_refused({"orted", "--prefix", "/x"}, "\"--prefix\"");
    expect_refused({"orted", "-tune", "/x"}, "\"-tune\"");
    expect_refused({"orted", "-mca", "ess"}, "\"-mca\"");
    for (const char* name : {"mca_base_component_path", "orte_fork_agent", "mca_base_param_files"})
        expect_refused({"orted", "-mca", name, "/x"}, std::string(name) + " = \"/x\"");
    expect_refused({"orted", "-mca", "plm_rsh_agent", "/tmp/mine launch-agent"},
                   "plm_rsh_agent = \"/tmp/mine launch-agent\"");
    // Parameters that the node's own user has also given are accepted.
    const Words words{"orted", "-mca", "orte_tmpdir_base", "/x"};
    constexpr std::string_view refused = "orte_tmpdir_base = \"/x\"";
    expect_refused(words, refused);
    expect_taken(words, {.mpirun_arguments = {"--mca", "orte_tmpdir_base", "/x"}});
    const auto node_with = [](const char* value) {
        return DaemonRules{.variable = [value](const std::string& name) {
            return name == "OMPI_MCA_orte_tmpdir_base" ? std::optional<std::string>(value) : std::nullopt;
        }};
    };
    expect_taken(words, node_with("/x"));
    // But not with a different value, nor if the name is the value of something else.
    expect_refused(words, refused, node_with("/y"));
    expect_refused(words, refused, {.mpirun_arguments = {"--mca", "orte_tmpdir_base", "/y"}});
    expect_refused(words, refused, {.mpirun_arguments = {"--mca", "x", "orte_tmpdir_base", "/x"}});
    expect_refused(words, refused, {.mpirun_arguments = {"-x", "orte_tmpdir_base", "/x"}});
}

TEST(LaunchShown, TextsAreShownAndControlCharactersAreNot) {
    EXPECT_EQ(shown_text("Knoten-7 é 計算機 🙂"), "Knoten-7 é 計算機 🙂");
    EXPECT_EQ(shown_text("\x1b[2J\r\n\x7f"), "\\x1b[2J\\x0d\\x0a\\x7f");
    EXPECT_EQ(shown_text("\xc2\x9b"
                         "2J"),
              "\\xc2\\x9b2J");  // CSI in one character
    EXPECT_EQ(shown_text("a\xff\xc3"
                         "b"),
              "a\\xff\\xc3"
              "b");  // not UTF-8
    EXPECT_EQ(shown_text("\xe2\x80\xae"
                         "x"),
              "\\xe2\\x80\\xae"
              "x");  // right to left
    EXPECT_EQ(shown_lines("a\n\tb\x1b"), "a\n\tb\\x1b");
}

TEST(LaunchNetwork, KnowsItsOwnAddresses) {
    EXPECT_EQ(network_of_own_address("127.0.0.1"), "127.0.0.0/8");
    EXPECT_EQ(network_of_own_address("192.0.2.77"), std::nullopt);
    EXPECT_TRUE(is_in_network("10.1.2.3", "10.1.0.0/16"));
    EXPECT_FALSE(is_in_network("10.2.2.3", "10.1.0.0/16"));
    EXPECT_TRUE(is_in_network("10.2.2.3", "0.0.0.0/0"));
    test::expect_error([&] { ipv4_address_of("no such host"); }, {"\"no such host\""});
}

}  // namespace
}  // namespace drover
