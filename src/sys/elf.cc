// SPDX-License-Identifier: Apache-2.0
#include "sys/elf.h"

#include <cxxabi.h>
#include <fmt/format.h>
#include <gelf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <tuple>
#include <unordered_map>

#include "sys/fd.h"
#include "sys/procfs.h"

namespace kansoku::sys {
namespace {

constexpr std::size_t kNameBytesMax = 16384;                  // of one symbol
constexpr std::size_t kTableBytesMax = std::size_t{2} << 30;  // of one section we read
constexpr std::size_t kSectionsMax = 65536;
constexpr std::size_t kSegmentsMax = 4096;
constexpr std::size_t kProbesMax = 65536;
constexpr std::size_t kNoteBytesMax = std::size_t{64} << 20;
constexpr std::size_t kDemangleBytesMax = 4096;  // longer names may expand without end
constexpr std::uint64_t kPageMask = 4095;
constexpr std::uint32_t kNoteStapsdt = 3;

struct SectionEntry {
  std::string name;
  GElf_Shdr header{};
  std::size_t index{0};
};

Error corrupt(const std::string& path, std::string_view why) {
  return Error{Code::kCorrupt, fmt::format("read ELF {}: {}", path, why)};
}

Error libelf_error(const std::string& path, std::string_view doing) {
  const char* why = ::elf_errmsg(-1);
  return corrupt(path, fmt::format("{}: {}", doing, why == nullptr ? "unknown error" : why));
}

/// The NUL-terminated string at `offset` of a string table; nothing if it starts or ends outside.
std::optional<std::string_view> string_at(std::string_view table, std::uint64_t offset) {
  if (offset >= table.size()) return std::nullopt;
  const std::string_view rest = table.substr(offset, kNameBytesMax + 1);
  const std::size_t length = rest.find('\0');
  if (length == std::string_view::npos) return std::nullopt;
  return rest.substr(0, length);
}

std::string_view view(const Elf_Data* data) {
  if (data == nullptr || data->d_buf == nullptr) return {};
  return {static_cast<const char*>(data->d_buf), data->d_size};
}

/// Calls `on_note(type, owner, descriptor)` for each note until it returns false.
template <class OnNote>
void for_each_note(Elf_Data* data, OnNote on_note) {
  if (data == nullptr || data->d_buf == nullptr) return;
  const std::string_view all = view(data);
  std::size_t offset = 0;
  for (;;) {
    GElf_Nhdr header{};
    std::size_t name_at = 0;
    std::size_t descriptor_at = 0;
    const std::size_t next = ::gelf_getnote(data, offset, &header, &name_at, &descriptor_at);
    if (next == 0 || next <= offset || next > all.size()) return;
    const std::string_view owner = all.substr(name_at, header.n_namesz);
    const std::string_view descriptor = all.substr(descriptor_at, header.n_descsz);
    if (!on_note(header.n_type, owner.substr(0, owner.find('\0')), descriptor)) return;
    offset = next;
  }
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes)
    text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

std::string build_id_in(Elf_Data* data) {
  constexpr std::size_t kBuildIdBytesMax = 64;
  std::string id;
  for_each_note(data, [&](std::uint32_t type, std::string_view owner, std::string_view bytes) {
    if (type != NT_GNU_BUILD_ID || owner != "GNU" || bytes.empty()) return true;
    id = hex(bytes.substr(0, kBuildIdBytesMax));
    return false;
  });
  return id;
}

/// One stapsdt descriptor: probe, base and semaphore addresses, then three strings.
std::optional<UsdtProbe> parse_usdt(std::string_view descriptor,
                                    std::optional<std::uint64_t> base) {
  ByteReader reader(as_bytes(descriptor));
  const auto address = reader.read<std::uint64_t>("probe address");
  const auto noted_base = reader.read<std::uint64_t>("base address");
  const auto semaphore = reader.read<std::uint64_t>("semaphore address");
  if (!address || !noted_base || !semaphore) return std::nullopt;
  const std::string_view strings = descriptor.substr(reader.offset());
  const auto provider = string_at(strings, 0);
  if (!provider) return std::nullopt;
  const auto name = string_at(strings, provider->size() + 1);
  if (!name || name->empty()) return std::nullopt;
  const auto arguments = string_at(strings, provider->size() + name->size() + 2);
  // Prelink moves sections but not the note: the distance to .stapsdt.base tells by how much.
  const std::uint64_t moved = base ? *base - *noted_base : 0;
  return UsdtProbe{.provider = std::string(*provider),
                   .name = std::string(*name),
                   .address = *address + moved,
                   .semaphore = *semaphore == 0 ? 0 : *semaphore + moved,
                   .arguments = std::string(arguments.value_or(""))};
}

}  // namespace

struct ElfFile::Impl {
  std::string path;
  Fd fd;
  std::uint64_t file_bytes{0};
  Elf* elf{nullptr};
  GElf_Ehdr header{};
  std::vector<Segment> loads;
  std::vector<SectionEntry> sections;
  std::string build_id;
  std::optional<std::vector<Symbol>> symbols;
  std::optional<std::unordered_map<std::string_view, std::size_t>> by_name;
  std::size_t names_bytes{0};
  ElfFile::Limits limits;
  bool is_cut{false};  // symbols were left out for the limits

  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (elf != nullptr) ::elf_end(elf);
  }

