# SPDX-License-Identifier: Apache-2.0
"""Draws small changes of the program at random: an operator, a condition, a statement of a function's body."""
import collections
import os
import random
import re

NUMBER = "@MUTANT@"  # its number takes this place
ON = f"::kansoku_mutants::on({NUMBER})"
# One place: `begin` and `end` are offsets in bytes.
Mutant = collections.namedtuple("Mutant", "file line kind before begin end text")
SWAPS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "+": "-", "-": "+", "*": "/"}
NUMBERS = ("BOOL", "INT", "UINT", "LONG", "ULONG", "LONGLONG", "ULONGLONG", "SHORT", "USHORT", "UCHAR", "SCHAR", "CHAR_S", "FLOAT", "DOUBLE")
# Functions that end processes, or take files away: a mutant there would not stay in its test.
HARMFUL = re.compile(r"\b(kill|killpg|tgkill|pidfd_send_signal|unlink|unlinkat|rmdir|remove|remove_all|rename|mount|umount|reboot|setrlimit)\(")
MACRO = re.compile(rb"\b[A-Z][A-Z_0-9]{3,}\(")
NOT_MUTATED = re.compile(r"_(test|fuzz|bench|for_test)\.cc$")


def sources(entries, root):
    """{path: command} of the program's own files; `entries` as tools/compile_commands.py gives them."""
    found = {}
    for source, target, words, folder in entries:
        inside = os.path.relpath(source, root)
        if inside.startswith("src/") and inside.endswith(".cc") and not NOT_MUTATED.search(inside) and not target.endswith("_test"):
            found.setdefault(source, (words, folder))
    return found


def operator(node, left):
    """The operator of a binary expression; None if it has no mutant."""
    sign = next((token.spelling for token in node.get_tokens() if token.extent.start.offset >= left.extent.end.offset), None)
    return sign if sign in SWAPS else None


def places(unit, path, text):
    """Every place of a parsed file that can be changed."""
    from clang.cindex import CursorKind
    found = []

    def cut(begin, end):
        return text[begin:end].decode()

    def add(node, kind, begin, end, new):
        found.append(Mutant(path, node.location.line, kind, " ".join(cut(begin, end).split())[:60], begin, end, new))

    def visit(node, statement):
        extent = node.extent
        begin, end = extent.start.offset, extent.end.offset
        if extent.start.file is None or extent.start.file.name != path or end <= begin:  # of a macro
            return
        children = list(node.get_children())
        kind = node.kind
        if kind == CursorKind.LAMBDA_EXPR and b"constexpr" in text[begin:end]:
            return
        if kind == CursorKind.DECL_STMT and text[begin:end].startswith((b"constexpr", b"static")):
            return
        if kind == CursorKind.CASE_STMT:
            for child in children[1:]:
                visit(child, False)
            return
        if kind == CursorKind.BINARY_OPERATOR and len(children) == 2:
            sign = operator(node, children[0])
            canonical = [child.type.get_canonical().kind.name for child in children]
            if sign and all(name in NUMBERS for name in canonical) and not (sign == "*" and "DOUBLE" not in canonical):
                left, right = cut(begin, children[0].extent.end.offset), cut(children[1].extent.start.offset, end)
                add(node, f"{sign} as {SWAPS[sign]}", begin, end,
                    f"({ON} ? (({left}) {SWAPS[sign]} ({right})) : ({cut(begin, end)}))")
        elif kind == CursorKind.IF_STMT and children and b"constexpr" not in text[begin:children[0].extent.start.offset] \
                and children[0].type.get_canonical().kind.name == "BOOL" and children[0].extent.end.offset > children[0].extent.start.offset:
            first, last = children[0].extent.start.offset, children[0].extent.end.offset
            add(node, "condition turned", first, last, f"({ON} != ({cut(first, last)}))")
        if statement and kind in (CursorKind.CALL_EXPR, CursorKind.BINARY_OPERATOR, CursorKind.COMPOUND_ASSIGNMENT_OPERATOR) \
                and text[end:end + 1] == b";":
            add(node, "statement left out", begin, end, "if (!" + ON + ") { " + cut(begin, end) + "; }")
        for child in children:
            visit(child, kind == CursorKind.COMPOUND_STMT)

    def functions(node):
        for child in node.get_children():
            if child.location.file is None or child.location.file.name != path:
                continue
            if child.kind in (CursorKind.FUNCTION_DECL, CursorKind.CXX_METHOD, CursorKind.CONSTRUCTOR, CursorKind.FUNCTION_TEMPLATE):
                body = next((one for one in child.get_children() if one.kind == CursorKind.COMPOUND_STMT), None)
                head = text[child.extent.start.offset:body.extent.start.offset if body else child.extent.end.offset]
                if body and b"constexpr" not in head and b"consteval" not in head \
                        and not HARMFUL.search(cut(body.extent.start.offset, body.extent.end.offset)):
                    for statement in body.get_children():
                        visit(statement, True)
            elif child.kind in (CursorKind.NAMESPACE, CursorKind.CLASS_DECL, CursorKind.STRUCT_DECL, CursorKind.UNEXPOSED_DECL):
                functions(child)

    functions(unit.cursor)
    return [one for one in found if not MACRO.search(text[one.begin:one.end])]


def read(path):
    with open(path, "rb") as file:
        return file.read()


def draw(entries, root, flags, count, seed):
    """So many mutants; a file's share follows its lines, and no two overlap."""
    from clang.cindex import Index
    files = sources(entries, root)
    names = sorted(files)
    lines = [read(name).count(b"\n") for name in names]
    random_numbers = random.Random(seed)
    index, parsed, drawn = Index.create(), {}, []
    while len(drawn) < count:
        name = random_numbers.choices(names, lines)[0]
        if name not in parsed:
            words, folder = files[name]
            arguments = [word for word in flags(words)[1:] if not word.startswith(("-W", "-march", "-fno-", "-g", "-O"))]
            unit = index.parse(name, args=arguments + ["-I" + folder])
            text = read(name)
            fatal = [one for one in unit.diagnostics if one.severity >= 3]
            parsed[name] = [] if fatal else places(unit, name, text)
            if fatal:
                print(f"{name}: {fatal[0].spelling}")
        if parsed[name]:
            one = random_numbers.choice(parsed[name])
            if all(one.file != other.file or one.end <= other.begin or other.end <= one.begin for other in drawn):
                drawn.append(one)
    return drawn


def apply(drawn, root, tree):
    """Writes the mutants, numbered from 1, into a copy of the tree."""
    by_file = collections.defaultdict(list)
    for number, one in enumerate(drawn, 1):
        by_file[one.file].append((one.begin, number, one))
    for name, ones in by_file.items():
        text = read(name)
        for _, number, one in sorted(ones, reverse=True):
            text = text[:one.begin] + one.text.replace(NUMBER, str(number)).encode() + text[one.end:]
        with open(os.path.join(tree, os.path.relpath(name, root)), "wb") as file:
            file.write(text)
