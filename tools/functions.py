# SPDX-License-Identifier: Apache-2.0
"""Finds the functions of a source file with their lengths: C and C++ by matching braces, Python by its own parser.

The C++ scanner knows namespaces, classes, enumerations, initialisers, constructor initialiser lists, default arguments and both
sides of an #if. It measures functions and lambdas that are named at namespace or class scope; what is inside of a function
belongs to it.
"""
import ast
import re

import source_text

DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w*)(?:\\\n|[^\n])*", re.MULTILINE)
TYPE_KEYWORD = re.compile(r"^(?:(?:typedef|static|inline|constexpr|const|extern|friend|export)\s+)*(class|struct|union|enum)\b")
MACRO = re.compile(r"[A-Z][A-Z0-9_]{2,}$")  # TEST(Suite, Name), BPF_PROG(name, ...)
TRANSPARENT = ("namespace", "type")


class Function:
    def __init__(self, name, first_line, last_line):
        self.name, self.first_line, self.lines = name, first_line, last_line - first_line + 1


class UnbalancedError(Exception):
    """The braces of a file do not match, so nothing in it can be measured."""


def clean(header):
    """A declarator without what only disturbs: attributes, template arguments, operator signs, specifiers with parentheses."""
    header = re.sub(r"\b(?:public|private|protected)\s*:(?!:)", " ", header)
    header = re.sub(r"\[\[.*?\]\]", " ", header, flags=re.DOTALL)
    header = re.sub(r"\boperator\s*(?:\(\s*\)|\[\s*\]|[^\s\w(]+)", "operator_", header)
    header = header.replace("->", " @ ").replace("<=>", " ").replace("<=", " ").replace(">=", " ").replace("==", " ").replace("!=", " ")
    previous = None
    while previous != header:
        previous = header
        header = re.sub(r"<[^<>;{}]*>", "", header)
    for word in ("noexcept", "alignas", "decltype", "requires", "__attribute__", "explicit", "throw"):
        header = re.sub(rf"\b{word}\s*(?=\()", "@skip ", header)
    return re.sub(r"^\s*template\b", " ", header)


def outline(header):
    """The header at parenthesis depth 0, its groups as `()`, and the words before each group with the group's text."""
    flat, groups, depth, start = [], [], 0, 0
    for index, char in enumerate(header):
        if char in "([":
            if depth == 0:
                start = index
                flat.append(char)
            depth += 1
        elif char in ")]":
            depth = max(depth - 1, 0)
            if depth == 0:
                before = re.search(r"(@skip|[\w:~]+)\s*$", header[:start])
                if char == ")" and before and before.group(1) != "@skip":
                    groups.append((before.group(1), header[start + 1:index]))
                flat.append(char)
        elif depth == 0:
            flat.append(char)
    return "".join(flat), groups


def classify(header):
    """What a `{` at namespace or class scope opens after `header`: (kind, name)."""
    text = clean(header).strip()
    if re.match(r"^(?:inline\s+)?namespace\b", text):
        return "namespace", ""
    if re.match(r'^extern\s*"\s*"$', text):
        return "namespace", ""
    if re.match(r"catch\b", text):  # of a function that is a try block
        return "block", ""
    flat, groups = outline(text)
    before_bases = re.split(r"(?<!:):(?!:)", flat, maxsplit=1)[0]
    if TYPE_KEYWORD.match(flat) and "(" not in before_bases.replace("@skip ()", "") and "=" not in flat:
        name = re.findall(r"[\w:]+", before_bases.replace(" final", ""))
        return "type", name[-1] if name else ""
    if "=" in flat:
        is_lambda = re.search(r"=\s*\[\]\s*(?:\(\))?[^=]*$", flat)
        name = re.search(r"([\w:]+)\s*(?:\[\])*\s*=", flat)
        return ("function", name.group(1) if name else "lambda") if is_lambda else ("initialiser", "")
    if not groups:
        return "initialiser", ""
    # In `A::A(int a) : a_(a), b_` the brace belongs to b_, in `A::A(int a) : a_(a)` it opens the body.
    members = re.search(r"\)[^()]*?(?<!:):(?!:)(.*)$", flat, re.DOTALL)
    if members and not re.search(r"(?:\)|@init)\s*$", members.group(1)) and "try" not in members.group(1).split()[-1:]:
        return "initialiser", ""
    groups = [group for group in groups if '"' not in group[1]] or groups  # not SEC("...")
    named = [group for group in groups if members or not MACRO.match(group[0])] or groups
    name, arguments = named[0]
    if MACRO.match(name):
        name += "(" + ", ".join(part.strip() for part in arguments.split(",")[:2]) + ")"
    return "function", name


