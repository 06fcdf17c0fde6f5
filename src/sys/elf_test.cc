// SPDX-License-Identifier: Apache-2.0
#include "sys/elf.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <tuple>

#include "sys/fd.h"
#include "sys/procfs.h"

// Found by name in this program's own .symtab; not static, so that it keeps the name.
extern "C" int kansoku_elf_test_marker(int value);
extern "C" __attribute__((noinline)) int kansoku_elf_test_marker(int value) {
  return value + 41;
}

namespace kansoku::sys {
namespace {

using ::testing::HasSubstr;

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "kansoku_elf_XXXXXX").string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] std::string file(const std::string& name, std::string_view content) const {
    std::string path = path_ + "/" + name;
    EXPECT_TRUE(write_file(path, content));
    return path;
  }

 private:
  std::string path_;
};

template <class T>
void put(std::string& image, std::size_t at, const T& value) {
  if (image.size() < at + sizeof value) image.resize(at + sizeof value);
  std::memcpy(image.data() + at, &value, sizeof value);
}

void put_text(std::string& image, std::size_t at, std::string_view text) {
  if (image.size() < at + text.size()) image.resize(at + text.size());
  std::memcpy(image.data() + at, text.data(), text.size());
}

std::string note(std::uint32_t type, std::string_view owner, std::string_view descriptor) {
  std::string bytes;
  put(bytes, 0, static_cast<std::uint32_t>(owner.size() + 1));
  put(bytes, 4, static_cast<std::uint32_t>(descriptor.size()));
  put(bytes, 8, type);
  put_text(bytes, 12, owner);
  bytes.resize((bytes.size() + 1 + 3) & ~std::size_t{3});
  bytes += descriptor;
  bytes.resize((bytes.size() + 3) & ~std::size_t{3});
  return bytes;
}

// Layout of the generated file. The text segment is file 0x1000..0x1100 at address 0x401000+.
constexpr std::size_t kTextAt = 0x1000;
constexpr std::size_t kTextBytes = 0x100;
constexpr std::uint64_t kTextAddress = 0x5000;
constexpr std::size_t kBuildIdAt = 0x200;
constexpr std::size_t kProbesAt = 0x300;
constexpr std::size_t kSymbolsAt = 0x500;
constexpr std::size_t kStringsAt = 0x600;
constexpr std::size_t kSectionNamesAt = 0x700;
constexpr std::size_t kSectionsAt = 0x800;
constexpr std::size_t kSectionCount = 7;

const char kStrings[] = "\0alpha\0beta@@V_1\0gamma\0version\0alpha\0";
const char kSectionNames[] =
    "\0.note.gnu.build-id\0.note.stapsdt\0.stapsdt.base\0.symtab\0.strtab\0.shstrtab\0";

Elf64_Word section_name(std::string_view name) {
  const std::string_view all(kSectionNames, sizeof kSectionNames);
  return static_cast<Elf64_Word>(all.find(std::string("\0", 1) + std::string(name)) + 1);
}

Elf64_Shdr section_header(std::string_view name, Elf64_Word type, std::size_t at,
                          std::size_t bytes) {
  Elf64_Shdr header{};
  header.sh_name = section_name(name);
  header.sh_type = type;
  header.sh_offset = at;
  header.sh_size = bytes;
  header.sh_addralign = type == SHT_NOTE ? 4 : 1;
  return header;
}

Elf64_Sym symbol(std::string_view name, unsigned type, Elf64_Half section, Elf64_Addr address) {
  const std::string_view all(kStrings, sizeof kStrings);
  Elf64_Sym entry{};
  entry.st_name = static_cast<Elf64_Word>(all.find(std::string("\0", 1) + std::string(name)) + 1);
  entry.st_info = static_cast<unsigned char>((STB_GLOBAL << 4) | type);
  entry.st_shndx = section;
  entry.st_value = address;
  entry.st_size = 8;
  return entry;
}

std::string probe_descriptor() {
  std::string bytes;
  put(bytes, 0, std::uint64_t{0x5010});  // probe
  put(bytes, 8, std::uint64_t{0x6000});  // address of .stapsdt.base when the note was written
  put(bytes, 16, std::uint64_t{0x7000});
  put_text(bytes, 24, std::string_view("shop\0open\0-4@%eax 8@%rdi\0", 25));
  return bytes;
}