  [[nodiscard]] Result<void> open_file();
  [[nodiscard]] Result<void> read_header();
  [[nodiscard]] Result<void> read_segments();
  [[nodiscard]] Result<void> read_sections();
  [[nodiscard]] Result<void> check_section(const SectionEntry& section) const;
  [[nodiscard]] Elf_Data* data_of(std::size_t index, std::size_t bytes_max) const;
  void add_symbols(const SectionEntry& table, std::vector<Symbol>& into);
  void read_symbols();

  [[nodiscard]] bool in_file(std::uint64_t offset, std::uint64_t bytes) const {
    return offset <= file_bytes && bytes <= file_bytes - offset;
  }
  [[nodiscard]] const Segment* load_of(std::uint64_t address) const {
    for (const Segment& load : loads) {
      if (address >= load.address && address - load.address < load.file_bytes) return &load;
    }
    return nullptr;
  }
};

Result<void> ElfFile::Impl::open_file() {
  TRY(fd, Fd::open_regular(path));
  struct stat info {};
  if (::fstat(fd.raw(), &info) != 0) return errno_error(errno, "stat", path);
  file_bytes = static_cast<std::uint64_t>(info.st_size);
  ::elf_version(EV_CURRENT);
  // Reads, not a mapping: a file that is truncated meanwhile must not raise SIGBUS.
  elf = ::elf_begin(fd.raw(), ELF_C_READ, nullptr);
  if (elf == nullptr) return libelf_error(path, "open");
  return {};
}

Result<void> ElfFile::Impl::read_header() {
  if (::elf_kind(elf) != ELF_K_ELF) return corrupt(path, "not an ELF file");
  if (::gelf_getehdr(elf, &header) == nullptr) return libelf_error(path, "header");
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_machine != EM_X86_64) {
    return Error{Code::kUnsupported, fmt::format("read ELF {}: not an x86-64 file", path)};
  }
  // libelf treats tables outside of the file as missing; to us the file is torn.
  if (!in_file(header.e_phoff, std::uint64_t{header.e_phnum} * sizeof(Elf64_Phdr)) ||
      !in_file(header.e_shoff, std::uint64_t{header.e_shnum} * sizeof(Elf64_Shdr))) {
    return corrupt(path, "a header table ends outside the file");
  }
  return {};
}

