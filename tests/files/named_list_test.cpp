#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "hybrid_trainer/core/error.h"
#include "src/files/config_fields.h"

// Lists whose elements have names are written as one JSON object.
namespace hybrid_trainer {
namespace {

struct Element {
  std::string name{};
  std::optional<double> share{};
  std::optional<std::string> form{};
  static constexpr auto kName = &Element::name;
  bool operator==(const Element&) const = default;
  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"share", self.share, "A share.", Range::between(0, 1)});
    visit(Field{"form", self.form, "A form.", Range{}, {"round", "square"}});
  }
};

struct Whole {
  std::int64_t count = 3;
  std::vector<Element> parts{};
  bool operator==(const Whole&) const = default;
  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"count", self.count, "A count."});
    visit(Field{"parts", self.parts, "Parts by name."});
  }
};

Whole read_whole(const std::string& text) {
  Whole whole;
  read_config_text(whole, text, "file");
  return whole;
}

std::string problem_when(const std::function<void()>& f) {
  try {
    f();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was thrown";
}
std::string problem_of(const std::string& text) {
  return problem_when([&] { read_whole(text); });
}
std::string problem_of_setting(const std::string& path, const std::string& text) {
  return problem_when([&] {
    Whole whole;
    set_field(whole, path, text);
  });
}

bool holds_text(const std::string& text, const char* part) { return text.find(part) != text.npos; }

const Whole kWhole{.parts = {{.name = "video.*", .share = 0.5, .form = "round"},
                             {.name = "a.b", .share = {}, .form = "square"}}};

TEST(NamedList, WritesObjectKeyedByNameInOrder) {
  const std::string text = config_json(kWhole);
  EXPECT_TRUE(holds_text(text, R"("video.*": {)")) << text;
  EXPECT_FALSE(holds_text(text, R"("name")")) << text;
  EXPECT_EQ(read_whole(text), kWhole);
  EXPECT_EQ(read_whole(config_json(Whole{})), Whole{});
  EXPECT_TRUE(read_whole("{\"parts\": {}}").parts.empty());
  EXPECT_EQ(field_text(*field_at(field_tree(kWhole), "parts")),
            "{video.*: {share: 0.5, form: round}, a.b: {form: square}}");
}

TEST(NamedList, ErrorsNameElement) {
  EXPECT_TRUE(holds_text(problem_of(R"({"parts": {"video.*": {"shar": 1}}})"),
                         "file:1: parts.video.*.shar: unknown key; did you mean share?"))
      << problem_of(R"({"parts": {"video.*": {"shar": 1}}})");
  EXPECT_TRUE(holds_text(problem_of(R"({"parts": {"v": {"share": 2}}})"),
                         "parts.v.share: got 2, want a number in [0, 1]"));
  EXPECT_TRUE(holds_text(problem_of(R"({"parts": {"v": {"form": "flat"}}})"), "parts.v.form: got"));
  EXPECT_TRUE(holds_text(problem_of(R"({"parts": {"v": 3}})"), "parts.v: got 3, want an object"));
  EXPECT_TRUE(
      holds_text(problem_of(R"({"parts": []})"), "parts: got [], want an object of objects"));
  EXPECT_TRUE(
      holds_text(problem_of(R"({"parts": {"v": {"name": "w"}}})"), "parts.v.name: unknown"));
  EXPECT_TRUE(holds_text(problem_of(R"({"parts": {"v": {}, "v": {}}})"), "is given twice"));
  Whole whole{.parts = {{.name = "v", .share = 7}}};
  std::vector<std::string> problems;
  collect_range_problems(whole, "", problems);
  EXPECT_EQ(problems, std::vector<std::string>{"parts.v.share: got 7, want a number in [0, 1]"});
}

TEST(NamedList, SetsWholeListOrSingleKeys) {
  Whole whole;
  set_field(whole, "parts.video.*.share", "0.5");
  set_field(whole, "parts.video.*.form", "round");
  set_field(whole, "parts.a.b.form", "square");
  EXPECT_EQ(whole, kWhole);
  EXPECT_EQ(field_text(*field_at(field_tree(whole), "parts.a.b.form")), "square");
  EXPECT_EQ(field_at(field_tree(whole), "parts.c.form"), nullptr);
  set_field(whole, "parts", R"({"v": {"share": 1}})");
  EXPECT_EQ(whole.parts, (std::vector<Element>{{.name = "v", .share = 1, .form = {}}}));
  EXPECT_THROW(set_field(whole, "parts.w.share", "2"), ConfigError);
  EXPECT_EQ(whole.parts.size(), 1u) << "a rejected value adds no element";
  EXPECT_TRUE(holds_text(problem_of_setting("parts", "[]"), "want an object of objects"));
  EXPECT_TRUE(holds_text(problem_of_setting("parts.v.shar", "1"), "did you mean share?"));
  EXPECT_TRUE(holds_text(problem_of_setting("parts.v.share", "2"), "want a number in [0, 1]"));
  EXPECT_TRUE(holds_text(problem_of_setting("parts.share", "1"), "want parts.NAME.KEY=VALUE"));
}

TEST(NamedList, SchemaDescribesObjectOfObjects) {
  const auto schema = boost::json::parse(json_schema(Whole{})).as_object();
  const auto& parts = schema.at("properties").at("parts").as_object();
  EXPECT_EQ(parts.at("type"), "object");
  EXPECT_TRUE(parts.at("additionalProperties").at("properties").as_object().contains("share"));
  EXPECT_FALSE(parts.contains("properties"));
  const std::string page = config_markdown(Whole{});
  EXPECT_TRUE(holds_text(page, "| `parts` | `{}` | object of objects | Parts by name. |")) << page;
  EXPECT_TRUE(holds_text(page, "| `parts.NAME.share` |")) << page;
}

}  // namespace
}  // namespace hybrid_trainer
