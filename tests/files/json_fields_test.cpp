#include "src/files/config_fields.h"

#include <gtest/gtest.h>

#include <boost/json/value.hpp>

#include "hybrid_trainer/core/error.h"
#include "src/files/json.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

enum class Shade { kLight, kDark };
const std::vector<std::string>& enum_names(Shade) {
  static const std::vector<std::string> names{"light", "dark"};
  return names;
}

struct Optimizer {
  std::string name = "adamw";
  double learning_rate = 3e-4;
  std::vector<double> betas{0.9, 0.95};
  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"name", self.name, "Which rule updates the weights.", Range{}, {"adamw", "muon"}});
    visit(Field{"learning_rate", self.learning_rate, "Largest step size.", Range::above(0)});
    visit(Field{"betas", self.betas, "Decay rates of the moments.", Range::fraction()});
  }
  bool operator==(const Optimizer&) const = default;
};

struct Group {
  std::string match;
  std::optional<double> learning_rate;
  std::optional<std::int64_t> bits;
  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"match", self.match, "Which weights."});
    visit(Field{"learning_rate", self.learning_rate, "Largest step size.", Range::above(0)});
    visit(Field{"bits", self.bits, "Bits of the state."});
  }
  bool operator==(const Group&) const = default;
};

struct Config {
  Optimizer optimizer;
  std::int64_t steps = 100;
  int threads = 2;
  bool shuffle = true;
  Shade shade = Shade::kDark;
  std::string folder;
  std::vector<Group> groups{};
  double decay = 0.9;
  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"optimizer", self.optimizer, "How weights change."});
    visit(Field{"groups", self.groups, "Other weights."});
    visit(Field{"steps", self.steps, "Steps of the run.", Range::at_least(1)});
    visit(Field{"threads", self.threads, "Threads."});
    visit(Field{"shuffle", self.shuffle, "Random order."});
    visit(Field{"shade", self.shade, "Colours."});
    visit(Field{"folder", self.folder, "Any folder."});
    visit(constant("decay", self.decay, Range::fraction()));
  }
  bool operator==(const Config&) const = default;
};

class ReadConfig : public ::testing::Test {
 protected:
  Config read(const std::string& text) {
    write_text(file_, text);
    Config config;
    read_config(config, file_);
    return config;
  }
  std::vector<std::string> problems(const std::string& text) {
    try {
      read(text);
    } catch (const ConfigError& error) {
      for (const std::string& problem : error.problems()) EXPECT_TRUE(contains(problem, "c.json"));
      return error.problems();
    }
    ADD_FAILURE() << "accepted: " << text;
    return {""};
  }
  std::string problem(const std::string& text) {
    const auto all = problems(text);
    EXPECT_EQ(all.size(), 1u) << text;
    return all[0];
  }
  TemporaryFolder folder_;
  std::string file_ = folder_ / "c.json";
};

TEST_F(ReadConfig, RoundTripsWrittenConfig) {
  Config config;
  EXPECT_EQ(read(config_json(config)), config);
  config = {{"muon", 0.1 + 0.2, {0, 1e-300, 0.12345678901234567}},
            1LL << 62,
            -7,
            false,
            Shade::kLight,
            "a \"b\"\n\xC3\xA4"};
  EXPECT_EQ(read(config_json(config)), config);
}

TEST_F(ReadConfig, WritesNumbersInShortestForm) {
  const std::string text = config_json(Config{});
  EXPECT_TRUE(contains(text, "\"learning_rate\": 0.0003,"));
  EXPECT_TRUE(contains(text, "\"shade\": \"dark\""));
}

TEST_F(ReadConfig, KeepsDefaultsAndAllowsSchemaKey) {
  Config expected;
  expected.steps = 7;
  EXPECT_EQ(read(R"({"$schema": "s.json", "steps": 7, "optimizer": {}})"), expected);
}