Result<void> ElfFile::Impl::read_segments() {
  std::size_t count = 0;
  if (::elf_getphdrnum(elf, &count) != 0) return libelf_error(path, "program headers");
  if (count > kSegmentsMax) {
    return Error{Code::kLimit, fmt::format("read ELF {}: {} program headers", path, count)};
  }
  for (std::size_t i = 0; i < count; ++i) {
    GElf_Phdr segment{};
    if (::gelf_getphdr(elf, static_cast<int>(i), &segment) == nullptr) {
      return libelf_error(path, "program header");
    }
    if (segment.p_type == PT_LOAD) {
      if (!in_file(segment.p_offset, segment.p_filesz) && header.e_type != ET_REL) {
        return corrupt(path, "a segment ends outside the file");
      }
      loads.push_back(Segment{.address = segment.p_vaddr,
                              .file_offset = segment.p_offset,
                              .file_bytes = segment.p_filesz,
                              .executable = (segment.p_flags & PF_X) != 0});
    }
    if (segment.p_type != PT_NOTE || !build_id.empty()) continue;
    if (segment.p_filesz > kNoteBytesMax || !in_file(segment.p_offset, segment.p_filesz)) continue;
    const Elf_Type type = segment.p_align == 8 ? ELF_T_NHDR8 : ELF_T_NHDR;
    build_id = build_id_in(::elf_getdata_rawchunk(elf, static_cast<std::int64_t>(segment.p_offset),
                                                  segment.p_filesz, type));
  }
  return {};
}

Result<void> ElfFile::Impl::check_section(const SectionEntry& section) const {
  const GElf_Shdr& h = section.header;
  const bool is_table = h.sh_type == SHT_SYMTAB || h.sh_type == SHT_DYNSYM;
  if (!is_table && h.sh_type != SHT_STRTAB && h.sh_type != SHT_NOTE) return {};
  if (!in_file(h.sh_offset, h.sh_size)) {
    return corrupt(path, fmt::format("section {} ends outside the file", section.index));
  }
  if (is_table && h.sh_entsize != sizeof(Elf64_Sym)) {
    return corrupt(
        path, fmt::format("symbol table {} has entries of {} bytes", section.index, h.sh_entsize));
  }
  return {};
}

Result<void> ElfFile::Impl::read_sections() {
  std::size_t count = 0;
  std::size_t names = 0;
  if (::elf_getshdrnum(elf, &count) != 0) return libelf_error(path, "section headers");
  if (count > kSectionsMax) {
    return Error{Code::kLimit, fmt::format("read ELF {}: {} sections", path, count)};
  }
  if (count == 0) return {};
  if (::elf_getshdrstrndx(elf, &names) != 0) return libelf_error(path, "section names");
  const std::string_view name_table = view(data_of(names, kTableBytesMax));
  for (std::size_t i = 1; i < count; ++i) {
    SectionEntry section;
    section.index = i;
    Elf_Scn* raw = ::elf_getscn(elf, i);
    if (raw == nullptr || ::gelf_getshdr(raw, &section.header) == nullptr) {
      return libelf_error(path, "section header");
    }
    section.name = std::string(string_at(name_table, section.header.sh_name).value_or(""));
    TRY_VOID(check_section(section));
    if (section.header.sh_type == SHT_NOTE && build_id.empty()) {
      build_id = build_id_in(data_of(i, kNoteBytesMax));
    }
    sections.push_back(std::move(section));
  }
  return {};
}

/// The bytes of a section, or null if it is missing, unreadable or larger than `bytes_max`.
Elf_Data* ElfFile::Impl::data_of(std::size_t index, std::size_t bytes_max) const {
  Elf_Scn* raw = ::elf_getscn(elf, index);
  GElf_Shdr h{};
  if (raw == nullptr || ::gelf_getshdr(raw, &h) == nullptr) return nullptr;
  if (h.sh_type == SHT_NOBITS || h.sh_size > bytes_max || !in_file(h.sh_offset, h.sh_size)) {
    return nullptr;
  }
  return ::elf_getdata(raw, nullptr);
}