class Scanner:
    """One pass over the text of a file."""

    def __init__(self, text):
        self.text = source_text.strip(text)
        self.functions = []
        self.stack, self.header, self.parens = [], "", 0  # stack of (kind, name, first line, header to resume, parentheses)
        self.branches = []

    def directive(self, word):
        """Both sides of an #if begin in the same state."""
        if word in ("if", "ifdef", "ifndef"):
            self.branches.append((list(self.stack), self.header, self.parens))
        elif word in ("else", "elif", "elifdef", "elifndef") and self.branches:
            stack, self.header, self.parens = self.branches[-1]
            self.stack = list(stack)
        elif word == "endif" and self.branches:
            self.branches.pop()

    def in_declarations(self):
        return not self.stack or self.stack[-1][0] in TRANSPARENT

    def open(self, line):
        if not self.in_declarations():
            self.stack.append(("block", "", line, "", self.parens))
        elif self.parens:
            self.stack.append(("initialiser", "", line, self.header, self.parens))
            self.header = ""
        else:
            kind, name = classify(self.header)
            resume = self.header if kind == "initialiser" else ""
            self.stack.append((kind, name, line, resume, self.parens))
            self.header = ""

    def close(self, line):
        if not self.stack:
            raise UnbalancedError(f"line {line}: `}}` closes nothing")
        kind, name, first_line, resume, self.parens = self.stack.pop()
        self.header = ""
        if kind == "initialiser":
            self.header = resume + " @init "
        elif kind == "function":
            types = [entry[1] for entry in self.stack if entry[0] == "type" and entry[1]]
            self.functions.append(Function("::".join(types + [name]), first_line, line))

    def scan(self):
        line, position = 1, 0
        text = self.text
        directives = {match.start(): match for match in DIRECTIVE.finditer(text)}
        while position < len(text):
            if position in directives:
                match = directives[position]
                self.directive(match.group(1))
                line += match.group(0).count("\n")
                position = match.end()
                continue
            char = text[position]
            position += 1
            if char == "\n":
                line += 1
            if char == "{":
                self.open(line)
            elif char == "}":
                self.close(line)
            elif self.in_declarations():
                self.declare(char, line)
        if self.stack:
            raise UnbalancedError(f"line {self.stack[-1][2]}: `{{` is never closed")
        return self.functions

    def declare(self, char, _line):
        if char == "(":
            self.parens += 1
        elif char == ")":
            self.parens = max(self.parens - 1, 0)
        if char == ";" and self.parens == 0:
            self.header = ""
        else:
            self.header += char


def python_functions(text):
    found = []

    def walk(node, names):
        for child in ast.iter_child_nodes(node):
            inside = names
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                inside = names + [child.name]
                if not isinstance(child, ast.ClassDef):
                    found.append(Function(".".join(inside), child.lineno, child.end_lineno))
            walk(child, inside)

    walk(ast.parse(text), [])
    return found


def functions_of(path, text):
    """The functions of one file, in the order of their ends; raises UnbalancedError or SyntaxError."""
    return python_functions(text) if path.endswith(".py") else Scanner(text).scan()
