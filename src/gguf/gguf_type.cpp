#include "hybrid_trainer/gguf/gguf_type.h"

#include <algorithm>
#include <array>
#include <utility>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/narrow.h"

namespace hybrid_trainer {
namespace {

struct TypeRow {
  GgufType type;
  const char* name;
  GgufBlock block;
};

constexpr std::array<TypeRow, 12> kTypes{{{GgufType::kF32, "f32", {1, 4}},
                                          {GgufType::kF16, "f16", {1, 2}},
                                          {GgufType::kBF16, "bf16", {1, 2}},
                                          {GgufType::kQ4_0, "q4_0", {32, 18}},
                                          {GgufType::kQ4_1, "q4_1", {32, 20}},
                                          {GgufType::kQ5_0, "q5_0", {32, 22}},
                                          {GgufType::kQ5_1, "q5_1", {32, 24}},
                                          {GgufType::kQ8_0, "q8_0", {32, 34}},
                                          {GgufType::kQ4_K, "q4_K", {256, 144}},
                                          {GgufType::kQ5_K, "q5_K", {256, 176}},
                                          {GgufType::kQ6_K, "q6_K", {256, 210}},
                                          {GgufType::kMXFP4, "mxfp4", {32, 17}}}};

/// Types of ggml that are not read here, by its numbers.
constexpr std::pair<std::uint32_t, const char*> kOtherTypes[] = {
    {9, "Q8_1"},     {10, "Q2_K"},  {11, "Q3_K"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"},
    {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {23, "IQ4_XS"},
    {24, "I8"},      {25, "I16"},   {26, "I32"},    {27, "I64"},   {28, "F64"},     {29, "IQ1_M"},
    {34, "TQ1_0"},   {35, "TQ2_0"}, {40, "NVFP4"},  {41, "Q1_0"}};

const TypeRow* find_type(std::uint32_t number) {
  const auto* found = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeRow& row) {
    return narrow<std::uint32_t>(row.type) == number;
  });
  return found == kTypes.end() ? nullptr : found;
}

const TypeRow& row_of(GgufType type) { return *find_type(narrow<std::uint32_t>(type)); }

}  // namespace

const char* name_of(GgufType type) { return row_of(type).name; }

GgufBlock block_of(GgufType type) { return row_of(type).block; }

std::optional<GgufType> gguf_type_of(std::uint32_t number) {
  const TypeRow* row = find_type(number);
  return row == nullptr ? std::nullopt : std::optional(row->type);
}

std::string unread_gguf_type(std::uint32_t number) {
  for (const auto& [known, name] : kOtherTypes)
    if (known == number) return name;
  return concat("number ", number);
}

std::string gguf_types_text() {
  std::string names;
  for (const TypeRow& known : kTypes) names += concat(names.empty() ? "" : ", ", known.name);
  return names;
}

}  // namespace hybrid_trainer
