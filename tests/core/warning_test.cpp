#include "src/core/messages.h"

#include <gtest/gtest.h>

#include <iostream>
#include <sstream>

namespace hybrid_trainer {
namespace {

TEST(Warning, PrintsEachMessageOnce) {
  std::ostringstream said;
  send_warnings_to(&said);
  warn("model/config.json", "ignores \"a\"");
  warn("run/config.json", "ignores \"a\"");  // a copy of the file
  warn("run/config.json", "ignores \"b\"");
  EXPECT_EQ(said.str(),
            "warning: model/config.json: ignores \"a\"\nwarning: run/config.json: ignores \"b\"\n");
  send_warnings_to(nullptr);
  warn("run/config.json", "ignores \"c\"");
  std::ostringstream later;
  send_warnings_to(&later);
  warn("run/config.json", "ignores \"b\"");
  EXPECT_EQ(later.str(), "warning: run/config.json: ignores \"b\"\n");
  later.str("");
  warn("x", std::string(3999, 'a') + "äb");
  EXPECT_EQ(later.str(), "warning: x: " + std::string(3999, 'a') + "…\n");
  send_warnings_to(&std::cerr);
}

}  // namespace
}  // namespace hybrid_trainer