void ElfFile::Impl::add_symbols(const SectionEntry& table, std::vector<Symbol>& into) {
  // Undefined symbols and those of other kinds lie between.
  const std::size_t entry_bytes_max = 4 * limits.symbols * sizeof(Elf64_Sym);
  Elf_Data* entries = data_of(table.index, std::min(kTableBytesMax, entry_bytes_max));
  const std::string_view names =
      view(data_of(table.header.sh_link, std::min(kTableBytesMax, 2 * limits.name_bytes)));
  const bool is_large = entries == nullptr || names.empty();
  is_cut = is_cut || (is_large && table.header.sh_size > sizeof(Elf64_Sym));
  if (entries == nullptr || names.empty()) return;
  const std::size_t count = entries->d_size / sizeof(Elf64_Sym);
  for (std::size_t i = 1; i < count; ++i) {
    GElf_Sym raw{};
    if (::gelf_getsym(entries, static_cast<int>(i), &raw) == nullptr) return;
    const unsigned char type = GELF_ST_TYPE(raw.st_info);
    const bool is_ifunc = type == STT_GNU_IFUNC;
    if (type != STT_FUNC && type != STT_OBJECT && !is_ifunc) continue;
    // Absolute symbols are names of versions; common ones exist only before linking.
    if (raw.st_shndx == SHN_UNDEF || raw.st_shndx == SHN_ABS || raw.st_shndx == SHN_COMMON)
      continue;
    const auto name = string_at(names, raw.st_name);
    names_bytes += name ? name->size() : kNameBytesMax;
    if (names_bytes > limits.name_bytes || into.size() >= limits.symbols) {
      is_cut = true;
      return;
    }
    const std::string_view bare = name ? name->substr(0, name->find('@')) : std::string_view{};
    if (bare.empty()) continue;
    into.push_back(Symbol{.name = std::string(bare),
                          .address = raw.st_value,
                          .bytes = raw.st_size,
                          .is_function = type != STT_OBJECT,
                          .is_ifunc = is_ifunc});
  }
}

void ElfFile::Impl::read_symbols() {
  std::vector<Symbol> found;
  for (const std::uint32_t type : {std::uint32_t{SHT_DYNSYM}, std::uint32_t{SHT_SYMTAB}}) {
    for (const SectionEntry& section : sections) {
      if (section.header.sh_type == type) add_symbols(section, found);
    }
  }
  // Stable: of two equal entries the one of .dynsym, read first, stays.
  std::stable_sort(found.begin(), found.end(), [](const Symbol& a, const Symbol& b) {
    return std::tie(a.address, a.name) < std::tie(b.address, b.name);
  });
  const auto is_same = [](const Symbol& a, const Symbol& b) {
    return a.address == b.address && a.name == b.name;
  };
  found.erase(std::unique(found.begin(), found.end(), is_same), found.end());
  symbols = std::move(found);
}

ElfFile::ElfFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ElfFile::~ElfFile() = default;

Result<std::unique_ptr<ElfFile>> ElfFile::open(const std::string& path) {
  return open(path, Limits{});
}

Result<std::unique_ptr<ElfFile>> ElfFile::open(const std::string& path, const Limits& limits) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->limits = limits;
  TRY_VOID(impl->open_file());
  TRY_VOID(impl->read_header());
  TRY_VOID(impl->read_segments());
  TRY_VOID(impl->read_sections());
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): the constructor is private
  return std::unique_ptr<ElfFile>(new ElfFile(std::move(impl)));
}

const std::string& ElfFile::path() const {
  return impl_->path;
}

const std::string& ElfFile::build_id() const {
  return impl_->build_id;
}

const std::vector<Symbol>& ElfFile::symbols() {
  if (!impl_->symbols) impl_->read_symbols();
  return *impl_->symbols;
}

bool ElfFile::is_cut() const {
  return impl_->is_cut;
}

const Symbol* ElfFile::find_symbol(std::string_view name) {
  const std::vector<Symbol>& all = symbols();
  if (!impl_->by_name) {
    auto& by_name = impl_->by_name.emplace();
    by_name.reserve(all.size());
    for (std::size_t i = 0; i < all.size(); ++i)
      by_name.try_emplace(all[i].name, i);
  }
  const auto found = impl_->by_name->find(name);
  return found == impl_->by_name->end() ? nullptr : &all[found->second];
}