void put_headers(std::string& image) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_DYN;
  header.e_machine = EM_X86_64;
  header.e_version = EV_CURRENT;
  header.e_ehsize = sizeof header;
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 2;
  header.e_shoff = kSectionsAt;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = kSectionCount;
  header.e_shstrndx = 6;
  put(image, 0, header);

  Elf64_Phdr data{};
  data.p_type = PT_LOAD;
  data.p_flags = PF_R;
  data.p_filesz = 0x1000;
  data.p_memsz = 0x1000;
  put(image, sizeof header, data);
  Elf64_Phdr text{};
  text.p_type = PT_LOAD;
  text.p_flags = PF_R | PF_X;
  text.p_offset = kTextAt;
  text.p_vaddr = kTextAddress;
  text.p_filesz = kTextBytes;
  text.p_memsz = kTextBytes + 0x1000;
  put(image, sizeof header + sizeof data, text);
}

void put_symbols(std::string& image) {
  const std::array<Elf64_Sym, 7> symbols{
      Elf64_Sym{},
      symbol("gamma", STT_GNU_IFUNC, 1, 0x5030),
      symbol("beta@@V_1", STT_OBJECT, 1, 0x5020),
      symbol("alpha", STT_FUNC, 1, 0x5010),
      symbol("alpha", STT_FUNC, 1, 0x5010),  // a duplicate
      symbol("version", STT_OBJECT, SHN_ABS, 0),
      symbol("gamma", STT_FUNC, SHN_UNDEF, 0),
  };
  put(image, kSymbolsAt, symbols);
}

std::string elf_image() {
  std::string image;
  put_headers(image);
  const std::string id = note(NT_GNU_BUILD_ID, "GNU", "\x01\xab\xff");
  put_text(image, kBuildIdAt, id);
  const std::string probe = note(3, "stapsdt", probe_descriptor());
  put_text(image, kProbesAt, probe);
  put_symbols(image);
  put_text(image, kStringsAt, std::string_view(kStrings, sizeof kStrings));
  put_text(image, kSectionNamesAt, std::string_view(kSectionNames, sizeof kSectionNames));

  auto base = section_header(".stapsdt.base", SHT_PROGBITS, kTextAt, 1);
  base.sh_addr = 0x6100;  // prelink moved the file by 0x100
  auto symbols = section_header(".symtab", SHT_SYMTAB, kSymbolsAt, 7 * sizeof(Elf64_Sym));
  symbols.sh_entsize = sizeof(Elf64_Sym);
  symbols.sh_link = 5;
  symbols.sh_addralign = 8;
  const std::array<Elf64_Shdr, kSectionCount> sections{
      Elf64_Shdr{},
      section_header(".note.gnu.build-id", SHT_NOTE, kBuildIdAt, id.size()),
      section_header(".note.stapsdt", SHT_NOTE, kProbesAt, probe.size()),
      base,
      symbols,
      section_header(".strtab", SHT_STRTAB, kStringsAt, sizeof kStrings),
      section_header(".shstrtab", SHT_STRTAB, kSectionNamesAt, sizeof kSectionNames)};
  put(image, kSectionsAt, sections);
  image.resize(kTextAt + kTextBytes, '\x90');
  return image;
}

constexpr std::size_t section_field(std::size_t section, std::size_t field_offset) {
  return kSectionsAt + section * sizeof(Elf64_Shdr) + field_offset;
}

TEST(ElfFile, ReadsEveryPartOfAGeneratedFile) {
  const TempFolder folder;
  const auto file = ElfFile::open(folder.file("a.so", elf_image()));
  ASSERT_TRUE(file) << file.error().what;
  EXPECT_EQ((*file)->build_id(), "01abff");
  EXPECT_TRUE((*file)->is_position_independent());

  const auto& symbols = (*file)->symbols();
  ASSERT_EQ(symbols.size(), 3U);
  EXPECT_EQ(symbols[0].name, "alpha");
  EXPECT_TRUE(symbols[0].is_function);
  EXPECT_EQ(symbols[1].name, "beta");
  EXPECT_FALSE(symbols[1].is_function);
  EXPECT_EQ(symbols[2].name, "gamma");
  EXPECT_TRUE(symbols[2].is_ifunc);
  ASSERT_NE((*file)->find_symbol("beta"), nullptr);
  EXPECT_EQ((*file)->find_symbol("beta")->address, 0x5020U);
  EXPECT_EQ((*file)->find_symbol("version"), nullptr);

  EXPECT_EQ((*file)->file_offset(0x5010), 0x1010U);
  EXPECT_EQ((*file)->file_offset(0x5100), std::nullopt);  // .bss has no bytes in the file
  EXPECT_EQ((*file)->bytes_at(0x50f0, 64).size(), 16U);
  ASSERT_TRUE((*file)->section(".stapsdt.base"));
  EXPECT_EQ((*file)->section(".stapsdt.base")->address, 0x6100U);
  EXPECT_FALSE((*file)->section(".nothing"));
}

