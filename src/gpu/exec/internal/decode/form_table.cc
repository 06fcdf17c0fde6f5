// SPDX-License-Identifier: Apache-2.0
#include "gpu/exec/internal/decode/form_table.h"

#include <algorithm>
#include <array>

#include "common/check.h"
#include "common/no_destructor.h"
#include "gpu/exec/internal/decode/forms.h"

namespace kansoku::gpu::exec {
namespace {

void add_form(void* context, const char* op, const char* suffixes, const char* shape, Handler run,
              Handler combined) {
  auto& forms = *static_cast<std::vector<Form>*>(context);
  forms.push_back({std::string(op) + "." + suffixes, shape, run, combined});
}

std::vector<Form> make_forms(Isa isa) {
  std::vector<Form> forms;
  const FormSink sink{&forms, add_form};
  switch (isa) {
    case Isa::kV2:
      list_forms_v2(sink);
      break;
    case Isa::kV3:
      list_forms_v3(sink);
      break;
    case Isa::kV4:
      list_forms_v4(sink);
      break;
  }
  list_rounded_forms(sink);
  std::sort(forms.begin(), forms.end(),
            [](const Form& a, const Form& b) { return a.name < b.name; });
  return forms;
}

std::vector<Form>& table(Isa isa) {
  using Tables = std::array<std::vector<Form>, 3>;
  // Streams decode until the very end of their process.
  static NoDestructor<Tables> tables(
      Tables{make_forms(Isa::kV2), make_forms(Isa::kV3), make_forms(Isa::kV4)});
  return tables.get()[static_cast<std::size_t>(isa)];
}

}  // namespace

const std::vector<Form>& forms(Isa isa) {
  return table(isa);
}

const Form* find_form(Isa isa, std::string_view name) {
  const std::vector<Form>& all = forms(isa);
  const auto found = std::lower_bound(
      all.begin(), all.end(), name,
      [](const Form& form, std::string_view wanted) { return form.name < wanted; });
  return found == all.end() || found->name != name ? nullptr : &*found;
}

Form& form_for_test(Isa isa, std::string_view name) {
  std::vector<Form>& all = table(isa);
  const auto found =
      std::find_if(all.begin(), all.end(), [name](const Form& form) { return form.name == name; });
  CHECK(found != all.end());
  return *found;
}

}  // namespace kansoku::gpu::exec