std::vector<UsdtProbe> ElfFile::usdt_probes() {
  std::vector<UsdtProbe> probes;
  const auto base_section = section(".stapsdt.base");
  std::optional<std::uint64_t> base;
  if (base_section) base = base_section->address;
  for (const SectionEntry& s : impl_->sections) {
    if (s.header.sh_type != SHT_NOTE || s.name != ".note.stapsdt") continue;
    for_each_note(impl_->data_of(s.index, kNoteBytesMax),
                  [&](std::uint32_t type, std::string_view owner, std::string_view descriptor) {
                    if (type != kNoteStapsdt || owner != "stapsdt") return true;
                    auto probe = parse_usdt(descriptor, base);
                    if (probe) probes.push_back(std::move(*probe));
                    return probes.size() < kProbesMax;
                  });
  }
  return probes;
}

std::optional<std::uint64_t> ElfFile::exported_address(std::string_view name) const {
  const auto hashes = section(".gnu.hash"), table = section(".dynsym"), names = section(".dynstr");
  if (!hashes || !table || !names) return std::nullopt;
  const auto word_at = [this](std::uint64_t address) -> std::optional<std::uint32_t> {
    const auto bytes = bytes_at(address, sizeof(std::uint32_t));
    std::uint32_t out = 0;
    if (bytes.size() != sizeof out) return std::nullopt;
    std::memcpy(&out, bytes.data(), sizeof out);
    return out;
  };
  std::uint32_t hash = 5381;
  for (const char c : name)
    hash = hash * 33 + static_cast<unsigned char>(c);
  const std::uint64_t at = hashes->address;
  const auto buckets = word_at(at), first = word_at(at + 4), filters = word_at(at + 8);
  if (!buckets || !first || !filters || *buckets == 0) return std::nullopt;
  const std::uint64_t bucket_at = at + 16 + std::uint64_t{8} * *filters;
  const std::uint64_t chain_at = bucket_at + std::uint64_t{4} * *buckets;
  auto index = word_at(bucket_at + std::uint64_t{4} * (hash % *buckets));
  if (!index || *index < *first) return std::nullopt;
  // A chain ends at a hash whose lowest bit is set, after a few.
  constexpr std::uint64_t kChainMax = 4096;
  const std::uint64_t end = std::min(table->bytes / sizeof(Elf64_Sym), *index + kChainMax);
  for (std::uint64_t i = *index; i < end; ++i) {
    const auto entry = word_at(chain_at + 4 * (i - *first));
    if (!entry) return std::nullopt;
    if ((*entry | 1) == (hash | 1)) {
      const auto bytes = bytes_at(table->address + i * sizeof(Elf64_Sym), sizeof(Elf64_Sym));
      Elf64_Sym symbol{};
      if (bytes.size() != sizeof symbol) return std::nullopt;
      std::memcpy(&symbol, bytes.data(), sizeof symbol);
      const auto text = bytes_at(names->address + symbol.st_name, name.size() + 1);
      if (text.size() == name.size() + 1 &&
          std::memcmp(text.data(), name.data(), name.size()) == 0 && text.back() == std::byte{0})
        return symbol.st_value;
    }
    if ((*entry & 1) != 0) break;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> ElfFile::file_offset(std::uint64_t address) const {
  const Segment* load = impl_->load_of(address);
  if (load == nullptr) return std::nullopt;
  return load->file_offset + (address - load->address);
}

const std::vector<ElfFile::Segment>& ElfFile::load_segments() const {
  return impl_->loads;
}

bool ElfFile::is_position_independent() const {
  return impl_->header.e_type == ET_DYN;
}

std::optional<ElfFile::Section> ElfFile::section(std::string_view name) const {
  for (const auto& s : impl_->sections) {
    if (s.name == name) return Section{.address = s.header.sh_addr, .bytes = s.header.sh_size};
  }
  return std::nullopt;
}

std::vector<std::byte> ElfFile::bytes_at(std::uint64_t address, std::size_t count) const {
  const Segment* load = impl_->load_of(address);
  if (load == nullptr) return {};
  const std::uint64_t skipped = address - load->address;
  std::vector<std::byte> bytes(std::min<std::uint64_t>(count, load->file_bytes - skipped));
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = ::pread(impl_->fd.raw(), bytes.data() + done, bytes.size() - done,
                                static_cast<off_t>(load->file_offset + skipped + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

namespace {

/// The number and the identifier after it, cut off; nothing if there is none.
std::optional<std::string_view> cut_identifier(std::string_view& rest) {
  std::size_t length = 0, digits = 0;
  while (digits < rest.size() && digits < 5 && rest[digits] >= '0' && rest[digits] <= '9')
    length = length * 10 + static_cast<std::size_t>(rest[digits++] - '0');
  if (digits == 0 || length == 0 || length > rest.size() - digits) return std::nullopt;
  const std::string_view identifier = rest.substr(digits, length);
  rest.remove_prefix(digits + length);
  return identifier;
}

/// No less than what a name expands to. A back reference (S_, T_) may repeat all that came before
/// it, a pack expansion (Dp) what follows for each part of what came before.
double expansion_bound(std::string_view rest) {
  double size = 0, times = 1;
  while (!rest.empty()) {
    if (const auto identifier = cut_identifier(rest)) {
      size += static_cast<double>(identifier->size()) * times;
      continue;
    }
    const char next = rest.size() > 1 ? rest[1] : '\0';
    const bool is_number = next == '_' || (next >= '0' && next <= '9');
    if (rest[0] == 'S' && (is_number || (next >= 'A' && next <= 'Z'))) size *= 2;
    if (rest[0] == 'T' && is_number) size *= 2;
    if (rest[0] == 'D' && next == 'p') times *= 1 + size / 16;
    const bool is_library_type = rest[0] == 'S' && next >= 'a' && next <= 'z';
    size += (is_library_type ? 80 : 4) * times;  // abbreviations spelled out
    rest.remove_prefix(1);
  }
  return size;
}

}  // namespace

std::optional<std::string> plain_function_name(std::string_view mangled) {
  if (!mangled.starts_with("_Z")) return std::nullopt;
  std::string_view rest = mangled.substr(2);
  const bool is_nested = rest.starts_with('N');
  if (is_nested) rest.remove_prefix(1);
  while (is_nested && !rest.empty() && std::string_view("KVROr").find(rest[0]) != rest.npos)
    rest.remove_prefix(1);
  std::string out;
  do {
    const auto identifier = cut_identifier(rest);
    if (!identifier || identifier->starts_with("_GLOBAL_")) return std::nullopt;
    out += (out.empty() ? "" : "::") + std::string(*identifier);
  } while (is_nested && !rest.empty() && rest[0] != 'E');
  if (is_nested) {
    if (rest.empty()) return std::nullopt;
    rest.remove_prefix(1);
  }
  // Template arguments, ABI tags; without parameters it is a variable.
  if (rest.empty() || rest[0] == 'I' || rest[0] == 'B' || rest[0] == '.') return std::nullopt;
  return out;
}

std::string demangle(const std::string& mangled, std::size_t bytes_max) {
  if (!mangled.starts_with("_Z") || mangled.size() > kDemangleBytesMax ||
      expansion_bound(std::string_view(mangled).substr(2)) > static_cast<double>(bytes_max))
    return mangled;
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 && text != nullptr ? std::string(text.get()) : mangled;
}

std::optional<std::uint64_t> load_bias(const ElfFile& file, const std::vector<Mapping>& mappings) {
  if (!file.is_position_independent()) return 0;
  // A page at the border of two segments is mapped twice, and others may map the file as data, so
  // every (mapping, segment) pair of equal right to execute votes.
  std::map<std::uint64_t, std::size_t> votes;
  for (const Mapping& mapping : mappings) {
    for (const ElfFile::Segment& load : file.load_segments()) {
      const std::uint64_t first = load.file_offset & ~kPageMask;
      if (load.executable != mapping.executable || mapping.file_offset < first) continue;
      if (mapping.file_offset - first >= (load.file_offset - first) + load.file_bytes) continue;
      const std::uint64_t bias =
          mapping.begin - mapping.file_offset - (load.address - load.file_offset);
      if ((bias & kPageMask) == 0) ++votes[bias];
    }
  }
  std::optional<std::uint64_t> best;
  for (const auto& [bias, count] : votes) {
    if (!best || count > votes[*best]) best = bias;
  }
  return best;
}

}  // namespace kansoku::sys
