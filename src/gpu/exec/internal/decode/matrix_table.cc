// SPDX-License-Identifier: Apache-2.0
#include "gpu/exec/internal/decode/matrix_table.h"

#include <algorithm>

#include "common/check.h"
#include "common/no_destructor.h"

namespace kansoku::gpu::exec {
namespace {

void add_product(void* context, const char* name, const std::uint32_t (&words)[4],
                 MatrixProduct run) {
  auto& all = *static_cast<std::vector<MatrixForm>*>(context);
  all.push_back({name, {words[0], words[1], words[2], words[3]}, run});
}

std::vector<MatrixForm> make_products(Isa isa) {
  std::vector<MatrixForm> all;
  const MatrixSink sink{&all, add_product};
  switch (isa) {
    case Isa::kV2:
      list_products_v2(sink);
      break;
    case Isa::kV3:
      list_products_v3(sink);
      break;
    case Isa::kV4:
      list_products_v4(sink);
      break;
  }
  std::sort(all.begin(), all.end(),
            [](const MatrixForm& a, const MatrixForm& b) { return a.name < b.name; });
  return all;
}

std::vector<MatrixForm>& products(Isa isa) {
  using Tables = std::array<std::vector<MatrixForm>, 3>;
  // Streams decode until the very end of their process.
  static NoDestructor<Tables> tables(
      Tables{make_products(Isa::kV2), make_products(Isa::kV3), make_products(Isa::kV4)});
  return tables.get()[static_cast<std::size_t>(isa)];
}

MatrixForm* find(Isa isa, std::string_view name) {
  auto& all = products(isa);
  const auto found = std::lower_bound(
      all.begin(), all.end(), name,
      [](const MatrixForm& form, std::string_view wanted) { return form.name < wanted; });
  return found == all.end() || found->name != name ? nullptr : &*found;
}

}  // namespace

const std::vector<MatrixForm>& matrix_forms(Isa isa) {
  return products(isa);
}

const MatrixForm* find_matrix_form(Isa isa, std::string_view name) {
  return find(isa, name);
}

MatrixForm& matrix_form_for_test(Isa isa, std::string_view name) {
  MatrixForm* const form = find(isa, name);
  CHECK(form != nullptr);
  return *form;
}

}  // namespace kansoku::gpu::exec