TEST(ElfFile, CorrectsProbeAddressesForPrelink) {
  const TempFolder folder;
  const auto file = ElfFile::open(folder.file("a.so", elf_image()));
  ASSERT_TRUE(file) << file.error().what;
  const auto probes = (*file)->usdt_probes();
  ASSERT_EQ(probes.size(), 1U);
  EXPECT_EQ(probes[0].provider, "shop");
  EXPECT_EQ(probes[0].name, "open");
  EXPECT_EQ(probes[0].arguments, "-4@%eax 8@%rdi");
  EXPECT_EQ(probes[0].address, 0x5110U);
  EXPECT_EQ(probes[0].semaphore, 0x7100U);
}

TEST(ElfFile, RefusesWhatIsNotAnX8664File) {
  const TempFolder folder;
  std::string image = elf_image();
  put(image, offsetof(Elf64_Ehdr, e_machine), Elf64_Half{EM_AARCH64});
  const auto foreign = ElfFile::open(folder.file("arm.so", image));
  ASSERT_FALSE(foreign);
  EXPECT_EQ(foreign.error().code, Code::kUnsupported);
  EXPECT_THAT(foreign.error().what, HasSubstr("arm.so"));

  const auto text = ElfFile::open(folder.file("text", "#!/bin/sh\n"));
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, Code::kCorrupt);
  const auto missing = ElfFile::open("/nonexistent/libx.so");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::kNotFound);
  EXPECT_FALSE(ElfFile::open("/tmp"));
}

TEST(ElfFile, DoesNotWaitOnAFifo) {
  const TempFolder folder;
  const std::string path = folder.file("pipe", "");
  ASSERT_EQ(::unlink(path.c_str()), 0);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const auto file = ElfFile::open(path);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, Code::kUnsupported);
}

struct Damage {
  const char* name;
  std::size_t at;
  std::uint64_t value;
};

class DamagedElf : public ::testing::TestWithParam<Damage> {};

TEST_P(DamagedElf, IsAnError) {
  const TempFolder folder;
  std::string image = elf_image();
  put(image, GetParam().at, GetParam().value);
  const auto file = ElfFile::open(folder.file("damaged.so", image));
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, Code::kCorrupt) << file.error().what;
}

INSTANTIATE_TEST_SUITE_P(
    Elf, DamagedElf,
    ::testing::Values(
        Damage{"symbols_beyond_the_end", section_field(4, offsetof(Elf64_Shdr, sh_size)),
               24 * 1000},
        Damage{"symbols_far_away", section_field(4, offsetof(Elf64_Shdr, sh_offset)), ~0ULL - 8},
        Damage{"odd_entries", section_field(4, offsetof(Elf64_Shdr, sh_entsize)), 23},
        Damage{"names_beyond_the_end", section_field(5, offsetof(Elf64_Shdr, sh_size)), 1ULL << 40},
        Damage{"segment_beyond_the_end",
               sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr) + offsetof(Elf64_Phdr, p_filesz),
               1ULL << 50},
        Damage{"sections_beyond_the_end", offsetof(Elf64_Ehdr, e_shoff), 1ULL << 33}),
    [](const auto& test) { return std::string(test.param.name); });

void read_all(ElfFile& file) {
  for (const Symbol& s : file.symbols())
    static_cast<void>(demangle(s.name));
  static_cast<void>(file.usdt_probes());
  static_cast<void>(file.bytes_at(kTextAddress, 4096));
}

TEST(ElfFile, SurvivesEveryTruncation) {
  const TempFolder folder;
  const std::string image = elf_image();
  std::size_t refused = 0;
  std::size_t tried = 0;
  for (std::size_t length = 0; length < image.size(); length += 7, ++tried) {
    auto file = ElfFile::open(folder.file("cut.so", std::string_view(image).substr(0, length)));
    if (file) read_all(**file);
    refused += file ? 0 : 1;
  }
  EXPECT_EQ(refused, tried);  // the last segment reaches to the end of the file
}

