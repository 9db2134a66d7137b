#include "src/distributed/job_secret.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "hybrid_trainer/core/error.h"
#include "src/distributed/host_ranks.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

TEST(JobSecret, UsesLauncherSecretIfGiven) {
  const auto in = [](const char* wanted, const char* value) {
    return secret_of_launcher(
        [=](const char* name) { return std::string(name) == wanted ? value : nullptr; });
  };
  EXPECT_EQ(in("HYBRID_SECRET", "a"), "a");
  EXPECT_EQ(in("OMPI_MCA_orte_precondition_transports", "b"), "b");
  EXPECT_EQ(in("HYBRID_SECRET", ""), "");
  EXPECT_EQ(in("RANK", "1"), "");
  EXPECT_EQ(JobSecret(1, "a", "/nowhere/x").obtain(), "a");
}

TEST(JobSecret, StoresSecretInPrivateTemporaryFile) {
  const TemporaryFolder folder;
  const fs::path file = secret_file_of(folder / "runs/first/");
  EXPECT_EQ(file.filename(), ".first.secret");
  EXPECT_EQ(file, secret_file_of(folder / "runs/first"));
  JobSecret other(1, "", file);
  EXPECT_EQ(other.obtain(), "");
  {
    JobSecret first(0, "", file);
    const std::string secret = first.obtain();
    EXPECT_EQ(secret.size(), 64u);
    EXPECT_EQ(first.obtain(), secret);
    EXPECT_EQ(other.obtain(), secret);
    EXPECT_EQ(fs::status(file).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  }
  EXPECT_FALSE(fs::exists(file));
}

TEST(JobSecret, RejectsLinksAndPublicFiles) {
  const TemporaryFolder folder;
  const fs::path file = folder / "secret", target = folder / "target";
  folder.write("target", std::string(64, 'x'));
  fs::permissions(target, fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink(target, file);
  JobSecret other(1, "", file);
  EXPECT_EQ(other.obtain(), "") << "a link";
  {
    JobSecret first(0, "", file);
    const std::string secret = first.obtain();
    EXPECT_EQ(other.obtain(), secret);
    EXPECT_NE(secret, std::string(64, 'x'));
  }
  EXPECT_EQ(fs::file_size(target), 64u) << "the link is not followed";
  folder.write("secret", std::string(64, 'y'));
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write | fs::perms::others_read);
  EXPECT_EQ(other.obtain(), "") << "everybody can read it";
  JobSecret blind(0, "", folder / "target/under");
  EXPECT_THROW(blind.obtain(), IoError);
}

TEST(JobSecret, RanksAgreeOnOneSecret) {
  const TemporaryFolder folder;
  std::vector<std::string> secrets(3);
  const auto agree = [&](const std::vector<std::string>& given) {
    run_thread_ranks(3, [&](Communicator& ranks) {
      const auto rank = static_cast<std::size_t>(ranks.rank());
      JobSecret secret(ranks.rank(), given[rank], folder / "secret");
      secrets[rank] = secret.agree(ranks);
    });
    EXPECT_EQ(secrets[0], secrets[1]);
    EXPECT_EQ(secrets[0], secrets[2]);
    return secrets[0];
  };
  EXPECT_EQ(agree({"a", "a", "a"}), "a");
  EXPECT_EQ(agree({"", "", ""}).size(), 64u);
  EXPECT_EQ(agree({"a", "", "a"}).size(), 64u);
  EXPECT_EQ(agree({"a", "b", "a"}).size(), 64u);
}

}  // namespace
}  // namespace hybrid_trainer