TEST_F(ReadConfig, ReadsIntegerIntoDouble) {
  EXPECT_EQ(
      read(R"({"optimizer": {"learning_rate": 1, "betas": [0, 0.5]}})").optimizer.learning_rate,
      1.0);
}

TEST_F(ReadConfig, UnknownKeyReportsLineAndSuggestion) {
  const std::string message = problem("{\n  \"optimizer\": {\n    \"learning_rat\": 1}}");
  EXPECT_TRUE(contains(
      message, "c.json:3: optimizer.learning_rat: unknown key; did you mean learning_rate?"));
}

TEST_F(ReadConfig, UnknownKeySuggestsOtherGroup) {
  EXPECT_TRUE(
      contains(problem(R"({"learning_rate": 1})"), "did you mean optimizer.learning_rate?"));
}

TEST_F(ReadConfig, RejectsDuplicateKeyWithPath) {
  EXPECT_TRUE(contains(problem("{\"optimizer\": {\"name\": \"muon\",\n \"name\": \"adamw\"}}"),
                       "c.json:2: optimizer.name: the key is given twice"));
}

TEST_F(ReadConfig, TypeErrorReportsGotAndWanted) {
  EXPECT_TRUE(
      contains(problem(R"({"steps": "many"})"), "steps: got \"many\", want a whole number"));
  EXPECT_TRUE(contains(problem(R"({"steps": 1.0})"), "steps: got 1 written with a decimal point"));
  EXPECT_TRUE(contains(problem(R"({"steps": 18446744073709551616})"), "want a whole number"));
  EXPECT_TRUE(contains(problem(R"({"shuffle": 1})"), "shuffle: got 1, want true or false"));
  EXPECT_TRUE(contains(problem(R"({"optimizer": 3})"), "optimizer: got 3, want an object"));
  EXPECT_TRUE(
      contains(problem(R"({"optimizer": {"betas": [0.9, "x"]}})"), "want a list of numbers"));
  EXPECT_TRUE(contains(problem(R"({"folder": null})"), "folder: got null, want a string"));
}

TEST_F(ReadConfig, ChecksRangesAndChoices) {
  EXPECT_TRUE(contains(problem(R"({"steps": 0})"), "steps: got 0, want a number in [1, inf)"));
  EXPECT_TRUE(contains(problem(R"({"threads": 3000000000})"), "threads: got 3000000000"));
  EXPECT_TRUE(contains(problem(R"({"optimizer": {"betas": [0.9, 1]}})"), "optimizer.betas: got 1"));
  EXPECT_TRUE(contains(problem(R"({"optimizer": {"name": "adam"}})"), "did you mean adamw?"));
  EXPECT_TRUE(contains(problem(R"({"shade": "drak"})"), "did you mean dark?"));
}

TEST_F(ReadConfig, CollectsAllProblems) {
  EXPECT_EQ(
      problems(R"({"steps": 0, "shade": 1, "optimzer": {}, "threads": 1, "threads": true})").size(),
      5u);
}