TEST(ElfFile, SkipsNamesOutsideOfTheStringTable) {
  const TempFolder folder;
  std::string image = elf_image();
  put(image, kSymbolsAt + 3 * sizeof(Elf64_Sym), Elf64_Word{0x7fffffff});
  put(image, kSymbolsAt + 4 * sizeof(Elf64_Sym), Elf64_Word{0x7fffffff});
  const auto file = ElfFile::open(folder.file("a.so", image));
  ASSERT_TRUE(file) << file.error().what;
  EXPECT_EQ((*file)->symbols().size(), 2U);
}

TEST(ElfFile, FindsAFunctionOfThisProgram) {
  const auto file = ElfFile::open("/proc/self/exe");
  ASSERT_TRUE(file) << file.error().what;
  const Symbol* marker = (*file)->find_symbol("kansoku_elf_test_marker");
  ASSERT_NE(marker, nullptr);
  EXPECT_TRUE(marker->is_function);

  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const Procfs procfs;
  const auto all = procfs.maps(::getpid());
  ASSERT_TRUE(all) << all.error().what;
  std::vector<Mapping> own;
  for (const Mapping& m : *all) {
    if (m.path == self) own.push_back(m);
  }
  const auto bias = load_bias(**file, own);
  ASSERT_TRUE(bias);
  EXPECT_EQ(*bias + marker->address, reinterpret_cast<std::uint64_t>(&kansoku_elf_test_marker));
  EXPECT_EQ(kansoku_elf_test_marker(1), 42);
}

TEST(ElfFile, ReadsTheCLibrary) {
  Dl_info info{};
  ASSERT_NE(::dladdr(reinterpret_cast<void*>(&::getpid), &info), 0);
  const auto file = ElfFile::open(info.dli_fname);
  ASSERT_TRUE(file) << file.error().what;
  const Symbol* getpid_symbol = (*file)->find_symbol("getpid");
  ASSERT_NE(getpid_symbol, nullptr);
  EXPECT_EQ((*file)->exported_address("getpid"), getpid_symbol->address);
  EXPECT_EQ((*file)->exported_address("getpi"), std::nullopt);
  EXPECT_EQ((*file)->exported_address(""), std::nullopt);
  EXPECT_EQ(reinterpret_cast<std::uint64_t>(info.dli_fbase) + getpid_symbol->address,
            reinterpret_cast<std::uint64_t>(&::getpid));
  const auto& symbols = (*file)->symbols();
  EXPECT_GT(symbols.size(), 1000U);
  EXPECT_TRUE(
      std::any_of(symbols.begin(), symbols.end(), [](const auto& s) { return s.is_ifunc; }));
  const auto by_place = [](const Symbol& a, const Symbol& b) {
    return std::tie(a.address, a.name) < std::tie(b.address, b.name);
  };
  EXPECT_TRUE(std::is_sorted(symbols.begin(), symbols.end(), by_place));
  EXPECT_EQ(std::adjacent_find(symbols.begin(), symbols.end(),
                               [&](const auto& a, const auto& b) { return !by_place(a, b); }),
            symbols.end());
}

TEST(ElfFile, FindsTheProbesOfPython) {
  const auto file = ElfFile::open("/usr/bin/python3");
  if (!file) GTEST_SKIP() << "no /usr/bin/python3: " << file.error().what;
  const auto probes = (*file)->usdt_probes();
  if (probes.empty()) GTEST_SKIP() << "this /usr/bin/python3 was built without USDT";
  const auto entry = std::find_if(probes.begin(), probes.end(),
                                  [](const auto& p) { return p.name == "function__entry"; });
  ASSERT_NE(entry, probes.end());
  EXPECT_EQ(entry->provider, "python");
  EXPECT_EQ(std::count(entry->arguments.begin(), entry->arguments.end(), '@'), 3);
  EXPECT_NE(entry->semaphore, 0U);
  const auto code = (*file)->bytes_at(entry->address, 1);
  ASSERT_EQ(code.size(), 1U);
  EXPECT_EQ(code[0], std::byte{0x90});  // the probe sits on a nop
  ASSERT_NE((*file)->find_symbol("_PyRuntime"), nullptr);
  EXPECT_FALSE((*file)->find_symbol("_PyRuntime")->is_function);
}

Mapping map_of(std::uint64_t begin, std::uint64_t offset, bool executable) {
  Mapping mapping;
  mapping.begin = begin;
  mapping.end = begin + 0x1000;
  mapping.file_offset = offset;
  mapping.executable = executable;
  return mapping;
}

