"""Directives of DejaGnu in GCC's tests (`{ dg-... }`): where a test runs, how it is built, and when it passes.

Owned by suites that run GCC's tests. `Test` reads a file once; what is true of the machine and of the compiler is told as a set of words.
"""

import fnmatch
import pathlib
import platform
import re

DIRECTIVE = re.compile(r"\{[ \t]+dg-([-a-z]+)[ \t]+(.*)[ \t]+\}")
TRIPLE = f"{platform.machine()}-pc-linux-gnu"
# What GCC's `target-supports.exp` would find here, but for what the processor says.
ALWAYS = {"lp64", "tls", "tls_runtime", "sync_char_short", "sync_int_long", "size32plus", "large_long_double", "fpic", "shared", "__float128", "fd_truncate",
          "vect_simd_clones", "pthread", "fopenmp", "lto"}
PROCESSOR = {"sse2": "sse2_runtime", "avx": "avx_runtime"}


def facts_of_machine():
    flags = set(re.findall(r"\w+", pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("flags")[2].partition("\n")[0]))
    return ALWAYS | {fact for flag, fact in PROCESSOR.items() if flag in flags}


def words_of(text):
    """The words of a list of Tcl: bare ones, quoted ones without quotes, braced ones without braces."""
    words, at = [], 0
    while at < len(text):
        if text[at].isspace():
            at += 1
        elif text[at] == '"':
            end = at + 1
            while end < len(text) and text[end] != '"':
                end += 2 if text[end] == "\\" else 1
            words.append(unquoted(text[at + 1:end]))
            at = end + 1
        elif text[at] == "{":
            end, depth = at, 0
            while end < len(text):
                depth += {"{": 1, "}": -1}.get(text[end], 0)
                end += 1
                if not depth:
                    break
            words.append(text[at + 1:end - 1].strip())
            at = end
        else:
            end = at
            while end < len(text) and not text[end].isspace():
                end += 1
            words.append(text[at:end])
            at = end
    return words


def unquoted(text):
    """What Tcl makes of a quoted word."""
    return re.sub(r"\\(.)", lambda mark: {"n": "\n", "r": "\r", "t": "\t"}.get(mark[1], mark[1]), text)


def holds(condition, facts):
    """Tells whether a condition holds: names of targets with `!`, `&&`, `||` and braces; one after the other, one of them suffices."""
    tokens = re.findall(r"[{}!]|&&|\|\||[^\s{}!]+", condition)

    def either():
        value = both()
        while tokens and tokens[0] != "}":
            if tokens[0] == "||":
                tokens.pop(0)
            value = both() or value
        return value

    def both():
        value = one()
        while tokens and tokens[0] == "&&":
            tokens.pop(0)
            value = one() and value
        return value

    def one():
        token = tokens.pop(0) if tokens else ""
        if token == "!":
            return not one()
        if token == "{":
            value = either()
            if tokens:
                tokens.pop(0)
            return value
        return token in facts or fnmatch.fnmatch(TRIPLE, token)

    return either()


class Test:
    """What a file says of itself. `kind`: run, link or compile; `skip`: why it does not run here, or nothing."""

    def __init__(self, text, facts):
        self.kind, self.skip, self.output, self.should_fail = "run", "", "", False
        self.options, self.sources, self.environment = ["-O2"], [], {}
        more = []
        for name, rest in DIRECTIVE.findall(text):
            words = words_of(rest)
            # A condition is the last word: `{ target ... }`.
            condition = words[-1].split(None, 1) if words and words[-1].startswith(("target ", "xfail ")) else []
            applies = not condition or condition[0] == "xfail" or holds(condition[1], facts)
            if condition:
                words.pop()
            if name == "do":
                self.kind = words[0]
                if not applies:
                    self.skip = f"it is for {condition[1].strip()} alone"
            elif name == "require-effective-target":
                if not holds(words[0], facts):
                    self.skip = f"it needs {words[0]}"
            elif name == "skip-if":
                self.skip_if(words, facts)
            elif name == "options" and applies:
                self.options = words[0].split()
            elif name == "additional-options" and applies:
                more += words[0].split()
            elif name == "additional-sources":
                self.sources += words[0].split()
            elif name == "set-target-env-var":
                self.environment[words[0]] = words[1]
            elif name == "output" and applies:
                self.output += words[0]
            elif name == "shouldfail":
                self.should_fail = True
        self.options = [word for word in self.options + more if not word.startswith("-foffload")]
        if self.kind not in ("run", "link") and not self.skip:
            self.skip = f"it tests the compiler: dg-do {self.kind}"

    def skip_if(self, words, facts):
        """`dg-skip-if REASON { targets } { with these options } { unless with these }`; tests run with -O2."""
        unless = words_of(words[3]) if len(words) > 3 else []
        if holds(words[1], facts) and "-O2" not in unless:
            self.skip = words[0] or f"it is not for {words[1].strip()}, by itself"

    def is_told(self, output):
        """Tells whether the output has what the test asks for."""
        return re.search(self.output, output) is not None