TEST_F(ReadConfig, StopsAfterHundredProblems) {
  std::string text = "{";
  for (int i = 0; i < 20'000; ++i) text += concat(i > 0 ? "," : "", "\"key", i, "\":1");
  EXPECT_EQ(problems(text + "}").size(), 100u);
}

TEST_F(ReadConfig, SyntaxErrorReportsLineAndColumn) {
  EXPECT_TRUE(contains(problem("{\n  \"steps\": 1,,\n}"), "c.json:2:14: not valid JSON"));
  for (const char* text :
       {"", "{", "{\"steps\": NaN}", "{\"steps\": Infinity}", "{} {}", "{}\n}", "{'steps': 1}",
        "// no\n{}", "{\"steps\": 01}", "{\"folder\": \"\xff\"}", "{\"steps\": 1e999}"}) {
    EXPECT_TRUE(contains(problem(text), "not valid JSON")) << text;
  }
}

TEST_F(ReadConfig, LimitsDepthAndSize) {
  EXPECT_TRUE(contains(problem(std::string(100'000, '[')), "not valid JSON"));
  EXPECT_TRUE(contains(problem("{}" + std::string(2 << 20, ' ')), "bytes"));
}

TEST_F(ReadConfig, RejectsNonObject) {
  EXPECT_TRUE(contains(problem("[1, 2]"), "got [1,2], want an object"));
}

TEST_F(ReadConfig, ReportsMissingFile) {
  Config config;
  EXPECT_TRUE(contains(message_of<MissingInput>([&] { read_config(config, "absent.json"); }),
                       "absent.json"));
  EXPECT_THROW(read_config(config, folder_.path()), ConfigError);
}

TEST(SetField, ConvertsTextToFieldType) {
  Config config, expected;
  expected = {{"muon", 2e-3, {0.8, 0.9}}, 200, 1, false, Shade::kLight, "7"};
  set_field(config, "optimizer.name", "muon");
  set_field(config, "optimizer.learning_rate", "2e-3");
  set_field(config, "optimizer.betas", "[0.8,0.9]");
  set_field(config, "steps", "200");
  set_field(config, "threads", "1");
  set_field(config, "shuffle", "false");
  set_field(config, "shade", "light");
  set_field(config, "folder", "7");
  EXPECT_EQ(config, expected);
}

TEST(SetField, RejectsWithSameMessagesAsReadConfig) {
  Config config;
  const auto problem = [&](const char* path, const char* text) {
    return message_of<ConfigError>([&] { set_field(config, path, text); });
  };
  EXPECT_TRUE(contains(problem("optimizer.learning_rte", "1"), "did you mean learning_rate?"));
  EXPECT_TRUE(contains(problem("optimiser.name", "x"),
                       "optimiser.name: unknown key; did you mean optimizer?"));
  EXPECT_TRUE(contains(problem("steps.more", "1"), "steps.more: unknown key"));
  EXPECT_TRUE(contains(problem("optimizer", "1"), "optimizer: is a group"));
  EXPECT_TRUE(contains(problem("", "1"), "unknown key"));
  EXPECT_TRUE(contains(problem("steps", "1.0"), "want a whole number"));
  EXPECT_TRUE(contains(problem("steps", "many"), "steps: got \"many\", want a whole number"));
  EXPECT_TRUE(contains(problem("steps", ""), "want a whole number"));
  EXPECT_TRUE(contains(problem("optimizer.learning_rate", "nan"), "want a number"));
  EXPECT_TRUE(contains(problem("folder", "\xff"), "UTF-8"));
  EXPECT_EQ(config, Config{});
}

TEST_F(ReadConfig, RoundTripsListWithOptionalKeys) {
  Config config;
  config.groups = {{.match = "a", .learning_rate = 0.1, .bits = {}},
                   {.match = "b*", .learning_rate = {}, .bits = 8}};
  const std::string text = config_json(config);
  EXPECT_EQ(read(text), config) << text;
  EXPECT_EQ(text.find("null"), std::string::npos) << text;
  EXPECT_EQ(read("{\"groups\": []}"), Config{});
  const auto tree = field_tree(config);
  EXPECT_EQ(field_text(tree.fields[1]), "[{match: a, learning_rate: 0.1}, {match: b*, bits: 8}]");
}

TEST_F(ReadConfig, WritesConstantsOnlyWhenChanged) {
  Config config;
  EXPECT_EQ(config_json(config).find("decay"), std::string::npos);
  config.decay = 0.5;
  EXPECT_EQ(read(config_json(config)), config);
  EXPECT_EQ(config_markdown(config).find("decay"), std::string::npos);
  EXPECT_EQ(json_schema(config).find("decay"), std::string::npos);
  config.decay = 1;
  std::vector<std::string> found;
  collect_range_problems(config, "", found);
  EXPECT_EQ(found, std::vector<std::string>{"decay: got 1, want a number in [0, 1)"});
}

TEST_F(ReadConfig, ListErrorsNameElementIndex) {
  EXPECT_TRUE(contains(problem("{\"groups\": [{}, {\"mach\": \"a\"}]}"),
                       "groups[1].mach: unknown key; did you mean match?"));
  EXPECT_TRUE(contains(problem("{\"groups\": [{\"learning_rate\": 0}]}"),
                       "groups[0].learning_rate: got 0, want a number in (0, inf)"));
  EXPECT_TRUE(contains(problem("{\"groups\": [3]}"), "groups[0]: got 3, want an object"));
  EXPECT_TRUE(
      contains(problem("{\"groups\": {}}"), "groups: got an object, want a list of objects"));
  Config config;
  config.groups = {{.match = "a", .learning_rate = -1.0, .bits = {}}};
  std::vector<std::string> found;
  collect_range_problems(config, "", found);
  EXPECT_EQ(found,
            std::vector<std::string>{"groups[0].learning_rate: got -1, want a number in (0, inf)"});
}

TEST(SetField, SetsWholeListsOnly) {
  Config config;
  set_field(config, "groups", "[{\"match\": \"a\", \"bits\": 8}]");
  EXPECT_EQ(config.groups, (std::vector<Group>{{.match = "a", .learning_rate = {}, .bits = 8}}));
  set_field(config, "groups", "[]");
  EXPECT_TRUE(config.groups.empty());
  EXPECT_THROW(set_field(config, "groups", "a"), ConfigError);
  EXPECT_THROW(set_field(config, "groups", "[{\"mach\": 1}]"), ConfigError);
  EXPECT_THROW(set_field(config, "groups.match", "a"), ConfigError);
}

TEST(JsonSchema, DescribesEveryField) {
  const auto schema = parse_json_text(json_schema(Config{}), "schema").get_object();
  EXPECT_EQ(schema.at("$schema"), "https://json-schema.org/draft/2020-12/schema");
  EXPECT_EQ(schema.at("additionalProperties"), false);
  const auto& properties = schema.at("properties").as_object();
  EXPECT_EQ(properties.size(), 8u);
  EXPECT_EQ(properties.at("steps").at("type"), "integer");
  EXPECT_EQ(properties.at("steps").at("minimum"), 1);
  EXPECT_EQ(properties.at("steps").at("default"), 100);
  EXPECT_EQ(properties.at("shade").at("enum").as_array().size(), 2u);
  const auto& optimizer = properties.at("optimizer").as_object();
  EXPECT_EQ(optimizer.at("additionalProperties"), false);
  EXPECT_EQ(optimizer.at("properties").at("learning_rate").at("exclusiveMinimum"), 0);
  EXPECT_EQ(optimizer.at("properties").at("betas").at("items").at("exclusiveMaximum"), 1);
  const auto& group = properties.at("groups").at("items").as_object();
  EXPECT_EQ(properties.at("groups").at("type"), "array");
  EXPECT_EQ(group.at("properties").at("bits").at("type"), "integer");
  EXPECT_FALSE(group.at("properties").at("bits").as_object().contains("default"));
}

TEST(ConfigMarkdown, HasOneRowPerField) {
  const std::string text = config_markdown(Config{});
  EXPECT_TRUE(
      contains(text, "| `steps` | `100` | whole number in [1, inf) | Steps of the run. |\n"));
  EXPECT_TRUE(contains(text, "## optimizer\n\nHow weights change.\n\n| key |"));
  EXPECT_TRUE(contains(text, "| `optimizer.betas` | `[0.9, 0.95]` | list of numbers in [0, 1) |"));
  EXPECT_TRUE(contains(text, "| `groups[].bits` | left out | whole number | Bits of the state. |"));
  EXPECT_TRUE(contains(text, "| `optimizer.name` | `\"adamw\"` | adamw, muon |"));
  EXPECT_TRUE(contains(text, "| `optimizer.learning_rate` | `0.0003` | number in (0, inf) |"));
}

}  // namespace
}  // namespace hybrid_trainer