TEST(LoadBias, IsWhatMostMappingsAgreeOn) {
  const TempFolder folder;
  const auto file = ElfFile::open(folder.file("a.so", elf_image()));
  ASSERT_TRUE(file) << file.error().what;
  constexpr std::uint64_t kBias = 0x7f0000000000;
  EXPECT_EQ(load_bias(**file, {map_of(0x100000, 0, false),  // somebody reads the file as data
                               map_of(kBias, 0, false), map_of(kBias + 0x5000, 0x1000, true)}),
            kBias);
  EXPECT_EQ(load_bias(**file, {map_of(kBias + 0x5000, 0x1000, true)}), kBias);
  EXPECT_EQ(load_bias(**file, {map_of(kBias, 0x100000, true)}), std::nullopt);
  EXPECT_EQ(load_bias(**file, {}), std::nullopt);

  std::string image = elf_image();
  put(image, offsetof(Elf64_Ehdr, e_type), Elf64_Half{ET_EXEC});
  const auto fixed = ElfFile::open(folder.file("fixed", image));
  ASSERT_TRUE(fixed) << fixed.error().what;
  EXPECT_EQ(load_bias(**fixed, {map_of(kBias, 0, false)}), 0U);
}

TEST(Demangle, LeavesOtherNamesAlone) {
  EXPECT_EQ(demangle("_ZN4c10d16ProcessGroupGloo7nextTagEv"), "c10d::ProcessGroupGloo::nextTag()");
  EXPECT_EQ(demangle("malloc"), "malloc");
  EXPECT_EQ(demangle("i"), "i");  // not "int"
  EXPECT_EQ(demangle("_Zbroken"), "_Zbroken");
  const std::string longest = "_Z" + std::string(100'000, 'P') + "i";
  EXPECT_EQ(demangle(longest), longest);
}

// Each parameter names a template of the one before it, twice: the text doubles every time.
TEST(Demangle, LeavesNamesAloneThatWouldBecomeEndless) {
  std::string bomb = "_Z8autograd1AIiiE";
  for (const char* const reference :
       {"_",  "0_", "1_", "2_", "3_", "4_", "5_", "6_", "7_", "8_", "9_", "A_", "B_", "C_", "D_",
        "E_", "F_", "G_", "H_", "I_", "J_", "K_", "L_", "M_", "N_", "O_", "P_", "Q_", "R_", "S_"})
    bomb += std::string("S_IS") + reference + "S" + reference + "E";
  EXPECT_EQ(demangle(bomb), bomb);
  const std::string harmless =
      "_ZN5torch8autograd6Engine7executeERKSt6vectorINS0_4EdgeESaIS3_EERKS2_IN2at6TensorESaIS9_"
      "EEbbbS8_";
  EXPECT_THAT(demangle(harmless), testing::StartsWith("torch::autograd::Engine::execute("));
  EXPECT_EQ(demangle(harmless, 100), harmless);
}

TEST(PlainFunctionName, IsWhatDemanglingSaysWithoutParameters) {
  for (const char* const name :
       {"_ZN4c10d16ProcessGroupGloo7nextTagEv", "_Z3fooi", "_ZNK2at6Tensor3addERKS0_",
        "_ZN4gloo9allreduceERNS_16AllreduceOptionsE", "_ZNVKR1a1bEv", "_ZN1a2__Ev",
        "_ZN5torch8autograd6Engine7executeERKSt6vectorINS0_4EdgeESaIS3_EEbb"}) {
    const auto plain = plain_function_name(name);
    ASSERT_TRUE(plain.has_value()) << name;
    EXPECT_THAT(demangle(name), testing::StartsWith(*plain + "(")) << name;
  }
  for (const char* const name :
       {"malloc", "_ZN1a1bIiEEvT_", "_ZN1aC1Ev", "_ZN1aplEi", "_ZNSt6vectorIiE3endEv", "_Z1fIiEvT_",
        "_ZN12_GLOBAL__N_11fEv", "_ZN1a1bB5cxx11Ev", "_ZTV1a", "_Z", "_ZN", "_ZN1a", "_ZN9aE",
        "_Z999999999999999999999a", "_ZN1a1bE", "_Z0v"})
    EXPECT_FALSE(plain_function_name(name).has_value()) << name;
}

}  // namespace
}  // namespace kansoku::sys
